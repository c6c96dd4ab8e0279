//! Lists the tree blocks that the running transaction, or its log, has made. The commit and log syncs write them.

use std::sync::atomic::{AtomicUsize, Ordering};

use btrfs_disk::Logical;
use host::Shards;

use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};
use crate::tree::Block;

/// Shards; a power of two.
const SHARD_COUNT: usize = 16;

/// Dirty blocks by address. Holding them here keeps them in the cache.
pub(crate) struct DirtyBlocks {
    shards: Shards<Mutex<NumberMap<u64, Block>>>,
    count: AtomicUsize,
}

impl DirtyBlocks {
    pub(crate) fn new() -> Self {
        let shards = Shards::new(SHARD_COUNT, || Mutex::new(Rank::RefQueue, NumberMap::default()));
        Self { shards, count: AtomicUsize::new(0) }
    }

    fn shard(&self, at: Logical) -> &Mutex<NumberMap<u64, Block>> {
        self.shards.of(at.0 >> 12)
    }

    pub(crate) fn insert(&self, block: &Block) {
        if self.shard(block.at()).lock().insert(block.at().0, block.clone()).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, at: Logical) {
        if self.shard(at).lock().remove(&at.0).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True for a block that is still to be written.
    pub(crate) fn contains(&self, at: Logical) -> bool {
        self.shard(at).lock().contains_key(&at.0)
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes all, in order of address.
    pub(crate) fn take_sorted(&self) -> Vec<Block> {
        let mut all: Vec<Block> = Vec::with_capacity(self.count());
        for shard in &self.shards {
            all.extend(std::mem::take(&mut *shard.lock()).into_values());
        }
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        all.sort_unstable_by_key(Block::at);
        all
    }
}
