//! Defines INODE_ITEM: the attributes of stat() and others. Key: (inode number, INODE_ITEM, 0). `inode::item` of
//! `btrfs` reads and writes it; check, rescue and repair use it too.

use std::fmt;

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::flags::InodeFlags;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Timespec {
    /// Seconds since 1970.
    pub sec: I64,
    /// Nanoseconds, below 10^9.
    pub nsec: U32,
}
const _: () = assert!(size_of::<Timespec>() == 12);

impl Timespec {
    /// A time from its parts.
    #[must_use]
    pub fn new(sec: i64, nsec: u32) -> Self {
        Self { sec: I64::new(sec), nsec: U32::new(nsec) }
    }
}

impl fmt::Display for Timespec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec.get())
    }
}

/// An inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InodeItem {
    /// Transaction that made the inode.
    pub generation: U64,
    /// Transaction that changed it last.
    pub transid: U64,
    /// Size in bytes; of a directory, twice the bytes of its names.
    pub size: U64,
    /// Bytes of extents, before compression and without holes.
    pub nbytes: U64,
    /// A hint for allocation; unused: 0.
    pub block_group: U64,
    /// Names of the inode; 1 for a directory, 0 for an orphan.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Type and permissions, as in stat().
    pub mode: U32,
    /// Device number of a device node, as the kernel encodes it for user space (`u64` form of
    /// `new_encode_dev`: minor in the low 20 bits).
    pub rdev: U64,
    /// [`InodeFlags`].
    pub flags: U64,
    /// Counts changes.
    pub sequence: U64,
    /// Zeros.
    pub reserved: [U64; 4],
    /// Last access.
    pub atime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Last change of the content.
    pub mtime: Timespec,
    /// Creation.
    pub otime: Timespec,
}
const _: () = assert!(size_of::<InodeItem>() == 160);

impl InodeItem {
    /// The flags as a set.
    #[must_use]
    pub fn inode_flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }

    /// The type of the inode; `None` for an invalid mode.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.get())
    }
}

impl OnDisk for InodeItem {
    const NAME: &'static str = "inode item size";
}

impl fmt::Display for InodeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inode generation {} transid {} size {} nbytes {} nlink {} uid {} gid {} mode {:o} \
             rdev {} flags {} sequence {} atime {} ctime {} mtime {} otime {}",
            self.generation,
            self.transid,
            self.size,
            self.nbytes,
            self.nlink,
            self.uid,
            self.gid,
            self.mode.get(),
            self.rdev,
            self.inode_flags(),
            self.sequence,
            self.atime,
            self.ctime,
            self.mtime,
            self.otime
        )
    }
}

/// Bits of an inode's mode.
pub mod mode {
    /// The bits of the file type.
    pub const S_IFMT: u32 = 0o170_000;
    /// A socket.
    pub const S_IFSOCK: u32 = 0o140_000;
    /// A symbolic link.
    pub const S_IFLNK: u32 = 0o120_000;
    /// A regular file.
    pub const S_IFREG: u32 = 0o100_000;
    /// A block device.
    pub const S_IFBLK: u32 = 0o060_000;
    /// A directory.
    pub const S_IFDIR: u32 = 0o040_000;
    /// A character device.
    pub const S_IFCHR: u32 = 0o020_000;
    /// A named pipe.
    pub const S_IFIFO: u32 = 0o010_000;
    /// Set-user, set-group, sticky and the nine permission bits.
    pub const PERMISSIONS: u32 = 0o7777;
}

/// The type of an inode; the numbers are those of a directory entry's `dir_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileKind {
    /// The type in a mode.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & mode::S_IFMT {
            mode::S_IFREG => Self::File,
            mode::S_IFDIR => Self::Directory,
            mode::S_IFCHR => Self::CharDevice,
            mode::S_IFBLK => Self::BlockDevice,
            mode::S_IFIFO => Self::Fifo,
            mode::S_IFSOCK => Self::Socket,
            mode::S_IFLNK => Self::Symlink,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::File => mode::S_IFREG,
            Self::Directory => mode::S_IFDIR,
            Self::CharDevice => mode::S_IFCHR,
            Self::BlockDevice => mode::S_IFBLK,
            Self::Fifo => mode::S_IFIFO,
            Self::Socket => mode::S_IFSOCK,
            Self::Symlink => mode::S_IFLNK,
        }
    }

    /// The type in a directory entry.
    #[must_use]
    pub const fn from_dir_type(dir_type: u8) -> Option<Self> {
        Some(match dir_type {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// The number for a directory entry.
    #[must_use]
    pub const fn dir_type(self) -> u8 {
        match self {
            Self::File => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Symlink => "symlink",
        })
    }
}

/// Bits of the minor number on disk; the major number is above them.
const DISK_MINOR_BITS: u32 = 20;

/// Converts the device number of an inode item, which is the kernel's internal `dev_t`, to that of `stat`, which splits
/// both numbers.
#[must_use]
pub fn rdev_from_disk(disk: u64) -> u64 {
    let (major, minor) = (disk >> DISK_MINOR_BITS, disk & ((1 << DISK_MINOR_BITS) - 1));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32)
}

/// Converts a device number of `stat` to that of an inode item.
#[must_use]
pub fn rdev_to_disk(rdev: u64) -> u64 {
    let major = ((rdev >> 8) & 0xfff) | ((rdev >> 32) & !0xfff);
    let minor = (rdev & 0xff) | ((rdev >> 12) & 0xff_ff00);
    (major << DISK_MINOR_BITS) | (minor & ((1 << DISK_MINOR_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_translate() {
        assert_eq!(rdev_from_disk((8 << 20) | 1), 0x801);
        for disk in [(259 << 20) | 70_000, (4095 << 20) | 255, 3] {
            assert_eq!(rdev_to_disk(rdev_from_disk(disk)), disk);
        }
    }
}
