//! Defines the values that cross the border between a server and a file system: node numbers, attributes, flags,
//! requests. Every format and every server uses them.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// A file, directory or other node, for as long as the server refers to it.
///
/// The file system chooses the numbers. [`NodeId::ROOT`] is the root directory; 0 is never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory of the mount.
    pub const ROOT: Self = Self(1);
}

/// A value that the file system gets back whenever an open file is used; it may be 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Handle(pub u64);

/// The user, group and process that a request comes from. A server that does not know them gives [`Caller::UNKNOWN`]
/// for user and group; a check that depends on them refuses that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caller {
    /// User (file-system uid).
    pub uid: u32,
    /// Group (file-system gid).
    pub gid: u32,
    /// Process; 0 when unknown.
    pub pid: u32,
}

impl Caller {
    /// Stands for a user or group that is not known. No user has this number, though an image may have files of it.
    pub const UNKNOWN: u32 = u32::MAX;

    /// True for a caller of whom user and group are known.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.uid != Self::UNKNOWN && self.gid != Self::UNKNOWN
    }
}

/// Kind of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeKind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
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

impl NodeKind {
    /// Type bits of a mode (`S_IFMT`).
    pub const MODE_MASK: u32 = 0o170_000;

    /// The type bits of a mode that stand for this kind.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The kind in the type bits of a mode; `None` for a value that no kind has.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & Self::MODE_MASK {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::File,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// True for a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// True for a regular file.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::File)
    }

    /// True for a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// The `d_type` of a directory entry (`DT_*`).
    #[must_use]
    pub const fn dirent_type(self) -> u32 {
        self.mode_bits() >> 12
    }
}

/// Seconds since 1970-01-01 UTC, and nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl Time {
    /// A time from its two parts.
    #[must_use]
    pub const fn new(sec: i64, nsec: u32) -> Self {
        Self { sec, nsec }
    }
}

/// Where a format keeps a node, for callers that need more than `stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Home {
    /// Number of the subvolume; 0 where the format has none.
    pub subvolume: u64,
    /// Number of the node within it.
    pub ino: u64,
    /// When the node was made, in the format's own counting; 0 where it does not count.
    pub generation: u64,
}

/// Attributes of a node, as `stat` reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Number shown as `st_ino`: one of its own for every node of the mount.
    pub ino: u64,
    /// Kind of file.
    pub kind: NodeKind,
    /// Permission bits with set-user, set-group and sticky; no type bits.
    pub permissions: u32,
    /// Count of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `stat` encodes it in 32 bits.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of I/O in bytes.
    pub block_bytes: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the node.
    pub ctime: Time,
    /// Creation (birth).
    pub btime: Time,
    /// Restrictions by the node's flags, for `statx`.
    pub flags: NodeFlags,
    /// Where the format keeps it.
    pub home: Home,
}

impl Attr {
    /// True for a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.kind.is_dir()
    }

    /// True for a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.kind.is_file()
    }

    /// True for a symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.kind.is_symlink()
    }

    /// Type and permission bits.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }
}

/// A node that a name led to. The server owes one [`super::FileSystem::forget`] for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The node.
    pub node: NodeId,
    /// Tells apart nodes that had the same number one after the other; 0 for [`NodeId::ROOT`].
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// A node that a path led to, for a request that follows at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAt {
    /// The node.
    pub node: NodeId,
    /// Its kind.
    pub kind: NodeKind,
    /// Whether it counts as a reference, which the caller then gives back. Without one the node may be removed before
    /// the next request, which fails with `ESTALE` then.
    pub is_referenced: bool,
}

bitflags! {
    /// Flags of a node, with the numbers of `FS_IOC_GETFLAGS` (linux/fs.h). Flags without a name
    /// here are kept.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub struct NodeFlags: u32 {
        /// Written through at once (`S`).
        const SYNC = 0x8;
        /// Contents and names cannot change (`i`).
        const IMMUTABLE = 0x10;
        /// Can only grow (`a`).
        const APPEND = 0x20;
        /// Not dumped (`d`).
        const NODUMP = 0x40;
        /// Access times are not kept (`A`).
        const NOATIME = 0x80;
        /// Compressed (`c`).
        const COMPRESS = 0x4;
        /// Not compressed (`m`).
        const NOCOMPRESS = 0x400;
        /// A directory written through at once (`D`).
        const DIRSYNC = 0x1_0000;
        /// Data is overwritten in place (`C`).
        const NOCOW = 0x80_0000;
        const _ = !0;
    }

    /// How a file was opened.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Every write goes to the end.
        const APPEND = 4;
        /// Emptied.
        const TRUNCATE = 8;
        /// Every write is durable when it returns, with all metadata.
        const SYNC = 16;
        /// Every write is durable when it returns.
        const DATA_SYNC = 32;
        /// Without the page cache of the kernel.
        const DIRECT = 64;
        /// Fails where something of the name exists (creation only).
        const EXCLUSIVE = 128;
        /// Access times are left alone.
        const NO_ATIME = 256;
        /// Set-user and set-group bits go with the contents (with `TRUNCATE`).
        const CLEAR_PRIVILEGES = 512;
    }

    /// How a write is to be done.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct WriteFlags: u32 {
        /// Where the file ends by then; the offset says nothing.
        const APPEND = 1;
        /// Set-user and set-group bits go with it.
        const CLEAR_PRIVILEGES = 2;
        /// From the kernel's page cache: it is not known which process wrote the bytes, and it did so some time ago.
        const FROM_CACHE = 4;
        /// Durable when the call returns.
        const DATA_SYNC = 8;
        /// Without the page cache of the kernel.
        const DIRECT = 16;
        /// With `FROM_CACHE`: stored into a shared mapping, not written by `write(2)`.
        const FROM_MAPPING = 32;
        /// With `CLEAR_PRIVILEGES`: the writer is in the node's group, so set-group without group execution stays.
        const BY_MEMBER = 64;
    }

    /// How space is allocated; the modes of `fallocate(2)` that exist here.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AllocateFlags: u32 {
        /// The size stays (`FALLOC_FL_KEEP_SIZE`).
        const KEEP_SIZE = 1;
        /// The range becomes a hole (`FALLOC_FL_PUNCH_HOLE`).
        const PUNCH_HOLE = 2;
        /// The range becomes zeros, allocated (`FALLOC_FL_ZERO_RANGE`).
        const ZERO_RANGE = 16;
    }

    /// How a rename treats the target (`renameat2(2)`).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RenameFlags: u32 {
        /// Fails when the target exists.
        const NO_REPLACE = 1;
        /// Swaps the two.
        const EXCHANGE = 2;
        /// Leaves a whiteout (character device 0:0) where the name was.
        const WHITEOUT = 4;
    }
}

/// Effects of a write that its caller cannot know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Bytes at the end of the data that were not written, for instance for lack of space: fewer than all of them.
    /// Writing them again gives the error. Always 0 for writes from the kernel's cache.
    pub missing: usize,
    /// The write cleared set-user or set-group bits, or `security.capability`: the client's cached attributes are
    /// invalid.
    pub cleared_privileges: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    To(Time),
}

/// Changes of a node; `None` leaves a field as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of the node; the time of the call when `None`.
    pub ctime: Option<Time>,
    /// Creation.
    pub btime: Option<Time>,
    /// Clear set-user and set-group bits: the caller who changes owner or size may not keep them.
    pub clear_privileges: bool,
    /// The handle the change comes through, if any.
    pub handle: Option<Handle>,
}

impl SetAttr {
    /// True for `truncate(2)`, which changes times only where it changes the size. `ftruncate` and `O_TRUNC`, which
    /// always do, say so.
    #[must_use]
    pub fn is_size_alone(&self) -> bool {
        let size_alone =
            Self { size: self.size, clear_privileges: self.clear_privileges, handle: self.handle, ..Self::default() };
        self.size.is_some() && *self == size_alone
    }
}

/// A node to make.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct NewNode<'a> {
    /// Kind of file.
    pub kind: NodeKind,
    /// Permission bits as the caller asked for them, before the mask.
    pub permissions: u32,
    /// The caller's file mode creation mask. A default ACL of the directory takes its place.
    pub umask: u32,
    /// Device number of a device node, as `stat` encodes it in 32 bits.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

/// A new node with all that is known about it.
#[derive(Debug, Clone, Copy, Default)]
pub struct WholeNode<'a> {
    /// Kind of file.
    pub kind: NodeKind,
    /// Permission bits, with set-user, set-group and sticky; taken as they are.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; the time of creation when `None`, as all of them.
    pub atime: Option<Time>,
    /// Last change of the contents.
    pub mtime: Option<Time>,
    /// Last change of the node.
    pub ctime: Option<Time>,
    /// Creation.
    pub btime: Option<Time>,
    /// Device number of a device node, as `stat` encodes it in 32 bits.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
    /// Extended attributes: names and values.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
    /// Contents of a regular file.
    pub data: &'a [u8],
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Follow {
    /// Go where it leads.
    Last,
    /// Stop at it.
    AllButLast,
}

/// How an extent keeps its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExtentKind {
    /// Among the metadata.
    Inline,
    /// On disk.
    Data,
    /// Reserved on disk; reads as zeros.
    Preallocated,
}

/// One extent of a file. Holes are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub len: u64,
    /// How it keeps them.
    pub kind: ExtentKind,
    /// Address of the first byte within the volume (of the first compressed byte, if it is compressed); `None` for
    /// inline data.
    pub logical: Option<u64>,
    /// Bytes of the whole extent on disk; 0 for inline data.
    pub disk_len: u64,
    /// Name of the compression; `None` for none.
    pub compression: Option<&'static str>,
}

/// Whether an attribute may, or must, exist already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Creates or replaces.
    #[default]
    Either,
    /// Fails when the attribute exists.
    Create,
    /// Fails when the attribute does not exist.
    Replace,
}

/// A sync that was begun and not ended ([`begin_sync`](super::FileSystem::begin_sync)); the file system chooses the
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing is durable before it is ended"]
pub struct SyncTicket(pub [u64; 2]);

/// Bytes of a file as they are compressed on the disk of another volume. The caller has decompressed them, and knows
/// that this works.
#[derive(Debug, Clone, Copy)]
pub struct EncodedData<'a> {
    /// Where they go in the file, in bytes.
    pub offset: u64,
    /// Bytes that the file gets.
    pub len: u64,
    /// Bytes of the whole extent when it is decompressed.
    pub extent_len: u64,
    /// Where in these the bytes of the file begin.
    pub extent_offset: u64,
    /// Name of the compression.
    pub compression: &'a str,
    /// The extent.
    pub data: &'a [u8],
}

/// The part of a file to make durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncWhat {
    /// Contents, and the metadata needed to read them back (`fdatasync`).
    Data,
    /// Everything (`fsync`).
    All,
}

/// The target of `lseek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// One name of a directory listing.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// `st_ino` of the node.
    pub ino: u64,
    /// Kind of file.
    pub kind: NodeKind,
    /// Where a later listing goes on behind this name. Never changes while the name is there.
    pub next: u64,
}

/// Takes the names of a directory listing.
pub trait DirSink {
    /// Takes a name; false when there is no room for it, and then the listing ends.
    fn add(&mut self, entry: &DirEntry<'_>) -> bool;

    /// Takes a name with the node it leads to; false when there is no room for it. `.` and `..`
    /// come without a node.
    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool;
}

/// Numbers that `statfs` reports, and `df` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Unit of the block counts, in bytes.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub blocks_free: u64,
    /// Blocks that an unprivileged user may use.
    pub blocks_available: u64,
    /// Nodes in all; 0 where there is no limit.
    pub nodes: u64,
    /// Nodes that are free.
    pub nodes_free: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

/// An extent to copy from one file to another, or within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRange {
    /// File to copy from.
    pub source: NodeId,
    /// Offset in it, in bytes.
    pub source_offset: u64,
    /// File to copy to.
    pub target: NodeId,
    /// Offset in it, in bytes.
    pub target_offset: u64,
    /// Bytes to copy at most.
    pub len: u64,
}
