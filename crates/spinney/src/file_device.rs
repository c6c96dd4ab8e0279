//! A file of a volume as a device: a disk image inside an image. `serve nbd` serves such devices.

use std::io;
use std::path::Path;

use blockdev::{Device, Error, Holes, Op, Result, check_range, check_writable, parts_len};
use vfs::file_system::AllocateFlags;
use vfs::{Errno, File};

/// A file of a volume, as a block device of a fixed size.
pub struct VolumeFileDevice {
    name: String,
    file: File,
    size_bytes: u64,
    read_only: bool,
}

impl std::fmt::Debug for VolumeFileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeFileDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

impl VolumeFileDevice {
    /// Opens the regular file at `path`. It has to keep its size.
    ///
    /// # Errors
    /// As [`vfs::FileOptions::open`]; `EISDIR` for a directory.
    pub fn open(volume: &vfs::Volume, path: &Path, read_only: bool) -> vfs::Result<Self> {
        let file = vfs::FileOptions::new().read(true).write(!read_only).open(volume, path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(vfs::Error::from(Errno::EISDIR).during("open").at(path));
        }
        Ok(Self { name: path.display().to_string(), file, size_bytes: metadata.size, read_only })
    }

    fn error(&self, op: Op, offset: u64, len: u64, error: vfs::Error) -> Error {
        Error::io(op, &self.name, offset, len, io::Error::from(error))
    }

    fn allocate(&self, op: Op, flags: AllocateFlags, offset: u64, len: u64) -> Result<bool> {
        check_writable(self, op)?;
        check_range(self, op, offset, len)?;
        if len == 0 {
            return Ok(true);
        }
        match self.file.allocate(flags | AllocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Errno::EOPNOTSUPP => Ok(false),
            Err(error) => Err(self.error(op, offset, len, error)),
        }
    }
}

fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

impl Device for VolumeFileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        check_range(self, Op::Read, offset, len)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let count = self.file.read_at(rest, at).map_err(|error| self.error(Op::Read, offset, len, error))?;
            if count == 0 {
                let (device, size) = (self.name.clone(), at);
                return Err(Error::UnexpectedEnd { device, offset, len, size });
            }
            at = at.saturating_add(to_u64(count));
            rest = rest.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> u64 {
        match self.file.seek_data(offset) {
            Ok(at) => at.clamp(offset, self.size_bytes.max(offset)),
            Err(error) if error.errno() == Errno::ENXIO => self.size_bytes.max(offset),
            Err(_) => offset,
        }
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let end = self.size_bytes.max(offset);
        self.file.seek_hole(offset).map_or(end, |at| at.clamp(offset, end))
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        check_writable(self, Op::Write)?;
        let len = parts_len(parts);
        check_range(self, Op::Write, offset, len)?;
        let mut at = offset;
        for part in parts {
            self.file.write_at(part, at).map_err(|error| self.error(Op::Write, offset, len, error))?;
            at = at.saturating_add(to_u64(part.len()));
        }
        Ok(())
    }

    /// Data alone: the size does not change, and the file system keeps what is needed to find the data.
    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.file.sync_data().map_err(|error| self.error(Op::Flush, 0, 0, error))
    }

    fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<bool> {
        let kind = match holes {
            Holes::Allowed => AllocateFlags::PUNCH_HOLE,
            Holes::Forbidden => AllocateFlags::ZERO_RANGE,
        };
        self.allocate(Op::Write, kind, offset, len)
    }

    /// Makes a hole.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.allocate(Op::Discard, AllocateFlags::PUNCH_HOLE, offset, len).map(drop)
    }

    fn grow(&self, _: u64) -> Result<()> {
        Err(Error::CannotGrow { device: self.name.clone(), size: self.size_bytes })
    }
}
