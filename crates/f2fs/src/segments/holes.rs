//! Lists segments with holes: blocks that are neither in use nor kept, which logs fill where free sections are few (the
//! kernel's SSR, "slack space recycling"). `segments/mod.rs` keeps the list, and `space` opens logs in such segments.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of logs")]

use std::collections::BTreeSet;

use f2fs_disk::convert::to_u64;

/// Logs of data, and of nodes.
const LOGS_OF_KIND: usize = 3;
/// Most blocks that a log may leave unused in the segment whose holes it fills.
const LEFT_IN_LOG: u64 = 511;

/// How a log finds its next block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocType {
    /// The next block of a segment that was free.
    Lfs,
    /// In the next hole of a segment that is partly in use.
    Ssr,
}

impl AllocType {
    /// Its number in checkpoints.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Lfs => 0,
            Self::Ssr => 1,
        }
    }

    pub(crate) const fn of(number: u8) -> Self {
        if number == Self::Ssr.number() { Self::Ssr } else { Self::Lfs }
    }
}

/// Segments with holes that no log writes to, by the log that wrote them and the number of blocks that are no holes.
#[derive(Debug, Default)]
pub(super) struct Holes {
    lists: [BTreeSet<(u16, u32)>; 2 * LOGS_OF_KIND],
    /// Holes in segments of data, and of nodes.
    counts: [u64; 2],
}

impl Holes {
    pub(super) fn add(&mut self, log: usize, kept: u16, segment: u32) {
        if let Some(list) = self.lists.get_mut(log)
            && list.insert((kept, segment))
            && let Some(count) = self.counts.get_mut(log / LOGS_OF_KIND)
        {
            *count = count.saturating_add(holes(kept));
        }
    }

    pub(super) fn remove(&mut self, log: usize, kept: u16, segment: u32) {
        if let Some(list) = self.lists.get_mut(log)
            && list.remove(&(kept, segment))
            && let Some(count) = self.counts.get_mut(log / LOGS_OF_KIND)
        {
            *count = count.saturating_sub(holes(kept));
        }
    }

    /// The segment whose holes a log should fill: the one with the most, first among its own kind of segments, then
    /// among the others of data, or of nodes, in the kernel's order.
    pub(super) fn best(&self, log: usize) -> Option<u32> {
        let first = log / LOGS_OF_KIND * LOGS_OF_KIND;
        let is_reversed = log > first;
        let others = (0..LOGS_OF_KIND).map(|index| if is_reversed { LOGS_OF_KIND - 1 - index } else { index });
        let mut order = std::iter::once(log).chain(others.map(|index| first + index));
        order.find_map(|log| self.lists.get(log)?.first().map(|(_, segment)| *segment))
    }

    /// Holes certainly available to logs of data, or of nodes, even if each leaves some unused in its segment.
    pub(super) fn room(&self, is_node: bool) -> u64 {
        let count = self.counts.get(usize::from(is_node)).copied().unwrap_or(0);
        count.saturating_sub(LEFT_IN_LOG * to_u64(LOGS_OF_KIND))
    }
}

fn holes(kept: u16) -> u64 {
    u64::from(f2fs_disk::SEGMENT_BLOCKS).saturating_sub(u64::from(kept))
}
