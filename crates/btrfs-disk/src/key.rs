//! Defines keys, which order the items of a tree, with the numbers of the item types. Used by all btrfs crates.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A key as a value in memory, ordered as on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The owner of the item: an inode, a byte address, a tree, ...
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
    /// An inode: `(inode, _, 0)`.
    pub const INODE_ITEM: u8 = 1;
    /// Names of an inode in one directory: `(inode, _, directory)`.
    pub const INODE_REF: u8 = 12;
    /// Names that do not fit into the item above: `(inode, _, hash of directory and name)`.
    pub const INODE_EXTREF: u8 = 13;
    /// Extended attributes with equal name hashes: `(inode, _, hash of the name)`.
    pub const XATTR_ITEM: u8 = 24;
    /// The descriptor of fs-verity of a file.
    pub const VERITY_DESC_ITEM: u8 = 36;
    /// Part of the Merkle tree of fs-verity of a file.
    pub const VERITY_MERKLE_ITEM: u8 = 37;
    /// An inode or subvolume to delete at the next mount, without data: `(ORPHAN, _, inode or subvolume)`.
    pub const ORPHAN_ITEM: u8 = 48;
    /// In a log tree, a range of name hashes that the log covers completely (no longer written).
    pub const DIR_LOG_ITEM: u8 = 60;
    /// In a log tree, a range of directory positions that the log covers completely: `(directory, _, first)`.
    pub const DIR_LOG_INDEX: u8 = 72;
    /// Entries of a directory with equal name hashes: `(directory, _, hash of the name)`.
    pub const DIR_ITEM: u8 = 84;
    /// An entry of a directory, in the order of creation: `(directory, _, position)`.
    pub const DIR_INDEX: u8 = 96;
    /// Contents of a file: `(inode, _, file offset)`.
    pub const EXTENT_DATA: u8 = 108;
    /// Checksums of adjacent sectors of data: `(EXTENT_CSUM, _, logical address)`.
    pub const EXTENT_CSUM: u8 = 128;
    /// A tree: `(tree, _, 0, or the generation of a snapshot)`.
    pub const ROOT_ITEM: u8 = 132;
    /// The parent of a subvolume: `(subvolume, _, parent)`.
    pub const ROOT_BACKREF: u8 = 144;
    /// A subvolume inside a parent: `(parent, _, subvolume)`.
    pub const ROOT_REF: u8 = 156;
    /// An extent of data, or a tree block in the older form: `(logical address, _, length)`.
    pub const EXTENT_ITEM: u8 = 168;
    /// A tree block in the short ("skinny") form: `(logical address, _, level)`.
    pub const METADATA_ITEM: u8 = 169;
    /// The subvolume that an extent is charged to by simple quotas.
    pub const EXTENT_OWNER_REF: u8 = 172;
    /// A back reference of a tree block to a tree: `(logical address, _, tree)`.
    pub const TREE_BLOCK_REF: u8 = 176;
    /// A back reference of data to a file: `(logical address, _, hash of tree, inode and offset)`.
    pub const EXTENT_DATA_REF: u8 = 178;
    /// A back reference of a tree block to its parent block: `(logical address, _, parent's address)`.
    pub const SHARED_BLOCK_REF: u8 = 182;
    /// A back reference of data to the leaf that names it: `(logical address, _, leaf's address)`.
    pub const SHARED_DATA_REF: u8 = 184;
    /// A block group: `(logical address, _, length)`.
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    /// The form of a block group's free-space items: `(logical address, _, length)`.
    pub const FREE_SPACE_INFO: u8 = 198;
    /// A free range: `(logical address, _, length)`; there is no data.
    pub const FREE_SPACE_EXTENT: u8 = 199;
    /// Free sectors of a range, a bit each: `(logical address, _, length)`.
    pub const FREE_SPACE_BITMAP: u8 = 200;
    /// A range of a device that belongs to a chunk: `(device, _, device offset)`.
    pub const DEV_EXTENT: u8 = 204;
    /// A device: `(DEV_ITEMS, _, device)`.
    pub const DEV_ITEM: u8 = 216;
    /// A chunk, which maps logical addresses to devices: `(FIRST_CHUNK_TREE, _, logical address)`.
    pub const CHUNK_ITEM: u8 = 228;
    /// Stripes of a range (raid stripe tree).
    pub const RAID_STRIPE: u8 = 230;
    /// State of the quotas: `(0, _, 0)`.
    pub const QGROUP_STATUS: u8 = 240;
    /// The usage of a quota group: `(0, _, group)`.
    pub const QGROUP_INFO: u8 = 242;
    /// The limits of a quota group: `(0, _, group)`.
    pub const QGROUP_LIMIT: u8 = 244;
    /// Membership of a quota group in another: `(group, _, other group)`, in both orders.
    pub const QGROUP_RELATION: u8 = 246;
    /// Temporary state: the arguments of a balance: `(BALANCE, _, 0)`.
    pub const TEMPORARY_ITEM: u8 = 248;
    /// Persistent statistics: errors of a device: `(DEV_STATS, _, device)`.
    pub const PERSISTENT_ITEM: u8 = 249;
    /// A running replacement of a device: `(0, _, 0)`.
    pub const DEV_REPLACE: u8 = 250;
    /// Subvolumes by UUID: `(first half, _, second half)`.
    pub const UUID_KEY_SUBVOL: u8 = 251;
    /// Subvolumes by received UUID: `(first half, _, second half)`.
    pub const UUID_KEY_RECEIVED_SUBVOL: u8 = 252;
    /// Text without a meaning to the file system.
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
    /// Inode number of the empty directory that replaces a nested subvolume in a snapshot.
    pub const EMPTY_SUBVOL_DIR: u64 = 2;
    /// Device statistics.
    pub const DEV_STATS: u64 = 0;
    /// A paused balance (`-4`).
    pub const BALANCE: u64 = 0u64.wrapping_sub(4);
    /// Orphans (`-5`).
    pub const ORPHAN: u64 = 0u64.wrapping_sub(5);
    /// Every checksum item (`-10`).
    /// Checksums of adjacent sectors of data: `(EXTENT_CSUM, _, logical address)`.
    pub const EXTENT_CSUM: u64 = 0u64.wrapping_sub(10);
    /// The first free space cache (`-11`).
    pub const FREE_SPACE: u64 = 0u64.wrapping_sub(11);
    /// The inode number cache (`-12`).
    pub const FREE_INO: u64 = 0u64.wrapping_sub(12);
    /// Checksums being converted by btrfs-progs (`-13`).
    pub const CSUM_CHANGE: u64 = 0u64.wrapping_sub(13);
}
