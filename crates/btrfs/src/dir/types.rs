//! The values that directory operations take and return.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use btrfs_disk::{InodeNo, TreeId};

pub use vfs::file_system::XattrMode;

use crate::inode::{FileType, InodeFlags, Times};

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    pub(crate) name: OsString,
    pub(crate) ino: InodeNo,
    pub(crate) tree: TreeId,
    pub(crate) kind: FileType,
    pub(crate) index: u64,
}

impl DirEntry {
    /// The name, without any path.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The name's bytes.
    #[must_use]
    pub fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// Inode number, within the tree named by [`DirEntry::tree`].
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.ino
    }

    /// Subvolume of the inode: another one than the directory's for the root of a subvolume.
    #[must_use]
    pub fn tree(&self) -> TreeId {
        self.tree
    }

    /// Kind of the file, as the directory says it.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.kind
    }

    /// Position in the directory: names come in ascending order of it, and it never changes.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }
}

/// How a rename treats an existing target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replaces the target, as `rename(2)`.
    #[default]
    Replace,
    /// Fails when the target exists.
    NoReplace,
    /// Swaps the two names; both must exist.
    Exchange,
    /// Replaces the target, and leaves a whiteout (character device 0:0, mode 0) behind.
    Whiteout,
    /// Fails when the target exists, and leaves a whiteout behind.
    NoReplaceWhiteout,
}

impl RenameFlags {
    /// True when a whiteout takes the place of what moved.
    #[must_use]
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::NoReplaceWhiteout)
    }
}

/// What kind of special file to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// An empty regular file.
    File,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl From<NodeKind> for FileType {
    fn from(kind: NodeKind) -> Self {
        match kind {
            NodeKind::File => Self::File,
            NodeKind::Fifo => Self::Fifo,
            NodeKind::Socket => Self::Socket,
            NodeKind::CharDevice => Self::CharDevice,
            NodeKind::BlockDevice => Self::BlockDevice,
        }
    }
}

/// A new inode with all that is known about it, for [`crate::Volume::create_node`].
#[derive(Debug, Clone, Default)]
pub struct NewNode<'a> {
    /// Kind of file; not a subvolume.
    pub kind: FileType,
    /// Permission bits, with set-user, set-group and sticky; taken as they are.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Times; those absent are the time of creation.
    pub times: Times,
    /// Device number of a device node, as `stat` encodes it.
    pub rdev: u64,
    /// Inode flags beside those inherited from the directory.
    pub flags: InodeFlags,
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// Extended attributes: names and values.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
    /// Contents of a small regular file: stored inside the leaf when it fits there, and
    /// written like any other data when it does not.
    pub data: &'a [u8],
}
