//! Decides how much is fetched for a read that is not in the cache. Pure; called by `cache`.
//!
//! A request costs a round trip, a byte costs bandwidth. A window begins with the bytes that are needed and may go on
//! behind them, as long as all fetched bytes stay below twice those that were used: bytes fetched ahead that are used
//! pay for the next ones. A walk through a tree whose blocks lie near each other so doubles its windows up to
//! [`WINDOW_BYTES_MAX`]; reads all over the device fetch little more than they need.

use crate::number::to_u64;

/// Bytes that are cached and counted together; a fetch begins and ends at multiples of it.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Largest range of one request.
pub(crate) const WINDOW_BYTES_MAX: u64 = 4 << 20;

/// Bytes fetched and bytes used.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    /// Bytes that readers wanted, of those that were fetched; each counts once while it is cached.
    used: u64,
    fetched: u64,
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
        let (max, needed) = (WINDOW_BYTES_MAX / BLOCK_BYTES, needed.max(1));
        let wasted = self.fetched.saturating_sub(self.used);
        let used = self.used.saturating_add(needed.saturating_mul(BLOCK_BYTES));
        let ahead = used.saturating_sub(wasted) / BLOCK_BYTES;
        needed.saturating_add(ahead).min(max)
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

    #[test]
    fn a_window_holds_what_is_needed_up_to_the_largest_request() {
        let budget = Budget::default();
        assert_eq!(budget.window(0), 2);
        assert_eq!(budget.window(700), 1024);
        assert_eq!(budget.window(5000), 1024);
    }
}
