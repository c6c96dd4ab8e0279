//! Implements a device over a regular file by the standard library alone, for systems other than Linux: there it has
//! the name `FileDevice`. On Linux only its tests are compiled.
//!
//! Missing in comparison with `file`: block devices, which are refused as [`Error::NotADevice`]; holes, which are read
//! and written as zeros; the look at the host's free space before a write.

use super::file_length::FileLength;
use super::file_options::FileOptions;
use crate::convert::to_u64;
use crate::device::{check_range, check_writable, parts_len};
use crate::{Device, Error, Op, Result};
use portable::FileExt as _;
use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// A regular file, locked for as long as this value lives: a writer excludes all other programs that open the file this
/// way, readers share it.
#[derive(Debug)]
pub struct FileDevice {
    name: String,
    file: File,
    /// Byte of the file at which the device begins.
    start: u64,
    length: FileLength,
    read_only: bool,
}

impl FileDevice {
    /// Opens and locks the file at `path`; its name is taken literally.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NotADevice`]; [`Error::Locked`] where another program uses it; [`Error::OutOfRange`]
    /// where `offset` or `size` lie outside the file.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let (path, options) = (path.as_ref(), *options);
        let name = path.display().to_string();
        refuse_other_kinds(path, &name, &options)?;
        let creates = options.create && !options.read_only;
        let mut open = OpenOptions::new();
        open.read(true).write(!options.read_only).create(creates).truncate(false);
        let file = open.open(path).map_err(|error| open_error(&name, error))?;
        let found = file.metadata().map_err(|error| open_error(&name, error))?;
        if !found.is_file() {
            return Err(Error::NotADevice { device: name });
        }
        if !(options.unlocked && options.read_only) {
            lock(&file, &name, &options)?;
        }
        let mut file_bytes = found.len();
        let wanted_end = options.size.and_then(|size| options.offset.checked_add(size));
        if let Some(end) = wanted_end.filter(|end| creates && file_bytes < *end) {
            file.set_len(end).map_err(|error| open_error(&name, error))?;
            file_bytes = end;
        }
        let size_bytes = options.window(&name, file_bytes)?;
        let (start, read_only) = (options.offset, options.read_only);
        let length = FileLength::new(size_bytes, start, options.size.is_none() || options.create);
        Ok(Self { name, file, start, length, read_only })
    }

    /// A device over a file that another process opened and locked, as on Linux.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[cfg(unix)]
    pub fn of_descriptor(
        descriptor: std::os::fd::OwnedFd,
        name: &str,
        (offset, size): (u64, Option<u64>),
    ) -> Result<Self> {
        let (name, file) = (name.to_owned(), File::from(descriptor));
        let found = file.metadata().map_err(|error| open_error(&name, error))?;
        if !found.is_file() {
            return Err(Error::NotADevice { device: name });
        }
        let options = FileOptions { offset, size, ..FileOptions::default() };
        let length = FileLength::new(options.window(&name, found.len())?, offset, size.is_none());
        Ok(Self { name, file, start: offset, length, read_only: false })
    }

    /// The open file, to be passed to another process ([`Self::of_descriptor`]).
    #[cfg(unix)]
    #[must_use]
    pub fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    /// Forgets the device without releasing its lock, which ends with the last descriptor of the open file.
    pub fn keep_lock(self) {
        std::mem::forget(self);
    }

    /// Lets others lock the file, before this value goes. Nothing may be written to it afterwards.
    pub fn release_lock(&self) {
        // Where that fails, the lock goes with the file.
        let _ = self.file.unlock();
    }

    fn error(&self, op: Op, offset: u64, len: u64, source: io::Error) -> Error {
        Error::io(op, &self.name, offset, len, source)
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.length.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = to_u64(buf.len());
        check_range(self, Op::Read, offset, len)?;
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let position = self.start.saturating_add(offset).saturating_add(to_u64(done));
            match self.file.read_at(rest, position) {
                // The file was cut short.
                Ok(0) => {
                    let size = offset + to_u64(done);
                    return Err(Error::UnexpectedEnd { device: self.name.clone(), offset, len, size });
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(Op::Read, offset, len, error)),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        check_writable(self, Op::Write)?;
        let len = parts_len(parts);
        check_range(self, Op::Write, offset, len)?;
        let mut position = self.start.saturating_add(offset);
        for part in parts {
            let written = self.file.write_all_at(part, position);
            written.map_err(|error| self.error(Op::Write, offset, len, error))?;
            position = position.saturating_add(to_u64(part.len()));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // On macOS this also empties the disk's cache (F_FULLFSYNC).
        self.file.sync_data().map_err(|error| self.error(Op::Flush, 0, 0, error))
    }

    /// Without holes the range keeps its bytes: a discard is advice.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(self, Op::Discard)?;
        check_range(self, Op::Discard, offset, len)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Grow)?;
        self.length.grow(&self.file, &self.name, size_bytes)
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Shrink)?;
        self.length.shrink(&self.file, &self.name, size_bytes)
    }

    fn host_metadata(&self) -> Result<Option<Metadata>> {
        self.file.metadata().map(Some).map_err(|error| open_error(&self.name, error))
    }

    fn let_go(&self) {
        self.release_lock();
    }
}

fn open_error(name: &str, error: io::Error) -> Error {
    Error::io(Op::Open, name, 0, 0, error)
}

/// Refuses what is no regular file before it is opened: with some devices, and with pipes, opening alone has effects.
fn refuse_other_kinds(path: &Path, name: &str, options: &FileOptions) -> Result<()> {
    let found = if options.no_follow { path.symlink_metadata() } else { path.metadata() };
    match found {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err(Error::NotADevice { device: name.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.create && !options.read_only => Ok(()),
        Err(error) => Err(open_error(name, error)),
    }
}

fn lock(file: &File, name: &str, options: &FileOptions) -> Result<()> {
    let locked = match (options.read_only, options.wait) {
        (true, false) => file.try_lock_shared(),
        (true, true) => file.lock_shared().map_err(TryLockError::Error),
        (false, false) => file.try_lock(),
        (false, true) => file.lock().map_err(TryLockError::Error),
    };
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { device: name.to_owned() }),
        // Some network file systems have no locks. Reading is harmless there.
        Err(TryLockError::Error(error)) if options.read_only && error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(open_error(name, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_read_and_nothing_else_opens_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let options = FileOptions { create: true, size: Some(64 << 10), offset: 4096, ..FileOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        assert_eq!((device.size_bytes(), path.metadata().unwrap().len()), (64 << 10, 68 << 10));
        device.write_at(100, &[b"one", b"", b"two"]).unwrap();
        device.flush().unwrap();
        let mut read = [0; 6];
        device.read_at(100, &mut read).unwrap();
        assert_eq!(&read, b"onetwo");
        assert!(matches!(device.read_at(64 << 10, &mut read), Err(Error::UnexpectedEnd { .. })));
        assert!(matches!(device.write_at(64 << 10, &[b"x"]), Err(Error::OutOfRange { .. })));
        let reading = FileOptions { read_only: true, ..FileOptions::default() };
        assert!(matches!(FileDevice::open(&path, &reading), Err(Error::Locked { .. })));
        drop(device);
        let device = FileDevice::open(&path, &reading).unwrap();
        assert!(FileDevice::open(&path, &reading).is_ok());
        assert!(matches!(device.write_at(0, &[b"x"]), Err(Error::ReadOnly { .. })));
        device.read_at(4196, &mut read).unwrap();
        assert_eq!(&read, b"onetwo");
    }

    #[test]
    fn an_image_grows_and_shrinks_and_directories_are_no_devices() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        let options = FileOptions { create: true, ..FileOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        device.grow(1 << 20).unwrap();
        assert_eq!((device.size_bytes(), path.metadata().unwrap().len()), (1 << 20, 1 << 20));
        device.shrink(4096).unwrap();
        assert_eq!((device.size_bytes(), path.metadata().unwrap().len()), (4096, 4096));
        let opened = FileDevice::open(dir.path(), &FileOptions::default());
        assert!(matches!(opened, Err(Error::NotADevice { .. })), "{opened:?}");
        let fixed = FileOptions { size: Some(4096), ..FileOptions::default() };
        drop(device);
        let device = FileDevice::open(&path, &fixed).unwrap();
        assert!(matches!(device.grow(8192), Err(Error::CannotGrow { .. })));
    }
}
