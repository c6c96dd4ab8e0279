//! Keeps the log of the running transaction, as far as a commit has to know it: a commit ends it. `log` writes and
//! reads it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::{Generation, Logical, TreeId};
use btrfs_pool::FsSuper;

use crate::ablation::{Mutation, mutated};
use crate::locks::{Condvar, Mutex, MutexGuard, Rank, RwLock};
use crate::space::{Extent, Space};
use crate::tree::{Forest, Tree};
use crate::{Error, Result};

use super::dirty_blocks::DirtyBlocks;

/// The log of the running transaction.
pub(crate) struct Log {
    /// Held shared by log writers, exclusively by a log sync.
    pub(crate) gate: RwLock<()>,
    pub(crate) trees: Mutex<Trees>,
    pub(crate) dirty: DirtyBlocks,
    pub(crate) group: Mutex<Group>,
    pub(crate) group_changed: Condvar,
    /// A thread that the leader of a sync waits for has come, or gone away.
    pub(crate) arrived: Condvar,
    /// The newest transaction with changes that a log cannot record.
    needs_commit: AtomicU64,
    /// The superblock on the device, without a log.
    durable: Mutex<FsSuper>,
    pub(crate) unreplayed: Unreplayed,
}

#[derive(Default)]
pub(crate) struct Trees {
    pub(crate) root: Option<Arc<Tree>>,
    pub(crate) of: BTreeMap<TreeId, Arc<Tree>>,
    /// The superblock on the device that leads to the log.
    pub(crate) superblock: Option<FsSuper>,
    /// Every block that the log ever had in this transaction.
    pub(crate) taken: Vec<Extent>,
    /// Those of them that no superblock on the device leads to.
    pub(crate) reusable: Vec<Logical>,
}

/// The state of group syncs: which requests there are, and up to which all is durable.
#[derive(Default)]
pub(crate) struct Group {
    /// How many threads began to insert items that they want synced.
    pub(crate) begun: u64,
    /// How many of those requested a sync, or gave up.
    pub(crate) ended: u64,
    /// The last ticket given out.
    pub(crate) asked: u64,
    /// Ticket up to which everything is durable.
    pub(crate) done: u64,
    pub(crate) is_led: bool,
}

/// The log of a transaction that has settled.
pub(crate) struct Ended {
    /// It had blocks.
    pub(crate) had_log: bool,
    /// The superblock on the device that leads to it, if it was synced.
    pub(crate) superblock: Option<FsSuper>,
}

impl Log {
    /// An empty log on top of the superblock on the device.
    pub(crate) fn new(durable: FsSuper) -> Self {
        // A log found at opening stays until a commit has its changes.
        let has_log = durable.fields().log_root.get() != 0;
        let useless = if has_log { durable.generation().0 + 1 } else { 0 };
        Self {
            gate: RwLock::new(Rank::LogGate, ()),
            trees: Mutex::new(Rank::Counters, Trees::default()),
            dirty: DirtyBlocks::new(),
            group: Mutex::new(Rank::Waiting, Group::default()),
            group_changed: Condvar::new(),
            arrived: Condvar::new(),
            needs_commit: AtomicU64::new(useless),
            durable: Mutex::new(Rank::LogSuper, durable),
            unreplayed: Unreplayed(AtomicBool::new(has_log)),
        }
    }

    /// Makes the log useless until the next commit.
    pub(crate) fn require_commit(&self, generation: Generation) {
        self.needs_commit.fetch_max(generation.0, Ordering::Relaxed);
    }

    pub(crate) fn is_useless(&self, generation: Generation) -> bool {
        self.needs_commit.load(Ordering::Relaxed) >= generation.0
    }

    /// The superblock on the device. A commit holds it from its critical section until its own
    /// is there.
    pub(crate) fn lock_superblock(&self) -> MutexGuard<'_, FsSuper> {
        self.durable.lock()
    }

    /// Waits for the end of a sync of the log, and keeps others from beginning until the guard is dropped.
    pub(crate) fn stop_syncs(&self) -> StoppedSyncs<'_> {
        let mut group = self.group.lock();
        while group.is_led {
            self.group_changed.wait(&mut group);
        }
        group.is_led = true;
        StoppedSyncs(self)
    }

    /// True while the log has blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.trees.lock().taken.is_empty()
    }

    /// Ends the log of a transaction that settles: its blocks stay pinned until the superblock that no longer leads to
    /// them is durable. `is_freed` is called with each. Returns whether there was a log.
    ///
    /// # Errors
    /// `Corrupt` when one of them is in no block group.
    pub(crate) fn end(&self, forest: &Forest, space: &Space, is_freed: impl Fn(Logical)) -> Result<Ended> {
        let trees = std::mem::take(&mut *self.trees.lock());
        drop(self.dirty.take_sorted());
        let had_log = !trees.taken.is_empty();
        for extent in trees.taken {
            forest.forget(extent.at);
            if mutated(Mutation::LogBlocksFreedEarly) {
                space.free_now(extent)?;
                continue;
            }
            is_freed(extent.at);
            space.pin(extent)?;
        }
        Ok(Ended { had_log, superblock: trees.superblock })
    }
}

/// Keeps syncs of the log from beginning.
#[must_use = "syncs begin again when it is dropped"]
pub(crate) struct StoppedSyncs<'a>(&'a Log);

impl Drop for StoppedSyncs<'_> {
    fn drop(&mut self) {
        self.0.group.lock().is_led = false;
        self.0.group_changed.notify_all();
    }
}

/// Whether a log that a crash left has yet to be replayed: nothing is committed before.
#[derive(Debug)]
pub(crate) struct Unreplayed(AtomicBool);

impl Unreplayed {
    pub(crate) fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The log was replayed into the running transaction.
    pub(crate) fn done(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Refuses a commit that would lose the log.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_waiting() {
            return Err(Error::bug("a log waits to be replayed", "commit"));
        }
        Ok(())
    }
}
