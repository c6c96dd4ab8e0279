//! The log of the running transaction, as far as it is kept in memory. What is done with it
//! stands in `log`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::superblock::Superblock;
use btrfs_disk::{Generation, Logical, TreeId};

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::locks::{Condvar, Mutex, MutexGuard, Rank, RwLock};
use crate::space::{Extent, Space};
use crate::tree::{Forest, Tree};

use super::dirty::DirtyBlocks;

/// The log of the running transaction.
pub(crate) struct Log {
    /// Shared by who inserts; alone for who copies out what is to be written.
    pub(super) gate: RwLock<()>,
    pub(super) trees: Mutex<Trees>,
    pub(super) dirty: DirtyBlocks,
    pub(super) group: Mutex<Group>,
    pub(super) group_changed: Condvar,
    /// Somebody whom the leader of a sync waits for has come, or gone away.
    pub(super) arrived: Condvar,
    /// The newest transaction whose changes a log cannot say.
    needs_commit: AtomicU64,
    /// The superblock on the device, without a log.
    durable: Mutex<Superblock>,
}

#[derive(Default)]
pub(super) struct Trees {
    pub(super) root: Option<Arc<Tree>>,
    pub(super) of: BTreeMap<TreeId, Arc<Tree>>,
    /// The superblock on the device that leads to the log.
    pub(super) superblock: Option<Superblock>,
    /// Every block that the log ever had in this transaction.
    pub(super) taken: Vec<Extent>,
    /// Those of them that nothing on the device leads to.
    pub(super) reusable: Vec<Logical>,
}

/// Who waits for whom.
#[derive(Default)]
pub(super) struct Group {
    /// How many began to insert something that they want synced.
    pub(super) begun: u64,
    /// How many of those asked for it, or gave up.
    pub(super) ended: u64,
    /// Ticket of the last one who asked.
    pub(super) asked: u64,
    /// Ticket up to which everything is durable.
    pub(super) done: u64,
    pub(super) is_led: bool,
}

/// Somebody who inserts into the log and then wants it synced: whoever leads a sync waits for him.
#[must_use = "the next sync waits for it"]
pub struct LogJoin<'a> {
    log: &'a Log,
    is_over: bool,
}

impl<'a> LogJoin<'a> {
    pub(super) fn new(log: &'a Log) -> Self {
        log.group.lock().begun += 1;
        Self { log, is_over: false }
    }

    /// Asks for a sync; returns the ticket.
    pub(super) fn ask(mut self) -> u64 {
        self.is_over = true;
        let mut group = self.log.group.lock();
        group.asked += 1;
        self.log.end_one(&mut group);
        group.asked
    }
}

impl Drop for LogJoin<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.log.end_one(&mut self.log.group.lock());
        }
    }
}

impl std::fmt::Debug for LogJoin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogJoin")
    }
}

/// What a transaction's log was.
pub(super) struct Ended {
    /// It had blocks.
    pub(super) had_log: bool,
    /// The superblock on the device that leads to it, if it was synced.
    pub(super) superblock: Option<Superblock>,
}

impl Log {
    /// An empty log on top of the superblock on the device.
    pub(crate) fn new(durable: Superblock) -> Self {
        // A log that is there already stays until a commit took what it says.
        let has_log = durable.fields().log_root.get() != 0;
        let useless = if has_log { durable.generation().0 + 1 } else { 0 };
        Self {
            gate: RwLock::new(Rank::LogGate, ()),
            trees: Mutex::new(Rank::Counters, Trees::default()),
            dirty: DirtyBlocks::new(),
            group: Mutex::new(Rank::Exclusive, Group::default()),
            group_changed: Condvar::new(),
            arrived: Condvar::new(),
            needs_commit: AtomicU64::new(useless),
            durable: Mutex::new(Rank::LogSuper, durable),
        }
    }

    /// From now on until the next commit nobody may rely on the log.
    pub(crate) fn require_commit(&self, generation: Generation) {
        self.needs_commit.fetch_max(generation.0, Ordering::Relaxed);
    }

    pub(super) fn is_useless(&self, generation: Generation) -> bool {
        self.needs_commit.load(Ordering::Relaxed) >= generation.0
    }

    /// The superblock on the device. A commit holds it from its critical section until its own
    /// is there.
    pub(super) fn lock_superblock(&self) -> MutexGuard<'_, Superblock> {
        self.durable.lock()
    }

    fn end_one(&self, group: &mut Group) {
        group.ended += 1;
        if group.is_led {
            self.arrived.notify_one();
        }
    }

    /// True while the log has blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.trees.lock().taken.is_empty()
    }

    /// Ends the log of a transaction that settles: its blocks stay out of use until the
    /// superblock that no longer leads to them is durable.
    /// Says whether there was one.
    ///
    /// # Errors
    /// `Corrupt` when one of them is in no block group.
    pub(super) fn end(&self, forest: &Forest, space: &Space) -> Result<Ended> {
        let trees = std::mem::take(&mut *self.trees.lock());
        drop(self.dirty.take_sorted());
        let had_log = !trees.taken.is_empty();
        for extent in trees.taken {
            forest.forget(extent.at);
            if mutated(Mutation::LogBlocksFreedEarly) {
                space.free_now(extent)?;
                continue;
            }
            space.pin(extent)?;
        }
        Ok(Ended { had_log, superblock: trees.superblock })
    }
}
