//! Defines BLOCK_GROUP_ITEM, which records how much of a chunk is in use. `btrfs-store` reads and writes it (`space`);
//! check, rescue and repair use it too.
//!
//! Key: (first logical address, BLOCK_GROUP_ITEM, length), in the extent tree or, with the
//! feature BLOCK_GROUP_TREE, in a tree of their own.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::flags::BlockGroupFlags;
use crate::key::objectid;

/// Use of one block group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BlockGroupItem {
    /// Bytes that extents take, copies not counted.
    pub used: U64,
    /// Object id of the chunk: 256.
    pub chunk_objectid: U64,
    /// [`BlockGroupFlags`], the same as the chunk's.
    pub flags: U64,
}
const _: () = assert!(size_of::<BlockGroupItem>() == 24);

impl BlockGroupItem {
    /// An item from its parts.
    #[must_use]
    pub fn new(used: u64, flags: BlockGroupFlags) -> Self {
        Self {
            used: U64::new(used),
            chunk_objectid: U64::new(objectid::FIRST_CHUNK_TREE),
            flags: U64::new(flags.bits()),
        }
    }

    /// Use and profile.
    #[must_use]
    pub fn group_flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for BlockGroupItem {
    const NAME: &'static str = "block group item size";
}

impl fmt::Display for BlockGroupItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block group used {} chunk_objectid {} flags {}", self.used, self.chunk_objectid, self.group_flags())
    }
}
