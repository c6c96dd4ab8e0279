//! Keeps a sum that many threads change and few read. `space/account` keeps the bytes of each kind of space in it.
//!
//! Every thread adds to a shard of its own; a shard that has gathered a batch moves it to the total. Reading the total
//! costs one load and is wrong by at most `shards * batch`; the exact sum visits every shard. [`compare_sum`] asks for
//! it only near the limit, where the difference decides.
//!
//! The total is shared by all threads. Lock statistics count under the counter's class each time that a batch is moved
//! there, and each exact sum; reads of the total alone are not counted, as they take no cache line away from a thread
//! that reads. With the feature `ablation` a counter can have another batch, or be a number under one lock
//! ([`crate::ablation::Sums`]), which is counted as any lock.

#![expect(clippy::indexing_slicing, reason = "shards are numbered here, below the number of shards")]

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::atomic::{
    AtomicI64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crossbeam_utils::CachePadded;
use host::statistics::{Class, Watch};

#[cfg(feature = "ablation")]
use crate::ablation::{Sums, sums};
#[cfg(feature = "ablation")]
use crate::locks::{Mutex, Rank};

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
    watch: Watch,
    /// The whole sum, where the older way is to be measured.
    #[cfg(feature = "ablation")]
    locked: Option<Mutex<i64>>,
}

impl ShardedCounter {
    /// A counter at 0 whose shards each hold back less than `batch`; lock statistics list it as `class`.
    #[must_use]
    pub fn new(class: &'static Class, batch: u32) -> Self {
        #[cfg(feature = "ablation")]
        let batch = if let Sums::Batch(other) = sums() { other } else { batch };
        Self {
            total: CachePadded::default(),
            shards: std::array::from_fn(|_| CachePadded::default()),
            batch: i64::from(batch.max(1)),
            watch: Watch::new(class),
            #[cfg(feature = "ablation")]
            locked: (sums() == Sums::Locked).then(|| Mutex::in_class(Rank::Sum, class, 0)),
        }
    }

    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        #[cfg(feature = "ablation")]
        if let Some(locked) = &self.locked {
            let mut sum = locked.lock();
            *sum = sum.wrapping_add(change);
            return;
        }
        let shard = &self.shards[shard_index()];
        let held = shard.fetch_add(change, Relaxed).wrapping_add(change);
        if held.unsigned_abs() >= self.batch.unsigned_abs() {
            // Another thread of this shard may have moved it meanwhile: then the rest is nothing, or only later
            // additions.
            let moved = shard.swap(0, Relaxed);
            self.total.fetch_add(moved, Relaxed);
            self.watch.touch();
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

    /// The sum without the parts that the shards hold back.
    #[must_use]
    pub fn approximate(&self) -> i64 {
        #[cfg(feature = "ablation")]
        if let Some(locked) = &self.locked {
            return *locked.lock();
        }
        self.total.load(Relaxed)
    }

    /// Farthest that [`Self::approximate`] can be off.
    #[must_use]
    pub fn error_max(&self) -> i64 {
        #[cfg(feature = "ablation")]
        if self.locked.is_some() {
            return 0;
        }
        self.batch.saturating_mul(i64::try_from(SHARD_COUNT).unwrap_or(i64::MAX))
    }

    /// The whole sum; exact as of a moment during the call when no thread adds.
    #[must_use]
    pub fn exact(&self) -> i64 {
        #[cfg(feature = "ablation")]
        if let Some(locked) = &self.locked {
            return *locked.lock();
        }
        self.watch.touch();
        // The total first: a batch on its way there is then missed at worst, never counted
        // twice, and "not enough" is the side to err on.
        let total = self.total.load(SeqCst);
        self.shards.iter().fold(total, |sum, shard| sum.wrapping_add(shard.load(SeqCst)))
    }

    /// Whether the sum is less than `limit`, equal or greater; see [`compare_sum`].
    #[must_use]
    pub fn compare(&self, limit: i64) -> Ordering {
        compare_sum(&[self], limit)
    }
}

/// Whether the counters have together less than `limit`, as much or more. Visits their shards only where the totals are
/// so near to the limit that the shards may decide.
#[must_use]
pub fn compare_sum(counters: &[&ShardedCounter], limit: i64) -> Ordering {
    let sum = |of: fn(&ShardedCounter) -> i64| counters.iter().map(|counter| of(counter)).fold(0, i64::saturating_add);
    let rough = sum(ShardedCounter::approximate);
    if rough.abs_diff(limit) > sum(ShardedCounter::error_max).unsigned_abs() {
        return rough.cmp(&limit);
    }
    sum(ShardedCounter::exact).cmp(&limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    static CLASS: Class = Class::new("tested sum");

    #[test]
    fn threads_add_up_exactly() {
        let counter = ShardedCounter::new(&CLASS, 1 << 16);
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
        let counter = ShardedCounter::new(&CLASS, 100);
        counter.add_bytes(60);
        assert_eq!((counter.approximate(), counter.exact()), (0, 60));
        counter.add_bytes(60);
        assert_eq!((counter.approximate(), counter.exact()), (120, 120));
        counter.sub_bytes(120);
        assert_eq!((counter.approximate(), counter.exact()), (0, 0));
    }

    #[test]
    fn a_comparison_is_exact_near_the_limit() {
        let counter = ShardedCounter::new(&CLASS, 100);
        counter.add(99);
        // The total is 0; the shard's part decides.
        assert_eq!(counter.compare(98), Ordering::Greater);
        assert_eq!(counter.compare(99), Ordering::Equal);
        assert_eq!(counter.compare(100), Ordering::Less);
        counter.add(-198);
        assert_eq!(counter.compare(-99), Ordering::Equal);
        assert_eq!(counter.compare(-98), Ordering::Less);
        assert_eq!(counter.compare(-100), Ordering::Greater);
    }

    #[test]
    fn a_comparison_is_right_on_both_sides_of_the_error_bound() {
        let counter = ShardedCounter::new(&CLASS, 10);
        counter.add(1_000);
        counter.add(7);
        let error = counter.error_max();
        assert_eq!((counter.approximate(), error), (1_000, 160));
        for distance in [error - 1, error, error + 1, error + 1_000] {
            assert_eq!(counter.compare(1_000 - distance), Ordering::Greater, "{distance}");
            assert_eq!(counter.compare(1_000 + distance), Ordering::Less, "{distance}");
        }
        assert_eq!(counter.compare(i64::MAX), Ordering::Less);
        assert_eq!(counter.compare(i64::MIN), Ordering::Greater);
    }

    #[test]
    fn counters_are_compared_together() {
        let (one, other) = (ShardedCounter::new(&CLASS, 100), ShardedCounter::new(&CLASS, 1_000));
        one.add(50);
        other.add(-30);
        assert_eq!(compare_sum(&[&one, &other], 20), Ordering::Equal);
        assert_eq!(compare_sum(&[&one, &other], 21), Ordering::Less);
        assert_eq!(compare_sum(&[], 0), Ordering::Equal);
    }
}
