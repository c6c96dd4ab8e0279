//! Says how to open a file as a device. Both backends of files take it.

use crate::{Error, Op, Result};

/// How to open a file as a device. The default opens all of an existing file for writing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Refuse every change; several readers may then share the file.
    pub read_only: bool,
    /// Byte of the file at which the device begins, for instance a partition's.
    pub offset: u64,
    /// Bytes of the device; `None` is everything up to the end of the file. With `create`, a
    /// shorter regular file is made long enough.
    pub size: Option<u64>,
    /// Make a regular file where there is none.
    pub create: bool,
    /// Refuse a path whose last part is a symbolic link; for paths that an untrusted user chose.
    pub no_follow: bool,
    /// Wait without limit for a lock that another open file holds, instead of failing with [`Error::Locked`].
    pub wait: bool,
    /// Take no lock: for a reader that the program which holds the lock keeps something in place for, and for a block
    /// device whose caller holds the lock. A regular file that is written is locked all the same.
    pub unlocked: bool,
}

impl FileOptions {
    /// Bytes of the device that these options cut out of a file.
    pub(super) fn window(&self, name: &str, file_bytes: u64) -> Result<u64> {
        let outside = || Error::OutOfRange {
            op: Op::Open,
            device: name.to_owned(),
            offset: self.offset,
            len: self.size.unwrap_or(0),
            size: file_bytes,
        };
        let rest = file_bytes.checked_sub(self.offset).ok_or_else(outside)?;
        let size = self.size.unwrap_or(rest);
        if size > rest { Err(outside()) } else { Ok(size) }
    }
}
