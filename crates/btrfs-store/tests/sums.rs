//! Lock statistics of the shared counters, in each way of keeping the sum.
#![cfg(all(feature = "ablation", feature = "lock-statistics"))]

use std::thread;

use btrfs_store::ablation::{Sums, set_sums};
use btrfs_store::space::{ShardedCounter, compare_sum};
use host::statistics::{Class, measure, reset, rows};

static CLASS: Class = Class::new("a sum");

/// Acquisitions and transfers.
fn counts() -> (u64, u64) {
    let row = rows().into_iter().find(|row| row.class == "a sum").unwrap_or_default();
    (row.acquisitions, row.transfers)
}

/// A thousand tree blocks, by a thread of its own.
fn add(counter: &ShardedCounter) {
    thread::scope(|scope| scope.spawn(|| (0..1000).for_each(|_| counter.add_bytes(16 << 10))).join().expect("it ends"));
}

/// One test: the switch is the process's.
#[test]
fn a_batch_is_one_acquisition_and_a_lock_is_one_for_each_addition() {
    measure(&["a sum"]);
    // 64 blocks to a batch: 15 are moved, 40 blocks stay in the shard.
    let ours = ShardedCounter::new(&CLASS, 1 << 20);
    add(&ours);
    assert_eq!(counts(), (15, 0));
    assert_eq!(ours.approximate(), 960 << 14);
    add(&ours);
    let (batches, transfers) = counts();
    assert!((30..=31).contains(&batches) && transfers == 1, "{batches} {transfers}");
    assert_eq!(ours.exact(), 2000 << 14);
    assert_eq!(counts(), (batches + 1, 2));
    // Far from the limit the shards are not visited, near it they are.
    assert!(compare_sum(&[&ours], 1 << 40).is_lt());
    assert_eq!(counts(), (batches + 1, 2));
    assert!(ours.compare(2000 << 14).is_eq());
    assert_eq!(counts(), (batches + 2, 2));

    reset();
    set_sums(Sums::Batch(32));
    let kernels = ShardedCounter::new(&CLASS, 1 << 20);
    add(&kernels);
    add(&kernels);
    assert_eq!((counts(), kernels.approximate()), ((2000, 1), 2000 << 14));

    reset();
    set_sums(Sums::Locked);
    let locked = ShardedCounter::new(&CLASS, 1 << 20);
    add(&locked);
    add(&locked);
    assert_eq!(counts(), (2000, 1));
    assert_eq!((locked.exact(), locked.approximate(), locked.error_max()), (2000 << 14, 2000 << 14, 0));
    assert_eq!(counts(), (2002, 2));

    set_sums(Sums::Chosen);
    assert_eq!(ShardedCounter::new(&CLASS, 7).error_max(), ours.error_max() / (1 << 20) * 7);
}
