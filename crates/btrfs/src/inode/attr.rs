//! Defines the attributes of an inode as values. Used by creation, `setattr` and `stat`.

use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::FileKind;
use btrfs_disk::{Generation, InodeNo, TreeId};

pub(crate) use vfs::file_system::{NodeKind as FileType, Time as Timestamp};

/// Type bits of a mode (`S_IFMT`).
pub(crate) const MODE_TYPE_MASK: u32 = 0o170_000;
/// Permission bits of a mode, with set-user, set-group and sticky.
pub(crate) const MODE_PERMISSION_MASK: u32 = 0o7_777;
/// Set-group-ID bit (`S_ISGID`).
pub(crate) const MODE_SET_GROUP: u32 = 0o2_000;

/// The kind that an item names.
pub(crate) const fn kind_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::File,
        FileKind::Directory => FileType::Directory,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::Symlink => FileType::Symlink,
    }
}

/// How items name a kind.
pub(crate) const fn kind_on_disk(kind: FileType) -> FileKind {
    match kind {
        FileType::File => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::CharDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::Symlink => FileKind::Symlink,
    }
}

/// The attributes that `stat` reports, and some more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// Inode number within the subvolume.
    pub ino: InodeNo,
    /// The subvolume's tree.
    pub tree: TreeId,
    /// Kind of file.
    pub kind: FileType,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Count of names; 1 for a directory.
    pub nlink: u32,
    /// Size in bytes; for a directory twice the length of all its names.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation (birth).
    pub btime: Timestamp,
    /// Device number of a device node, as `stat` encodes it.
    pub rdev: u64,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Transaction that created the inode.
    pub generation: Generation,
}

impl Metadata {
    /// Permission bits, with set-user, set-group and sticky.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & MODE_PERMISSION_MASK
    }
}

/// Times of a new inode; `None` stands for the time of its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NewTimes {
    /// Last access.
    pub(crate) atime: Option<Timestamp>,
    /// Last change of the contents.
    pub(crate) mtime: Option<Timestamp>,
    /// Last change of the inode.
    pub(crate) ctime: Option<Timestamp>,
    /// Creation.
    pub(crate) btime: Option<Timestamp>,
}

/// The flags that a new inode inherits from its directory.
#[must_use]
pub(crate) fn inherited_flags(dir: InodeFlags, kind: FileType) -> InodeFlags {
    let mut flags =
        if dir.contains(InodeFlags::NOCOMPRESS) { InodeFlags::NOCOMPRESS } else { dir & InodeFlags::COMPRESS };
    if dir.contains(InodeFlags::NODATACOW) {
        flags |= InodeFlags::NODATACOW;
        if kind.is_file() {
            flags |= InodeFlags::NODATASUM;
        }
    }
    flags
}
