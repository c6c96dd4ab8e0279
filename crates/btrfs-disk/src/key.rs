//! Keys: the order of everything in a tree.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A key as a value in memory, ordered as on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the item belongs to: an inode, a byte address, a tree, ...
    pub objectid: u64,
    /// One of [`item_type`].
    pub item_type: u8,
    /// Meaning depends on the type.
    pub offset: u64,
}

impl Key {
    /// Smallest key.
    pub const MIN: Self = Self::new(0, 0, 0);
    /// Largest key.
    pub const MAX: Self = Self::new(u64::MAX, u8::MAX, u64::MAX);

    /// A key from its three parts.
    #[must_use]
    pub const fn new(objectid: u64, item_type: u8, offset: u64) -> Self {
        Self { objectid, item_type, offset }
    }

    /// The smallest key above this one; `None` above [`Key::MAX`].
    #[must_use]
    pub fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(item_type) = self.item_type.checked_add(1) {
            return Some(Self::new(self.objectid, item_type, 0));
        }
        self.objectid.checked_add(1).map(|objectid| Self::new(objectid, 0, 0))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, self.item_type, self.offset)
    }
}

/// A key as it lies on disk. Its bytes do not sort like keys: compare [`DiskKey::get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiskKey {
    /// See [`Key::objectid`].
    pub objectid: U64,
    /// See [`Key::item_type`].
    pub item_type: u8,
    /// See [`Key::offset`].
    pub offset: U64,
}
const _: () = assert!(size_of::<DiskKey>() == 17);

impl DiskKey {
    /// The key as a value.
    #[must_use]
    #[inline]
    pub fn get(&self) -> Key {
        Key::new(self.objectid.get(), self.item_type, self.offset.get())
    }
}

impl From<Key> for DiskKey {
    #[inline]
    fn from(key: Key) -> Self {
        Self { objectid: U64::new(key.objectid), item_type: key.item_type, offset: U64::new(key.offset) }
    }
}

impl From<DiskKey> for Key {
    #[inline]
    fn from(key: DiskKey) -> Self {
        key.get()
    }
}

impl fmt::Display for DiskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Item types, with the kernel's names and numbers.
pub mod item_type {
    #![expect(missing_docs, reason = "the names are the kernel's; the format notes explain each")]
    pub const INODE_ITEM: u8 = 1;
    pub const INODE_REF: u8 = 12;
    pub const INODE_EXTREF: u8 = 13;
    pub const XATTR_ITEM: u8 = 24;
    pub const VERITY_DESC_ITEM: u8 = 36;
    pub const VERITY_MERKLE_ITEM: u8 = 37;
    pub const ORPHAN_ITEM: u8 = 48;
    pub const DIR_LOG_ITEM: u8 = 60;
    pub const DIR_LOG_INDEX: u8 = 72;
    pub const DIR_ITEM: u8 = 84;
    pub const DIR_INDEX: u8 = 96;
    pub const EXTENT_DATA: u8 = 108;
    pub const EXTENT_CSUM: u8 = 128;
    pub const ROOT_ITEM: u8 = 132;
    pub const ROOT_BACKREF: u8 = 144;
    pub const ROOT_REF: u8 = 156;
    pub const EXTENT_ITEM: u8 = 168;
    pub const METADATA_ITEM: u8 = 169;
    pub const EXTENT_OWNER_REF: u8 = 172;
    pub const TREE_BLOCK_REF: u8 = 176;
    pub const EXTENT_DATA_REF: u8 = 178;
    pub const SHARED_BLOCK_REF: u8 = 182;
    pub const SHARED_DATA_REF: u8 = 184;
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    pub const FREE_SPACE_INFO: u8 = 198;
    pub const FREE_SPACE_EXTENT: u8 = 199;
    pub const FREE_SPACE_BITMAP: u8 = 200;
    pub const DEV_EXTENT: u8 = 204;
    pub const DEV_ITEM: u8 = 216;
    pub const CHUNK_ITEM: u8 = 228;
    pub const RAID_STRIPE: u8 = 230;
    pub const QGROUP_STATUS: u8 = 240;
    pub const QGROUP_INFO: u8 = 242;
    pub const QGROUP_LIMIT: u8 = 244;
    pub const QGROUP_RELATION: u8 = 246;
    pub const TEMPORARY_ITEM: u8 = 248;
    pub const PERSISTENT_ITEM: u8 = 249;
    pub const DEV_REPLACE: u8 = 250;
    pub const UUID_KEY_SUBVOL: u8 = 251;
    pub const UUID_KEY_RECEIVED_SUBVOL: u8 = 252;
    pub const STRING_ITEM: u8 = 253;
}

/// Object ids that are not trees, inodes or addresses, with the kernel's numbers.
pub mod objectid {
    /// Owner of the device items in the chunk tree.
    pub const DEV_ITEMS: u64 = 1;
    /// Owner of every chunk item and every block group's chunk.
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// The directory in the root tree that names the default subvolume.
    pub const ROOT_TREE_DIR: u64 = 6;
    /// First inode number; the root directory of every subvolume.
    pub const FIRST_FREE: u64 = 256;
    /// Last inode number and last subvolume number (`-256`).
    pub const LAST_FREE: u64 = 0u64.wrapping_sub(256);
    /// A subvolume that was lost by a snapshot is an empty directory with this number.
    pub const EMPTY_SUBVOL_DIR: u64 = 2;
    /// Device statistics.
    pub const DEV_STATS: u64 = 0;
    /// A paused balance (`-4`).
    pub const BALANCE: u64 = 0u64.wrapping_sub(4);
    /// Orphans (`-5`).
    pub const ORPHAN: u64 = 0u64.wrapping_sub(5);
    /// Every checksum item (`-10`).
    pub const EXTENT_CSUM: u64 = 0u64.wrapping_sub(10);
    /// The first free space cache (`-11`).
    pub const FREE_SPACE: u64 = 0u64.wrapping_sub(11);
    /// The inode number cache (`-12`).
    pub const FREE_INO: u64 = 0u64.wrapping_sub(12);
    /// Checksums being converted by btrfs-progs (`-13`).
    pub const CSUM_CHANGE: u64 = 0u64.wrapping_sub(13);
}
