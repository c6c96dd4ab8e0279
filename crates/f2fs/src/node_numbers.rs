//! Chooses the numbers of new nodes: searches the NAT for free ones, a block at a time. `WriteVolume` takes numbers
//! here and returns those of removed nodes; `change::open`, `change::replay` and `change::commit` keep it current.
//!
//! Freed numbers are reused as late as possible, and never before the next checkpoint: until then the disk still has
//! the old node under that number.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "numbers of nodes and blocks of the NAT, bounded by the superblock"
)]

use std::collections::VecDeque;

use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::{BlockAddr, Nid};

use crate::error::{Error, Result};
use crate::read_volume::ReadVolume;

/// The format reserves the numbers below this one.
const NID_MIN: u32 = 4;

/// Free node numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    free: VecDeque<Nid>,
    /// The next block of the NAT to search, and the number of unsearched blocks.
    next_block: u32,
    blocks_left: u32,
    /// Numbers of nodes that were removed since the last checkpoint; a search after the next checkpoint finds them.
    freed: Vec<Nid>,
    /// A checkpoint freed numbers in blocks that the running search may have passed already.
    has_freed: bool,
}

impl Numbers {
    /// An empty list, whose first search begins at the number in the checkpoint (`next_free_nid`).
    pub(crate) fn of(volume: &ReadVolume) -> Self {
        Self {
            free: VecDeque::new(),
            next_block: volume.checkpoint().fields().next_free_nid.get() / NAT_ENTRIES_PER_BLOCK,
            blocks_left: volume.geometry().nat_blocks,
            freed: Vec::new(),
            has_freed: false,
        }
    }

    /// Takes a free number.
    pub(crate) fn take(&mut self, volume: &ReadVolume) -> Result<Nid> {
        loop {
            if let Some(nid) = self.free.pop_front() {
                return Ok(nid);
            }
            if self.blocks_left == 0 {
                if !self.has_freed {
                    return Err(Error::no_space(1, 0));
                }
                (self.blocks_left, self.has_freed) = (volume.geometry().nat_blocks, false);
            }
            self.search(volume)?;
        }
    }

    /// Searches one more block of the NAT.
    fn search(&mut self, volume: &ReadVolume) -> Result<()> {
        let geometry = volume.geometry();
        let block = self.next_block % geometry.nat_blocks.max(1);
        let first = block * NAT_ENTRIES_PER_BLOCK;
        let mut found = Vec::new();
        for nid in (first..first + NAT_ENTRIES_PER_BLOCK).filter(|nid| (NID_MIN..geometry.nid_count).contains(nid)) {
            if volume.nat_entry(Nid(nid))?.at() == BlockAddr::NULL {
                found.push(Nid(nid));
            }
        }
        let hint = volume.checkpoint().fields().next_free_nid.get();
        // From the end of the last search on: a number is reused as late as possible.
        found.sort_by_key(|nid| (nid.0 < hint, nid.0));
        // Numbers freed since the last checkpoint are not reused before the next.
        found.retain(|nid| !self.freed.contains(nid));
        self.free.extend(found);
        self.next_block = block + 1;
        self.blocks_left -= 1;
        Ok(())
    }

    /// Notes that a number is in use.
    pub(crate) fn remove(&mut self, taken: Nid) {
        self.free.retain(|nid| *nid != taken);
    }

    /// Notes that a node was removed.
    pub(crate) fn give_back(&mut self, nid: Nid) {
        self.freed.push(nid);
    }

    /// Notes that a checkpoint was written: a search may now return the numbers freed before it.
    pub(crate) fn committed(&mut self) {
        self.has_freed |= !self.freed.is_empty();
        self.freed.clear();
    }

    /// `next_free_nid` of the next checkpoint: the number at which the kernel begins to search.
    pub(crate) fn next_free(&self, volume: &ReadVolume) -> u32 {
        let geometry = volume.geometry();
        let known = self.free.front().map(|nid| nid.0);
        if known.is_none() && self.blocks_left == geometry.nat_blocks {
            // No search was needed.
            return volume.checkpoint().fields().next_free_nid.get();
        }
        let scan = self.next_block.saturating_mul(NAT_ENTRIES_PER_BLOCK);
        let next = known.unwrap_or(if scan < geometry.nid_count { scan } else { 0 });
        next.max(volume.root().0 + 1)
    }
}
