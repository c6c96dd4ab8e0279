//! A sum that many threads change and few read.
//!
//! Every thread adds to a shard of its own; a shard that has gathered a batch moves it to
//! the total. Reading the total costs one load and is wrong by at most `shards * batch`;
//! the exact sum visits every shard and is asked for only where the difference decides.

#![expect(clippy::indexing_slicing, reason = "shards are numbered here, below the number of shards")]

use std::cell::Cell;
use std::sync::atomic::{
    AtomicI64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crossbeam_utils::CachePadded;

/// Shards of every counter: threads beyond this number share.
const SHARD_COUNT: usize = 16;

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

/// The shard of the calling thread.
fn shard_index() -> usize {
    SHARD.with(|shard| {
        shard.get().unwrap_or_else(|| {
            let index = NEXT_SHARD.fetch_add(1, Relaxed) % SHARD_COUNT;
            shard.set(Some(index));
            index
        })
    })
}

/// A sum in shards.
#[derive(Debug)]
pub struct ShardedCounter {
    total: CachePadded<AtomicI64>,
    shards: [CachePadded<AtomicI64>; SHARD_COUNT],
    batch: i64,
}

impl ShardedCounter {
    /// A counter at 0 whose shards hold back less than `batch` each.
    #[must_use]
    pub fn new(batch: u32) -> Self {
        Self {
            total: CachePadded::default(),
            shards: std::array::from_fn(|_| CachePadded::default()),
            batch: i64::from(batch.max(1)),
        }
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        let shard = &self.shards[shard_index()];
        let held = shard.fetch_add(change, Relaxed).wrapping_add(change);
        if held.unsigned_abs() >= self.batch.unsigned_abs() {
            // Another thread of this shard may have moved it meanwhile: then there is
            // nothing, or only what came since.
            let moved = shard.swap(0, Relaxed);
            self.total.fetch_add(moved, Relaxed);
        }
    }

    /// Adds a number of bytes.
    pub fn add_bytes(&self, bytes: u64) {
        self.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Takes off a number of bytes.
    pub fn sub_bytes(&self, bytes: u64) {
        self.add(-i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The sum but for what the shards hold back.
    #[must_use]
    pub fn approximate(&self) -> i64 {
        self.total.load(Relaxed)
    }

    /// Farthest that [`Self::approximate`] can be off.
    #[must_use]
    pub fn error_max(&self) -> i64 {
        self.batch.saturating_mul(i64::try_from(SHARD_COUNT).unwrap_or(i64::MAX))
    }

    /// The whole sum; exact as of a moment during the call when nobody adds.
    #[must_use]
    pub fn exact(&self) -> i64 {
        // The total first: a batch on its way there is then missed at worst, never counted
        // twice, and "not enough" is the side to err on.
        let total = self.total.load(SeqCst);
        self.shards.iter().fold(total, |sum, shard| sum.wrapping_add(shard.load(SeqCst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_exactly() {
        let counter = ShardedCounter::new(1 << 16);
        std::thread::scope(|scope| {
            for thread in 0..8i64 {
                let counter = &counter;
                scope.spawn(move || {
                    for i in 0..50_000i64 {
                        counter.add(thread * 100 + i % 7);
                        if i % 3 == 0 {
                            counter.add(-(thread * 50));
                        }
                    }
                });
            }
        });
        let expected: i64 = (0..8i64)
            .map(|thread| {
                (0..50_000i64).map(|i| thread * 100 + i % 7 - if i % 3 == 0 { thread * 50 } else { 0 }).sum::<i64>()
            })
            .sum();
        assert_eq!(counter.exact(), expected);
        assert!((counter.approximate() - expected).abs() <= counter.error_max());
    }

    #[test]
    fn small_changes_stay_in_the_shard() {
        let counter = ShardedCounter::new(100);
        counter.add_bytes(60);
        assert_eq!((counter.approximate(), counter.exact()), (0, 60));
        counter.add_bytes(60);
        assert_eq!((counter.approximate(), counter.exact()), (120, 120));
        counter.sub_bytes(120);
        assert_eq!((counter.approximate(), counter.exact()), (0, 0));
    }
}
