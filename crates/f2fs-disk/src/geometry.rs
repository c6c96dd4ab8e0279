//! Computes where the areas of a volume lie, and addresses of blocks within them. The superblock makes it; `f2fs` and
//! `f2fs-check` address all metadata by it.

use crate::SEGMENT_BLOCKS;
use crate::bits::test_bit;
use crate::convert::to_usize;
use crate::ids::{BlockAddr, Nid};

/// Entries of a NAT block.
pub const NAT_ENTRIES_PER_BLOCK: u32 = 455;

/// The areas of a volume. Every range of blocks here was verified with the superblock: none overlaps another, and none
/// has the addresses that are no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// First block of checkpoints: two packs of a segment each.
    pub cp: BlockAddr,
    /// First block of the SIT.
    pub sit: BlockAddr,
    /// First block of the NAT.
    pub nat: BlockAddr,
    /// First block of summaries.
    pub ssa: BlockAddr,
    /// First block of nodes and data.
    pub main: BlockAddr,
    /// Blocks of nodes and data.
    pub main_blocks: u32,
    /// Blocks of one copy of the SIT.
    pub sit_blocks: u32,
    /// Blocks of one copy of the NAT.
    pub nat_blocks: u32,
    /// Blocks of a checkpoint pack behind the first that hold a version bitmap.
    pub cp_payload: u32,
    /// Numbers that a node can have, from 0 on.
    pub nid_count: u32,
}

impl Geometry {
    /// True for a block of nodes or data.
    #[must_use]
    pub fn is_main(&self, at: BlockAddr) -> bool {
        at.0.checked_sub(self.main.0).is_some_and(|within| within < self.main_blocks)
    }

    /// First block behind the last area.
    #[must_use]
    pub const fn end(&self) -> BlockAddr {
        self.main.plus(self.main_blocks)
    }

    /// First block of a checkpoint pack, 0 or 1.
    #[must_use]
    pub const fn pack(&self, number: u32) -> BlockAddr {
        self.cp.plus(number.saturating_mul(SEGMENT_BLOCKS))
    }

    /// The NAT block with the entry of a node, and the entry's index in it; `bitmap` says which of two copies counts.
    /// The copies of a segment of blocks lie one behind the other.
    #[must_use]
    pub fn nat_block(&self, nid: Nid, bitmap: &[u8]) -> (BlockAddr, usize) {
        let block = nid.0 / NAT_ENTRIES_PER_BLOCK;
        let (segment, within) = (block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
        let copy = if test_bit(bitmap, to_usize(u64::from(block))) { SEGMENT_BLOCKS } else { 0 };
        let start = segment.saturating_mul(2).saturating_mul(SEGMENT_BLOCKS);
        let entry = nid.0 % NAT_ENTRIES_PER_BLOCK;
        (self.nat.plus(start).plus(within).plus(copy), to_usize(u64::from(entry)))
    }

    /// The SIT block with the entry of a segment of the main area, and the entry's index in it; `bitmap` says which of
    /// two copies counts. The second copy of all blocks lies behind the first of all.
    #[must_use]
    pub fn sit_block(&self, segment: u32, bitmap: &[u8]) -> (BlockAddr, usize) {
        let block = segment / crate::sit::ENTRIES_PER_BLOCK;
        let copy = if test_bit(bitmap, to_usize(u64::from(block))) { self.sit_blocks } else { 0 };
        let entry = segment % crate::sit::ENTRIES_PER_BLOCK;
        (self.sit.plus(block).plus(copy), to_usize(u64::from(entry)))
    }

    /// The block with the summary of a segment of the main area.
    #[must_use]
    pub const fn summary_block(&self, segment: u32) -> BlockAddr {
        self.ssa.plus(segment)
    }

    /// A block of a segment of the main area.
    #[must_use]
    pub const fn segment_block(&self, segment: u32, index: u32) -> BlockAddr {
        self.main.plus(segment.saturating_mul(SEGMENT_BLOCKS)).plus(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::verified;

    #[test]
    fn version_bitmaps_choose_the_copy() {
        let superblock = verified();
        let geometry = superblock.geometry();
        assert_eq!(geometry.nat_block(Nid(3), &[0; 128]), (BlockAddr(2560), 3));
        assert_eq!(geometry.nat_block(Nid(456), &[0; 128]), (BlockAddr(2561), 1));
        assert_eq!(geometry.nat_block(Nid(456), &[0x40; 128]), (BlockAddr(2561 + 512), 1));
        // The first block of the second segment of blocks lies behind both copies of the first.
        assert_eq!(geometry.nat_block(Nid(512 * 455), &[0; 128]), (BlockAddr(2560 + 1024), 0));
        assert_eq!(geometry.sit_block(56, &[0; 64]), (BlockAddr(1537), 1));
        assert_eq!(geometry.sit_block(56, &[0xff; 64]), (BlockAddr(1537 + 512), 1));
        assert!(geometry.is_main(BlockAddr(5120)) && !geometry.is_main(BlockAddr(5119)));
        assert!(!geometry.is_main(geometry.end()) && !geometry.is_main(BlockAddr::NEW));
    }
}
