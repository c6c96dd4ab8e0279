//! The fields of an inode item as values, and back to its bytes.

use btrfs_disk::items::{InodeItem, Timespec};
use btrfs_disk::{Generation, InodeNo, TreeId};

use super::{FileType, InodeFlags, MODE_TYPE_MASK, Metadata, Timestamp};

/// The fields of an inode item, as they will be at the next commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeState {
    /// Transaction that created the inode.
    pub generation: Generation,
    /// Last transaction that changed the inode.
    pub transid: Generation,
    /// Size in bytes as readers see it; may be ahead of `disk_size` while data is not written.
    pub size: u64,
    /// Size in bytes that the extents in the tree cover: what the item says.
    pub disk_size: u64,
    /// Bytes in extents, holes not counted.
    pub nbytes: u64,
    /// Hint for allocation, kept as read.
    pub block_group: u64,
    /// Count of names; 0 for one that is about to go.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Device number, as the kernel packs it on disk.
    pub rdev: u64,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Counts changes, for NFS.
    pub sequence: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Creation.
    pub otime: Timestamp,
    pub(crate) reserved: [u64; 4],
}
