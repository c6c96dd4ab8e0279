//! Decides how much is fetched for a read that is not in the cache. Pure; called by `blocks`.
//!
//! A request costs a round trip, a byte costs bandwidth. A window begins with the bytes that are needed and may go on
//! beside them, as long as all fetched bytes stay below twice those that were used: bytes fetched ahead that are used
//! pay for the next ones. A walk through blocks that lie near each other so doubles its windows up to
//! [`WINDOW_BYTES_MAX`]; reads all over the device fetch little more than they need.
//!
//! Blocks of trees that are read one after the other lie near each other, but in no order. So from the
//! [`SCAN_AFTER`]th one on, more than a path to a file needs, whole chunks of the device are fetched around them, of
//! growing size, as long as all fetched bytes stay below four times those that were used, and [`SCAN_BYTES_FREE`].

use crate::number::to_u64;

/// Bytes that are cached and counted together; a fetch begins and ends at multiples of it.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Largest range of one request.
pub(crate) const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// Largest range of one request among several that are made at once.
pub(crate) const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Tree blocks that were fetched before whole chunks are.
const SCAN_AFTER: u64 = 16;
/// Bytes of the first two chunks; the size doubles with every two.
const SCAN_BYTES_MIN: u64 = 512 << 10;
/// Fetched bytes may be so many times those that were used, where chunks are fetched.
const SCAN_RATIO: u64 = 4;
/// Bytes of chunks that need not have been used so far.
const SCAN_BYTES_FREE: u64 = 4 << 20;
/// Smaller chunks are no better than windows.
const CHUNK_BLOCKS_MIN: u64 = 64;

/// Bytes fetched and bytes used, of tree blocks or of other bytes.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bytes that readers wanted, of those that were fetched; each counts once while it is cached.
    used: u64,
    fetched: u64,
    /// Fetches of tree blocks.
    scanned: u64,
}

/// The blocks that one fetch brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// So many blocks from the first needed one on, or up to the last.
    Window(u64),
    /// The blocks of the chunk around the needed ones: a multiple of its size from the begin of the device.
    Chunk(u64),
}

impl Budget {
    /// Notes that blocks were fetched.
    pub(crate) fn fetch(&mut self, blocks: u64) {
        self.fetched = self.fetched.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
    }

    /// Notes that a fetched block was used for the first time.
    pub(crate) fn use_block(&mut self) {
        self.used = self.used.saturating_add(BLOCK_BYTES);
    }

    /// Blocks of a window of which `needed` blocks are wanted now.
    pub(crate) fn window(&self, needed: u64) -> u64 {
        self.window_of(needed, 1)
    }

    /// As [`Self::window`], for contents of files, whose readers announce what they will read: half as much ahead.
    pub(crate) fn window_of_contents(&self, needed: u64) -> u64 {
        self.window_of(needed, 2)
    }

    /// A window with so many bytes ahead that not more than the used ones, divided by `divisor`, were fetched in vain.
    fn window_of(&self, needed: u64, divisor: u64) -> u64 {
        let needed = needed.max(1);
        let wasted = self.fetched.saturating_sub(self.used);
        let used = self.used.saturating_add(needed.saturating_mul(BLOCK_BYTES));
        let ahead = (used / divisor).saturating_sub(wasted) / BLOCK_BYTES;
        needed.saturating_add(ahead).min(WINDOW_BYTES_MAX / BLOCK_BYTES)
    }

    /// The fetch for a tree block of which `needed` blocks are missing.
    pub(crate) fn plan_tree_block(&mut self, needed: u64) -> Plan {
        let window = self.window(needed);
        self.scanned = self.scanned.saturating_add(1);
        let Some(turn) = self.scanned.checked_sub(SCAN_AFTER + 1) else { return Plan::Window(window) };
        let doublings = u32::try_from(turn / 2).unwrap_or(u32::MAX).min(WINDOW_BYTES_MAX.ilog2());
        let wanted = (SCAN_BYTES_MIN << doublings).min(WINDOW_BYTES_MAX);
        let used = self.used.saturating_add(needed.saturating_mul(BLOCK_BYTES));
        let allowed = used.saturating_mul(SCAN_RATIO).saturating_add(SCAN_BYTES_FREE).saturating_sub(self.fetched);
        let blocks = window.max(wanted.min(allowed) / BLOCK_BYTES);
        match blocks.checked_ilog2() {
            Some(log) if blocks >= CHUNK_BLOCKS_MIN && blocks / 2 >= needed => Plan::Chunk(1 << log),
            _ => Plan::Window(window),
        }
    }
}

/// First and last block of a range of bytes, which is not empty.
pub(crate) fn blocks_of(offset: u64, len: usize) -> std::ops::Range<u64> {
    let end = offset.saturating_add(to_u64(len));
    offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads blocks one after the other, through a cache that forgets nothing; returns requests and fetched blocks.
    fn walk(blocks: impl Iterator<Item = u64>, device_blocks: u64) -> (u64, u64) {
        let (mut budget, mut known) = (Budget::default(), std::collections::HashMap::new());
        let (mut requests, mut fetched) = (0, 0);
        for block in blocks {
            if !known.contains_key(&block) {
                let window = budget.window(1);
                let end = (block..(block + window).min(device_blocks)).find(|at| known.contains_key(at));
                let end = end.unwrap_or((block + window).min(device_blocks));
                budget.fetch(end - block);
                known.extend((block..end).map(|at| (at, false)));
                (requests, fetched) = (requests + 1, fetched + end - block);
            }
            if let Some(used @ false) = known.get_mut(&block) {
                *used = true;
                budget.use_block();
            }
        }
        (requests, fetched)
    }

    #[test]
    fn a_walk_in_order_doubles_its_windows() {
        let (requests, fetched) = walk(0..16_384, 1 << 20);
        assert!(requests <= 26, "{requests} requests for 64 MiB");
        assert!(fetched <= 2 * 16_384);
    }

    #[test]
    fn reads_in_any_order_fetch_at_most_twice_their_bytes() {
        let order = (0..20_000_u64).map(|index| index.wrapping_mul(2_654_435_761) % 1_000_000);
        let (_, fetched) = walk(order, 1_000_000);
        assert!(fetched <= 2 * 20_000 + 1, "{fetched} blocks");
    }

    /// The path to a file costs what it needs; a walk through all directories costs few requests.
    #[test]
    fn chunks_begin_behind_the_blocks_of_a_path() {
        let mut budget = Budget::default();
        for _ in 0..SCAN_AFTER {
            assert!(matches!(budget.plan_tree_block(4), Plan::Window(_)));
            budget.fetch(4);
            (0..4).for_each(|_| budget.use_block());
        }
        assert_eq!(budget.plan_tree_block(4), Plan::Chunk(128));
        for _ in 0..1000 {
            if let Plan::Chunk(blocks) = budget.plan_tree_block(4) {
                assert!(blocks <= WINDOW_BYTES_MAX / BLOCK_BYTES);
                budget.fetch(blocks);
            }
        }
        // Nothing of the chunks was used: no more are fetched.
        assert!(budget.fetched <= SCAN_RATIO * (budget.used + 16_384) + SCAN_BYTES_FREE);
        assert!(matches!(budget.plan_tree_block(4), Plan::Window(_)));
    }

    #[test]
    fn a_window_holds_what_is_needed_up_to_the_largest_request() {
        let budget = Budget::default();
        assert_eq!(budget.window(0), 2);
        assert_eq!(budget.window(700), 1400);
        assert_eq!(budget.window(5000), 2048);
    }
}
