//! Which file or block device of the host a name leads to.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

/// Device and inode number of a file of the host. Compare with [`Identity::is_same`]: `==` takes two device nodes of
/// one block device for different ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// The device that the file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// The number of the block device that it is; 0 for any other file.
    pub number: u64,
}

impl Identity {
    /// The identity of the file that the host describes so.
    #[must_use]
    pub fn of(found: &Metadata) -> Self {
        let number = if found.file_type().is_block_device() { found.rdev() } else { 0 };
        Self { device: found.dev(), inode: found.ino(), number }
    }

    /// True for two names of one file, or of one block device.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (0, 0) => (self.device, self.inode) == (other.device, other.inode),
            (one, other) => one == other,
        }
    }
}
