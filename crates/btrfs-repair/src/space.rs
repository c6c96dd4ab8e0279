//! Allocates space for the new blocks of a repair, from ranges that neither the old state nor an earlier round uses.
//! `round` makes the allocator; `edit` and `derive` take blocks from it.

use std::collections::BTreeMap;

use btrfs_disk::Logical;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::superblock::{MIRRORS_MAX, mirror_offset};
use btrfs_pool::plan::plan;
use btrfs_pool::{Chunk, Purpose};

use crate::error::{Error, Result};

/// Bytes around a copy of the superblock that the kernel does not allocate.
const SUPER_STRIPE: u64 = 64 << 10;

/// Ranges of addresses, merged where they touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds a range, joined with those it overlaps.
    pub(crate) fn add(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start.saturating_add(len));
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to)) {
            if to < start {
                break;
            }
            start = start.min(from);
            end = end.max(to);
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    /// End of the range that overlaps this one, if one does.
    pub(crate) fn overlap(&self, start: u64, len: u64) -> Option<u64> {
        let (_, end) = self.0.range(..start.saturating_add(len)).next_back()?;
        (*end > start).then_some(*end)
    }

    /// The ranges, in order: start and end.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(start, end)| (*start, *end))
    }
}

/// Hands out places for tree blocks.
#[derive(Debug)]
pub(crate) struct Allocator {
    used: Ranges,
    node_len: u64,
    /// Where the search continues, in chunks for metadata and in system chunks.
    next: [u64; 2],
    /// All places handed out.
    pub(crate) taken: Vec<u64>,
}

impl Allocator {
    pub(crate) fn new(used: Ranges, node_len: u64) -> Self {
        Self { used, node_len, next: [0; 2], taken: Vec::new() }
    }

    /// A place for a block of the chunk tree, or of any other.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn take(&mut self, chunks: &BTreeMap<u64, Chunk>, is_system: bool) -> Result<u64> {
        let (flag, kind) = if is_system {
            (BlockGroupFlags::SYSTEM, "system chunks")
        } else {
            (BlockGroupFlags::METADATA, "metadata")
        };
        let from = self.next[usize::from(is_system)];
        for chunk in chunks.values().filter(|chunk| chunk.flags().contains(flag) && chunk.end().0 > from) {
            let mut at = chunk.start().0.max(from);
            while at.saturating_add(self.node_len) <= chunk.end().0 {
                match self.used.overlap(at, self.node_len) {
                    Some(end) => {
                        let behind = end.saturating_sub(chunk.start().0).next_multiple_of(self.node_len.max(1));
                        at = chunk.start().0.saturating_add(behind);
                    }
                    None if is_beside_superblock(chunk, at, self.node_len) => at = at.saturating_add(self.node_len),
                    None => {
                        self.used.add(at, self.node_len);
                        self.next[usize::from(is_system)] = at.saturating_add(self.node_len);
                        self.taken.push(at);
                        return Ok(at);
                    }
                }
            }
        }
        Err(Error::NoSpace { kind, needed: 1 })
    }

    /// The ranges in use, with those handed out.
    pub(crate) fn into_used(self) -> Ranges {
        self.used
    }
}

fn is_beside_superblock(chunk: &Chunk, at: u64, len: u64) -> bool {
    let parts = plan(chunk, Logical(at), len, Purpose::Write);
    parts.iter().any(|part| {
        (0..MIRRORS_MAX).filter_map(mirror_offset).any(|offset| {
            part.device_offset < offset.saturating_add(SUPER_STRIPE)
                && part.device_offset.saturating_add(part.len) > offset
        })
    })
}

/// The parts of a block group that none of the sorted extents (start, length) covers.
pub(crate) fn gaps(start: u64, end: u64, extents: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = start;
    for (from, len) in extents {
        if from > at {
            gaps.push((at, from));
        }
        at = at.max(from.saturating_add(len));
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}

/// The first of the sorted extents that overlaps the next, with its end.
pub(crate) fn first_overlap(extents: &BTreeMap<u64, u64>) -> Option<(u64, u64)> {
    let mut last: Option<(u64, u64)> = None;
    for (at, len) in extents {
        if let Some((before, end)) = last
            && end > *at
        {
            return Some((before, *at));
        }
        last = Some((*at, at.saturating_add(*len)));
    }
    None
}

/// Pointers in each of the nodes above `blocks` blocks: nodes are filled evenly, so that none has a single pointer.
pub(crate) fn ptrs_each(blocks: usize, ptrs_max: usize) -> usize {
    let nodes = blocks.div_ceil(ptrs_max.max(2)).max(1);
    blocks.div_ceil(nodes).max(1)
}

/// Blocks needed above `leaves` leaves, level by level from 1.
pub(crate) fn nodes_above(leaves: usize, ptrs_max: usize) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut below = leaves;
    while below > 1 {
        below = below.div_ceil(ptrs_each(below, ptrs_max));
        counts.push(below);
    }
    counts
}

/// Number of blocks of a tree with `leaves` leaves.
pub(crate) fn tree_blocks(leaves: usize, ptrs_max: usize) -> u64 {
    to_u64(nodes_above(leaves, ptrs_max).iter().fold(leaves, |sum, count| sum.saturating_add(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_overlap() {
        let mut ranges = Ranges::default();
        for (start, len) in [(10, 5), (30, 5), (15, 5), (0, 2)] {
            ranges.add(start, len);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 2), (10, 20), (30, 35)]);
        assert_eq!((ranges.overlap(5, 5), ranges.overlap(5, 6), ranges.overlap(34, 9)), (None, Some(20), Some(35)));
        ranges.add(1, 40);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 41)]);
    }

    #[test]
    fn shapes_of_trees() {
        assert_eq!(nodes_above(1, 100), Vec::<usize>::new());
        assert_eq!(nodes_above(101, 100), [2, 1]);
        assert_eq!(tree_blocks(101, 100), 104);
        assert_eq!(gaps(0, 100, [(10, 10), (20, 5)].into_iter()), [(0, 10), (25, 100)]);
    }
}
