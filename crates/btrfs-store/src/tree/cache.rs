//! Caches tree blocks: sharded by address, bounded, second chance for blocks in use. `tree/forest` owns the cache, and
//! reads blocks through it.
//!
//! Blocks that something else holds (a reader, or the transaction that made them dirty) are
//! never evicted, so the bound is one for idle blocks.

use btrfs_disk::Logical;
use host::Shards;

use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};

use super::block::Block;

/// Shards; a power of two.
const SHARD_COUNT: usize = 32;
/// Blocks looked at per insertion above the bound.
const EVICTION_STEPS: usize = 8;

struct Slot {
    block: Block,
    used: bool,
}

#[derive(Default)]
struct Shard {
    blocks: NumberMap<u64, Slot>,
    /// Addresses in the order of the clock; may name blocks that are gone.
    clock: std::collections::VecDeque<u64>,
}

pub(crate) struct Cache {
    shards: Shards<Mutex<Shard>>,
    /// Idle blocks a shard keeps.
    shard_blocks_max: usize,
}

impl Cache {
    pub(crate) fn new(cache_bytes: usize, nodesize: usize) -> Self {
        let blocks = (cache_bytes / nodesize.max(1)).max(256);
        let shards = Shards::new(SHARD_COUNT, || Mutex::new(Rank::Cache, Shard::default()));
        Self { shards, shard_blocks_max: blocks / SHARD_COUNT }
    }

    fn shard(&self, at: Logical) -> &Mutex<Shard> {
        self.shards.of(at.0 >> 12)
    }

    pub(crate) fn get(&self, at: Logical) -> Option<Block> {
        self.look(at, |block| Some(block.clone()))
    }

    /// Calls `f` on a block, with the cache's lock held: it must not block.
    #[inline]
    pub(crate) fn look<R>(&self, at: Logical, f: impl FnOnce(&Block) -> Option<R>) -> Option<R> {
        let mut shard = self.shard(at).lock();
        let slot = shard.blocks.get_mut(&at.0)?;
        slot.used = true;
        f(&slot.block)
    }

    /// Adds a block that was read; when another thread was faster, its block wins.
    pub(crate) fn insert_read(&self, block: Block) -> Block {
        let mut shard = self.shard(block.at()).lock();
        if let Some(slot) = shard.blocks.get(&block.at().0) {
            return slot.block.clone();
        }
        self.add(&mut shard, block.clone());
        block
    }

    /// Adds a block that is new at its address, in place of whatever was there.
    pub(crate) fn insert_new(&self, block: Block) {
        let mut shard = self.shard(block.at()).lock();
        self.add(&mut shard, block);
    }

    pub(crate) fn remove(&self, at: Logical) {
        self.shard(at).lock().blocks.remove(&at.0);
    }

    fn add(&self, shard: &mut Shard, block: Block) {
        let at = block.at().0;
        if shard.blocks.insert(at, Slot { block, used: false }).is_none() {
            shard.clock.push_back(at);
        }
        if shard.blocks.len() > self.shard_blocks_max {
            evict(shard);
        }
    }
}

fn evict(shard: &mut Shard) {
    for _ in 0..EVICTION_STEPS {
        let Some(at) = shard.clock.pop_front() else { return };
        let Some(slot) = shard.blocks.get_mut(&at) else { continue };
        if slot.used || !slot.block.is_idle() {
            slot.used = false;
            shard.clock.push_back(at);
        } else {
            shard.blocks.remove(&at);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_blocks_are_evicted_and_held_ones_are_not() {
        let cache = Cache::new(0, 4096);
        let held = Block::new(Logical(4096), vec![0; 128].into());
        cache.insert_new(held.clone());
        for index in 2..10_000u64 {
            cache.insert_new(Block::new(Logical(index * 4096), vec![0; 128].into()));
        }
        assert!(cache.get(held.at()).is_some());
        let total: usize = cache.shards.iter().map(|s| s.lock().blocks.len()).sum();
        assert!(total <= 256 + 64, "{total} blocks are cached");
    }
}
