//! Applies commands that change file contents: writes, encoded writes, allocation and clones. Called by
//! `Target::apply`.

use super::{SECTOR_SIZE, Target, codec_of};
use crate::error::Cause;
use crate::node_ref::{self, NodeRef};
use btrfs_stream::{CloneRange, EncodedWrite};
use codec::compress::{Form, decompress};
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{AllocateFlags, Caller, CopyRange, EncodedData, Errno, Handle, OpenFlags, WriteFlags};

/// Limit on the contents of a compressed extent, in bytes.
const EXTENT_BYTES_MAX: u64 = 128 << 10;

/// A file open for writing. Dropping it closes it.
pub(super) struct OpenFile {
    fs: Arc<dyn FileSystem>,
    path: Vec<u8>,
    file: Arc<NodeRef>,
    handle: Handle,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.fs.release(self.file.node(), self.handle);
    }
}

impl Target {
    /// Opens a file for writing, unless it is already the open file.
    fn open(&mut self, path: &[u8]) -> Result<&OpenFile, Cause> {
        if self.open.as_ref().is_none_or(|open| open.path != path) {
            let file = self.find(path)?;
            let flags = OpenFlags::WRITE | OpenFlags::NO_ATIME;
            let handle = self.fs.open(&Caller::default(), file.node(), flags)?;
            self.open = Some(OpenFile { fs: Arc::clone(&self.fs), path: path.to_vec(), file, handle });
        }
        self.open.as_ref().ok_or_else(|| vfs::Error::from(Errno::EBADF).into())
    }

    pub(super) fn write(&mut self, path: &[u8], offset: u64, data: &[u8]) -> Result<(), Cause> {
        let OpenFile { fs, file, handle, .. } = self.open(path)?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let missing = fs.write(file.node(), *handle, at, rest, WriteFlags::empty())?.missing;
            let done = rest.len().saturating_sub(missing);
            if done == 0 {
                return Err(vfs::Error::from(Errno::EIO).into());
            }
            at = at.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            rest = rest.get(done..).unwrap_or_default();
        }
        Ok(())
    }

    /// Decompresses an extent of the sender and writes the part that the file uses.
    pub(super) fn write_encoded(&mut self, write: &EncodedWrite<'_>) -> Result<(), Cause> {
        let too_long = |what, found: u64| Cause::Length { what, expected: EXTENT_BYTES_MAX, found };
        let len = write.unencoded_len;
        if len > EXTENT_BYTES_MAX {
            return Err(too_long("the extent of an encoded write", len));
        }
        let end = write.unencoded_offset.checked_add(write.unencoded_file_len).filter(|end| *end <= len);
        let (Some(end), Ok(len)) = (end, usize::try_from(len)) else {
            let (expected, found) = (len, write.unencoded_file_len);
            return Err(Cause::Length { what: "the contents of an encoded write", expected, found });
        };
        let decompressed;
        let contents = match codec_of(write.compression) {
            None => write.data,
            Some((codec, sector_size)) => {
                decompressed = decompress(codec, write.data, Form::regular(sector_size), len)?;
                &decompressed
            }
        };
        let range = usize::try_from(write.unencoded_offset).ok().zip(usize::try_from(end).ok());
        let contents_len = u64::try_from(contents.len()).unwrap_or(u64::MAX);
        let part = range.and_then(|(start, end)| contents.get(start..end)).ok_or(Cause::Length {
            what: "the data of an encoded write",
            expected: end,
            found: contents_len,
        })?;
        // Only now is it known that the data decodes.
        let may_keep = !self.options.force_decompress && !part.is_empty();
        if may_keep && self.put_encoded(write)? {
            return Ok(());
        }
        self.write(write.path, write.offset, part)
    }

    /// Writes a compressed extent unchanged; false if it must be decompressed.
    fn put_encoded(&mut self, write: &EncodedWrite<'_>) -> Result<bool, Cause> {
        let Some((codec, _)) = codec_of(write.compression).filter(|(_, sector)| *sector == SECTOR_SIZE) else {
            return Ok(false);
        };
        let file = self.find(write.path)?;
        let encoded = EncodedData {
            offset: write.offset,
            len: write.unencoded_file_len,
            extent_len: write.unencoded_len,
            extent_offset: write.unencoded_offset,
            compression: codec.name(),
            data: write.data,
        };
        Ok(self.fs.write_encoded(file.node(), &encoded)?)
    }

    pub(super) fn allocate(&mut self, path: &[u8], mode: u32, offset: u64, len: u64) -> Result<(), Cause> {
        let unknown = Cause::Value { what: "the mode of fallocate", found: mode.into() };
        let flags = AllocateFlags::from_bits(mode).ok_or(unknown)?;
        let file = self.find(path)?;
        Ok(self.fs.allocate(file.node(), flags, offset, len)?)
    }

    /// Clones data of the file at `range.from_path` below `origin`, the root of a subvolume.
    pub(crate) fn share(&mut self, range: &CloneRange<'_>, origin: &Arc<NodeRef>) -> Result<(), Cause> {
        if range.len == 0 {
            return Err(Cause::Value { what: "the length of a clone", found: 0 });
        }
        let source = node_ref::walk(origin, range.from_path)?;
        let target = self.find(range.path)?;
        let copy = CopyRange {
            source: source.node(),
            source_offset: range.from_offset,
            target: target.node(),
            target_offset: range.offset,
            len: range.len,
        };
        match self.fs.reflink(&copy) {
            // Ranges that cannot be shared, for instance with a NOCOW file, are copied.
            Err(error) if [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&error.errno()) => self.copy(copy),
            result => Ok(result?),
        }
    }

    fn copy(&self, mut range: CopyRange) -> Result<(), Cause> {
        while range.len > 0 {
            let copied = self.fs.copy_range(&range)?.min(range.len);
            if copied == 0 {
                return Err(Cause::Length { what: "the source of a clone", expected: range.len, found: 0 });
            }
            range.source_offset = range.source_offset.saturating_add(copied);
            range.target_offset = range.target_offset.saturating_add(copied);
            range.len -= copied;
        }
        Ok(())
    }
}
