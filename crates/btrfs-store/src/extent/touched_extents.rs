//! Records the extents whose holders changed in the running transaction, for quotas. `txn/host` and `txn/quotas` fill
//! it; the commit counts them (`txn/quotas`).
//!
//! The queue of reference changes cannot answer this: where a tree copies a shared leaf and then drops one of the
//! references that the copy gained, the queue has no change left, though one tree less reaches the extent.

use std::sync::atomic::{AtomicUsize, Ordering};

use btrfs_disk::Logical;
use host::Shards;

use super::ref_change::{ExtentKind, RefChange};
use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};

/// Shards; a power of two.
const SHARD_COUNT: usize = 16;

/// Entries at which the transaction should be committed: about 16 MiB.
const ENTRIES_MAX: usize = 512 * 1024;

/// The addresses of touched extents, and their kinds.
pub(crate) struct TouchedExtents {
    shards: Shards<Mutex<NumberMap<u64, ExtentKind>>>,
    count: AtomicUsize,
}

impl TouchedExtents {
    pub(crate) fn new() -> Self {
        let shards = Shards::new(SHARD_COUNT, || Mutex::new(Rank::RefQueue, NumberMap::default()));
        Self { shards, count: AtomicUsize::new(0) }
    }

    /// Notes the extent of a change, if subvolumes can reach it.
    pub(crate) fn note(&self, change: &RefChange) {
        let concerns = match *change {
            RefChange::AddTree { owner, parent, .. } | RefChange::DropTree { owner, parent, .. } => {
                parent.is_some() || owner.is_subvolume()
            }
            RefChange::AddData { root, parent, .. } | RefChange::DropData { root, parent, .. } => {
                parent.is_some() || root.is_subvolume()
            }
            RefChange::SetFullBackref { .. } | RefChange::SetGeneration { .. } => false,
        };
        if concerns {
            self.insert(change.at(), change.kind());
        }
    }

    /// Notes an extent.
    pub(crate) fn insert(&self, at: Logical, kind: ExtentKind) {
        if self.shards.of(at.0 >> 12).lock().insert(at.0, kind).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets an extent that the transaction made and gave up.
    pub(crate) fn remove(&self, at: Logical) {
        if self.shards.of(at.0 >> 12).lock().remove(&at.0).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// True when they use so much memory that the transaction should be committed.
    pub(crate) fn is_crowded(&self) -> bool {
        self.count() > ENTRIES_MAX
    }

    /// Takes all, in order of address.
    pub(crate) fn take_sorted(&self) -> Vec<(Logical, ExtentKind)> {
        let mut all = Vec::with_capacity(self.count());
        for shard in &self.shards {
            all.extend(std::mem::take(&mut *shard.lock()).into_iter().map(|(at, kind)| (Logical(at), kind)));
        }
        self.count.fetch_sub(all.len(), Ordering::Relaxed);
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }
}
