//! Defines the identifiers as types: addresses, generations, trees, inodes and devices. Used by all btrfs crates.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Byte address in the file system's logical address space (`bytenr`).
    Logical
);
id!(
    /// Transaction number (`transid`, `generation`).
    Generation
);
id!(
    /// Object id of a tree (`root`, `owner`).
    TreeId
);
id!(
    /// Inode number within a subvolume.
    InodeNo
);
id!(
    /// Device number within the file system.
    DevId
);

impl TreeId {
    /// Tree of tree roots.
    pub const ROOT: Self = Self(1);
    /// Extent tree.
    pub const EXTENT: Self = Self(2);
    /// Chunk tree.
    pub const CHUNK: Self = Self(3);
    /// Device tree.
    pub const DEV: Self = Self(4);
    /// Top-level subvolume.
    pub const FS: Self = Self(5);
    /// Object id of the directory that names the default subvolume.
    pub const ROOT_DIR: Self = Self(6);
    /// Checksum tree.
    pub const CSUM: Self = Self(7);
    /// Quota tree.
    pub const QUOTA: Self = Self(8);
    /// UUID tree.
    pub const UUID: Self = Self(9);
    /// Free-space tree.
    pub const FREE_SPACE: Self = Self(10);
    /// Block-group tree.
    pub const BLOCK_GROUP: Self = Self(11);
    /// RAID stripe tree.
    pub const RAID_STRIPE: Self = Self(12);
    /// Log trees (`-6`).
    pub const TREE_LOG: Self = Self(0u64.wrapping_sub(6));
    /// Relocation trees (`-8`).
    pub const TREE_RELOC: Self = Self(0u64.wrapping_sub(8));
    /// Relocation of data (`-9`).
    pub const DATA_RELOC: Self = Self(0u64.wrapping_sub(9));
    /// First object id that a subvolume or an inode may have.
    pub const FIRST_FREE: Self = Self(256);
    /// Last object id that a subvolume or an inode may have (`-256`).
    pub const LAST_FREE: Self = Self(0u64.wrapping_sub(256));

    /// True for the top-level subvolume, and every subvolume and snapshot. The upper 16 bits of
    /// a subvolume's number are zeros: quota groups use them for their level.
    #[must_use]
    #[inline]
    pub fn is_subvolume(self) -> bool {
        self == Self::FS || (self >= Self::FIRST_FREE && self.0 < 1 << 48)
    }
}
