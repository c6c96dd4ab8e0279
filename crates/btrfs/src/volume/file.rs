//! Open files.

use std::io;
use std::path::Path;

use super::{Volume, skeleton};
use crate::error::Result;
use crate::inode::Metadata;

/// How to open a file; mirrors `std::fs::OpenOptions`.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "mirrors std::fs::OpenOptions")]
pub struct FileOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

/// An open file. Reads and writes at positions may come from many threads at once.
#[derive(Debug)]
pub struct File {}

/// What `File::allocate` does with the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space; the file grows when the range ends behind its end.
    Allocate,
    /// Reserves space; the size stays.
    KeepSize,
    /// Makes a hole.
    PunchHole,
    /// Makes the range zeros, without a hole.
    ZeroRange,
}

/// One extent of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentInfo {
    /// Byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl FileOptions {
    /// No access, until asked for.
    #[must_use]
    pub fn new() -> Self {
        Self { mode: 0o644, ..Self::default() }
    }
    /// Opens.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        let _ = (volume, path);
        skeleton()
    }
}

macro_rules! option {
    ($($(#[$doc:meta])* $name:ident: $ty:ty;)*) => {
        impl FileOptions {
            $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $ty) -> Self {
                self.$name = $name;
                self
            })*
        }
    };
}

option! {
    /// For reading.
    read: bool;
    /// For writing.
    write: bool;
    /// Every write goes to the end.
    append: bool;
    /// Empties the file.
    truncate: bool;
    /// Creates the file if it is absent.
    create: bool;
    /// Fails if the file exists.
    create_new: bool;
    /// Permission bits of a new file.
    mode: u32;
}

impl File {
    /// Reads at a position; short only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let _ = (buffer, offset);
        skeleton()
    }
    /// Writes all of `data` at a position.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let _ = (data, offset);
        skeleton()
    }
    /// Cuts or extends the file.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let _ = len;
        skeleton()
    }
    /// Reserves space, or makes holes or zeros.
    pub fn allocate(&self, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let _ = (mode, offset, len);
        skeleton()
    }
    /// First byte of data at or after `offset`.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        let _ = offset;
        skeleton()
    }
    /// First byte of a hole at or after `offset`; the end of the file counts as one.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        let _ = offset;
        skeleton()
    }
    /// The file's extents.
    pub fn extents(&self) -> Result<Vec<ExtentInfo>> {
        skeleton()
    }
    /// Shares extents of `source`.
    pub fn reflink(&self, source: &File, source_offset: u64, offset: u64, len: u64) -> Result<()> {
        let _ = (source, source_offset, offset, len);
        skeleton()
    }
    /// Metadata.
    pub fn metadata(&self) -> Result<Metadata> {
        skeleton()
    }
    /// Data and metadata are durable after it.
    pub fn sync_all(&self) -> Result<()> {
        skeleton()
    }
    /// Data is durable after it.
    pub fn sync_data(&self) -> Result<()> {
        skeleton()
    }
}

impl io::Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.read_at(buffer, 0)?)
    }
}
impl io::Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_at(data, 0)?;
        Ok(data.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
impl io::Seek for File {
    fn seek(&mut self, _: io::SeekFrom) -> io::Result<u64> {
        Ok(skeleton::<u64>()?)
    }
}
