//! Finds runs of free blocks. Called by `change/discard`.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks, bounded by the superblock")]

use std::ops::Range;

use f2fs_disk::SEGMENT_BLOCKS;
use f2fs_disk::convert::usize_from;

use super::{MAP_BYTES, Segments, test};

/// Consecutive blocks of the main area that no state after a crash needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeRun {
    /// Index of the first one in the main area.
    pub(crate) start: u32,
    /// Blocks, at least one.
    pub(crate) count: u32,
}

impl FreeRun {
    pub(crate) const fn end(&self) -> u32 {
        self.start + self.count
    }
}

impl Segments {
    /// Number of blocks of all segments.
    pub(crate) fn block_count(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(0).saturating_mul(SEGMENT_BLOCKS)
    }

    /// The first run of free blocks that ends behind block `from` of the main area.
    pub(crate) fn free_run(&self, from: u32) -> Option<FreeRun> {
        let end = self.block_count();
        let start = self.next_block(from..end, false)?;
        let behind = self.next_block(start..end, true).unwrap_or(end);
        Some(FreeRun { start, count: behind - start })
    }

    /// The first block of a range that is kept, or that is not.
    fn next_block(&self, range: Range<u32>, is_kept: bool) -> Option<u32> {
        let uniform = if is_kept { [0; MAP_BYTES] } else { [0xff; MAP_BYTES] };
        let mut block = range.start;
        while block < range.end {
            let (number, index) = (block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
            let kept = self.list.get(usize_from(number)).map_or(uniform, |segment| segment.kept);
            if kept != uniform
                && let Some(index) = (index..SEGMENT_BLOCKS).find(|index| test(&kept, *index) == is_kept)
            {
                return Some(number * SEGMENT_BLOCKS + index).filter(|block| *block < range.end);
            }
            block = (number + 1) * SEGMENT_BLOCKS;
        }
        None
    }
}
