//! What an inode says about itself, as values.

use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::FileKind;
use btrfs_disk::{Generation, InodeNo, TreeId};

pub use vfs::file_system::Time as Timestamp;

/// Type bits of a mode (`S_IFMT`).
pub const MODE_TYPE_MASK: u32 = 0o170_000;
/// Permission bits of a mode, with set-user, set-group and sticky.
pub const MODE_PERMISSION_MASK: u32 = 0o7_777;
/// Set-group-ID bit (`S_ISGID`).
pub const MODE_SET_GROUP: u32 = 0o2_000;

/// What kind of file an inode is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    #[default]
    File,
    /// A directory, or the root of a subvolume.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// The kind in the type bits of a mode; `None` for a value that no kind has.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        FileKind::from_mode(mode).map(Into::into)
    }

    /// The type bits of a mode (`S_IFMT`).
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        FileKind::from(self).mode_bits()
    }

    /// True for a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self == Self::Directory
    }

    /// True for a regular file.
    #[must_use]
    pub fn is_file(self) -> bool {
        self == Self::File
    }

    /// True for a symbolic link.
    #[must_use]
    pub fn is_symlink(self) -> bool {
        self == Self::Symlink
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::File => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::CharDevice => Self::CharDevice,
            FileKind::BlockDevice => Self::BlockDevice,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::Symlink => Self::Symlink,
        }
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::File => Self::File,
            FileType::Directory => Self::Directory,
            FileType::CharDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::Symlink => Self::Symlink,
        }
    }
}

/// What `stat` reports, and a little more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
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
    /// True for a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }

    /// True for a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind.is_file()
    }

    /// True for a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind.is_symlink()
    }

    /// Permission bits, with set-user, set-group and sticky.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & MODE_PERMISSION_MASK
    }
}

/// New times for an inode; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the contents.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode; set to the current time when `None`.
    pub ctime: Option<Timestamp>,
    /// Creation.
    pub btime: Option<Timestamp>,
}

/// What to change about an inode; what is `None` stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Times.
    pub times: Times,
    /// Inode flags.
    pub flags: Option<InodeFlags>,
}

/// What a new inode takes over from the flags of its directory.
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
