//! Defines the flags and feature bits of f2fs, with the kernel's names. Used by all f2fs crates.

use bitflags::bitflags;

bitflags! {
    /// Features of a volume (`F2FS_FEATURE_*`), in the superblock.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// Files may be encrypted.
        const ENCRYPT = 0x1;
        /// The device has zones that are written from their start on.
        const BLKZONED = 0x2;
        /// Atomic writes.
        const ATOMIC_WRITE = 0x4;
        /// Inodes may have extra attributes.
        const EXTRA_ATTR = 0x8;
        /// Inodes have project numbers.
        const PRJQUOTA = 0x10;
        /// Inodes have checksums.
        const INODE_CHKSUM = 0x20;
        /// Inodes say how large their inline attributes are.
        const FLEXIBLE_INLINE_XATTR = 0x40;
        /// Quotas are in inodes that have no names.
        const QUOTA_INO = 0x80;
        /// Inodes have a time of creation.
        const INODE_CRTIME = 0x100;
        /// There is a directory `lost+found`.
        const LOST_FOUND = 0x200;
        /// Files may be protected by fs-verity.
        const VERITY = 0x400;
        /// The superblock has a checksum.
        const SB_CHKSUM = 0x800;
        /// Directories may ignore the case of names.
        const CASEFOLD = 0x1000;
        /// Files may be compressed.
        const COMPRESSION = 0x2000;
        /// The volume is never written.
        const RO = 0x4000;
        /// Files may stand for devices.
        const DEVICE_ALIAS = 0x8000;
        const _ = !0;
    }

    /// Flags of a checkpoint (`CP_*_FLAG`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CheckpointFlags: u32 {
        /// Written by an unmount.
        const UMOUNT = 0x1;
        /// There are orphans.
        const ORPHAN_PRESENT = 0x2;
        /// The summaries of data segments are packed.
        const COMPACT_SUM = 0x4;
        /// The kernel met an error.
        const ERROR = 0x8;
        /// `fsck` is needed.
        const FSCK = 0x10;
        /// The checkpoint has the summaries of node segments, although no unmount wrote it.
        const FASTBOOT = 0x20;
        /// Nodes carry the checksum of their checkpoint with its version.
        const CRC_RECOVERY = 0x40;
        /// The end of the pack's segment records which NAT blocks are full, and which are empty.
        const NAT_BITS = 0x80;
        /// All free blocks were discarded.
        const TRIMMED = 0x100;
        /// Nodes carry only the low half of their checkpoint's version, without its checksum: `fsck` wrote it.
        const NOCRC_RECOVERY = 0x200;
        /// The version bitmaps lie behind the checksum.
        const LARGE_NAT_BITMAP = 0x400;
        /// The quota files have to be checked.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpointing was off.
        const DISABLED = 0x1000;
        /// Checkpointing was off, and was switched off quickly.
        const DISABLED_QUICK = 0x2000;
        /// The volume was being resized.
        const RESIZEFS = 0x4000;
        const _ = !0;
    }

    /// The parts that an inode stores within its own block, and other flags (`i_inline`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InlineFlags: u8 {
        /// Extended attributes.
        const XATTR = 0x1;
        /// Contents.
        const DATA = 0x2;
        /// Names of a directory.
        const DENTRY = 0x4;
        /// The contents were written.
        const DATA_EXIST = 0x8;
        /// A directory without `.` and `..`.
        const DOTS = 0x10;
        /// There are extra attributes.
        const EXTRA_ATTR = 0x20;
        /// The file's blocks stay where they are.
        const PIN_FILE = 0x40;
        /// The blocks that compression saved were given back.
        const COMPRESS_RELEASED = 0x80;
    }

    /// Hints of an inode (`i_advise`, `FADVISE_*_BIT`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Advise: u8 {
        /// Rarely changed.
        const COLD = 0x1;
        /// The number of the parent is wrong.
        const LOST_PINO = 0x2;
        /// The contents, or the names in it, are encrypted.
        const ENCRYPT = 0x4;
        /// The name of the file is encrypted.
        const ENC_NAME = 0x8;
        /// Blocks behind the end do not make the file longer.
        const KEEP_SIZE = 0x10;
        /// Often changed.
        const HOT = 0x20;
        /// Protected by fs-verity.
        const VERITY = 0x40;
        /// Being truncated.
        const TRUNC = 0x80;
    }

    /// Flags of an inode (`i_flags`, `F2FS_*_FL`), with the numbers of `FS_IOC_GETFLAGS`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Compressed.
        const COMPR = 0x4;
        /// Written through at once.
        const SYNC = 0x8;
        /// Cannot change.
        const IMMUTABLE = 0x10;
        /// Can only grow.
        const APPEND = 0x20;
        /// Not dumped.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Never compressed.
        const NOCOMP = 0x400;
        /// A hashed directory.
        const INDEX = 0x1000;
        /// A directory written through at once.
        const DIRSYNC = 0x1_0000;
        /// New files of the directory have its project number.
        const PROJINHERIT = 0x2000_0000;
        /// A directory that ignores the case of names.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// The features and their names in `mkfs.f2fs -O`.
const NAMES: &[(Features, &str)] = &[
    (Features::ENCRYPT, "encrypt"),
    (Features::BLKZONED, "blkzoned"),
    (Features::ATOMIC_WRITE, "atomic_write"),
    (Features::EXTRA_ATTR, "extra_attr"),
    (Features::PRJQUOTA, "project_quota"),
    (Features::INODE_CHKSUM, "inode_checksum"),
    (Features::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
    (Features::QUOTA_INO, "quota"),
    (Features::INODE_CRTIME, "inode_crtime"),
    (Features::LOST_FOUND, "lost_found"),
    (Features::VERITY, "verity"),
    (Features::SB_CHKSUM, "sb_checksum"),
    (Features::CASEFOLD, "casefold"),
    (Features::COMPRESSION, "compression"),
    (Features::RO, "ro"),
    (Features::DEVICE_ALIAS, "device_alias"),
];

impl Features {
    /// Features that a reader supports or can ignore.
    pub const READABLE: Self = Self::ENCRYPT
        .union(Self::ATOMIC_WRITE)
        .union(Self::EXTRA_ATTR)
        .union(Self::PRJQUOTA)
        .union(Self::INODE_CHKSUM)
        .union(Self::FLEXIBLE_INLINE_XATTR)
        .union(Self::QUOTA_INO)
        .union(Self::INODE_CRTIME)
        .union(Self::LOST_FOUND)
        .union(Self::VERITY)
        .union(Self::SB_CHKSUM)
        .union(Self::CASEFOLD)
        .union(Self::COMPRESSION)
        .union(Self::RO);

    /// The feature with this name; the names are those of `mkfs.f2fs -O`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(feature, _)| *feature)
    }

    /// The names of the features, as in `mkfs.f2fs -O`; unknown bits are one name in hexadecimal.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let mut names: Vec<String> =
            NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| (*name).to_owned()).collect();
        let known = NAMES.iter().fold(Self::empty(), |all, (flag, _)| all | *flag);
        let rest = self.bits() & !known.bits();
        if rest != 0 {
            names.push(format!("unknown {rest:#x}"));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_names_of_mkfs() {
        let features = Features::EXTRA_ATTR | Features::SB_CHKSUM | Features::from_bits_retain(0x10_0000);
        assert_eq!(Features::named("inode_crtime"), Some(Features::INODE_CRTIME));
        assert_eq!(Features::named("crtime"), None);
        assert_eq!(features.names(), ["extra_attr", "sb_checksum", "unknown 0x100000"]);
    }
}
