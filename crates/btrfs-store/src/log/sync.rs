//! Makes a log durable. Called by the file system's fsync (`btrfs`, `log/record`).
//!
//! Threads sync as groups: a thread that finds no sync running leads one, waits for the threads that are inserting
//! items to be synced, and makes the whole log durable; threads that come later wait for the next sync. A thread that
//! has a ticket may do other work before it waits, without a handle: if the transaction is committed first, the ticket
//! is fulfilled too. Written blocks are never edited in place again, since the superblock on the device leads to them:
//! the next insertion copies them.
//!
//! ```text
//! insert (many at once) | sync: root items, copy of the dirty blocks (alone, in memory)
//!                       |       blocks written, flush, superblock with log_root written, flush
//! ```
//!
//! A commit takes `durable` after the last handle has gone and keeps it until its own superblock
//! is on the device, so the superblock that a sync writes always is the one before it plus the
//! place of the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use btrfs_disk::items::{OnDisk, RootItem};
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Generation, Key, TreeId};
use btrfs_pool::FsSuper;

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::error::Error;
use crate::store::{Need, Store};
use crate::tree::{Edit, RootPtr, Tree};
use crate::txn::{Batch, Group, Log, Txn};

/// Inode fields of a log tree's root item, as the kernel fills them in.
const ROOT_INODE_SIZE: u64 = 3;
const ROOT_INODE_MODE: u32 = 0o040_755;

/// Items for whose changes a sync of the log reserves space: the roots of the log trees.
const SYNC_ITEMS: u32 = 4;

/// Times a sync waits for more to be synced with it.
const GATHER_ROUNDS_MAX: usize = 16;

/// How long it waits for them in all. They hold handles meanwhile, as it does, and a commit waits for those handles,
/// with all threads that wait for the commit: on busy processors each round may take tens of milliseconds.
const GATHER_MAX: Duration = Duration::from_millis(4);

/// Whether a sync of the log made the changes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "changes that the log cannot record have to be committed"]
pub enum LogSync {
    /// The log is durable up to the ticket.
    Done,
    /// The transaction has a change that a log cannot record: commit instead.
    NeedsCommit,
}

/// A request for a sync: it covers all that was in the log of a transaction when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the data is not durable until the ticket is passed to `sync_asked`"]
pub struct LogTicket {
    /// The transaction.
    pub generation: Generation,
    /// Its number among all requests.
    pub ticket: u64,
}

/// A thread that inserts into the log and then wants it synced. The leader of a sync waits for it to ask.
#[must_use = "the next sync waits for it"]
pub struct LogJoin<'a> {
    log: &'a Log,
    is_over: bool,
}

impl<'a> LogJoin<'a> {
    fn new(log: &'a Log) -> Self {
        log.group.lock().begun += 1;
        Self { log, is_over: false }
    }

    /// Asks for a sync; returns the ticket.
    fn ask(mut self) -> u64 {
        self.is_over = true;
        let mut group = self.log.group.lock();
        group.asked += 1;
        end_one(self.log, &mut group);
        group.asked
    }
}

impl Drop for LogJoin<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            end_one(self.log, &mut self.log.group.lock());
        }
    }
}

impl std::fmt::Debug for LogJoin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogJoin")
    }
}

fn end_one(log: &Log, group: &mut Group) {
    group.ended += 1;
    if group.is_led {
        log.arrived.notify_one();
    }
}

impl Store {
    /// Makes the request `asked` ([`Txn::ask_sync`]) durable. Not to be called with an open handle.
    ///
    /// # Errors
    /// As [`Self::reserve`]; the device's, after which nothing more is written.
    pub fn sync_asked(&self, asked: LogTicket) -> Result<LogSync> {
        match self.sync_or_fail(asked) {
            Err(Error::NoSpace { .. }) => Ok(LogSync::NeedsCommit),
            synced => synced,
        }
    }

    fn sync_or_fail(&self, asked: LogTicket) -> Result<LogSync> {
        let engine = &self.0;
        // Committed with its transaction, or with one before.
        let is_done = || {
            let done = engine.log.group.lock().done;
            (done >= asked.ticket || engine.gate.durable() >= asked.generation) && engine.unnoted_losses().is_none()
        };
        if is_done() {
            return Ok(LogSync::Done);
        }
        let txn = self.begin(self.reserve(Need { items: SYNC_ITEMS, data: 0 })?)?;
        if txn.generation() == asked.generation {
            return txn.sync_asked(asked.ticket);
        }
        drop(txn);
        // The transaction settled meanwhile, and its commit is being written.
        drop(engine.gate.serialize());
        engine.health.check()?;
        Ok(if is_done() { LogSync::Done } else { LogSync::NeedsCommit })
    }
}

impl Txn {
    /// To be called before inserting items that are to be synced: a sync that begins meanwhile waits for this thread.
    /// Until it asks or drops the value, the caller must not block on a thread that waits for a sync or a commit
    /// (deadlock).
    pub fn join_log(&self) -> LogJoin<'_> {
        LogJoin::new(&self.engine.log)
    }

    /// Requests a sync of the log and of the data it refers to; does not block. The handle may end before the sync.
    pub fn ask_sync(&self, join: LogJoin<'_>) -> LogTicket {
        LogTicket { generation: self.generation, ticket: join.ask() }
    }

    /// Makes a request of this transaction durable.
    fn sync_asked(&self, ticket: u64) -> Result<LogSync> {
        let log = &self.engine.log;
        let mut group = log.group.lock();
        while group.done < ticket {
            self.engine.health.check()?;
            if self.engine.is_log_useless(self.generation) {
                return Ok(LogSync::NeedsCommit);
            }
            if group.is_led && mutated(Mutation::GroupNotAwaited) {
                return Ok(LogSync::Done);
            }
            if group.is_led {
                log.group_changed.wait(&mut group);
                continue;
            }
            group.is_led = true;
            drop(group);
            let goal = self.gather();
            let written = self.lead_sync();
            group = log.group.lock();
            group.is_led = false;
            if matches!(written, Ok(LogSync::Done)) {
                group.done = goal;
            }
            log.group_changed.notify_all();
            if !matches!(written, Ok(LogSync::Done)) {
                return written;
            }
        }
        Ok(LogSync::Done)
    }

    /// Waits for the threads that are about to ask for a sync: one sync for all of them costs little more than one for
    /// each. Requests that come later are left to the next sync. Returns the last ticket.
    fn gather(&self) -> u64 {
        let log = &self.engine.log;
        // Real time, not the time of `Env`: other threads act meanwhile.
        let deadline = Instant::now() + GATHER_MAX;
        let mut group = log.group.lock();
        for _ in 0..GATHER_ROUNDS_MAX {
            let begun = group.begun;
            while group.ended < begun && log.arrived.wait_until(&mut group, deadline) {}
            let asked = group.asked;
            // Where others wait for a processor, they may be about to ask too.
            drop(group);
            std::thread::yield_now();
            group = log.group.lock();
            if (group.asked, group.begun) == (asked, begun) || Instant::now() >= deadline {
                break;
            }
        }
        group.asked
    }

    /// Makes earlier writes durable, where nothing new was put into the log: the present log or the last commit, and
    /// data that was overwritten in place.
    ///
    /// # Errors
    /// The device's, after which nothing more is written.
    pub fn sync_logged(&self, join: LogJoin<'_>) -> Result<LogSync> {
        let log = &self.engine.log;
        let is_idle = {
            let group = log.group.lock();
            !group.is_led && log.dirty.count() == 0
        };
        if !is_idle {
            return self.sync_asked(join.ask());
        }
        drop(join);
        if self.engine.is_log_useless(self.generation) {
            return Ok(LogSync::NeedsCommit);
        }
        let is_next = self.is_next_after(&log.lock_superblock());
        self.engine.health.check()?;
        if !is_next {
            return Ok(LogSync::NeedsCommit);
        }
        if !mutated(Mutation::NoFlushWithoutNews) {
            self.engine.flush()?;
        }
        Ok(self.unless_lost())
    }

    /// A sync on which a device failed does not count.
    fn unless_lost(&self) -> LogSync {
        if self.engine.unnoted_losses().is_some() { LogSync::NeedsCommit } else { LogSync::Done }
    }

    /// False while the commit before this transaction is still on its way to the devices.
    fn is_next_after(&self, on_device: &FsSuper) -> bool {
        on_device.generation().0 + 1 == self.generation.0
    }

    fn lead_sync(&self) -> Result<LogSync> {
        let log = &self.engine.log;
        let mut superblock = log.lock_superblock().clone();
        if !self.is_next_after(&superblock) {
            return Ok(LogSync::NeedsCommit);
        }
        let (mut batch, root) = {
            let _alone = log.gate.write();
            if self.engine.is_log_useless(self.generation) {
                return Ok(LogSync::NeedsCommit);
            }
            let root = match self.write_log_roots().inspect_err(|_| self.require_commit()) {
                Err(Error::NoSpace { .. }) => return Ok(LogSync::NeedsCommit),
                root => root?,
            };
            (self.engine.copy(&log.dirty.take_sorted()), root)
        };
        let renewed = self.engine.renew_mirrors(&superblock);
        let fields = superblock.fields_mut();
        fields.log_root = root.at.0.into();
        fields.log_root_level = root.level;
        let written = renewed.and_then(|()| self.write_synced(&mut batch, &superblock));
        self.engine.end(batch);
        if let Err(error) = written {
            self.engine.health.poison_unless_full(&error);
            // Some of the blocks taken for writing are not on the device.
            self.require_commit();
            return if error.is_device_full() { Ok(LogSync::NeedsCommit) } else { Err(error) };
        }
        log.trees.lock().superblock = Some(superblock);
        Ok(self.unless_lost())
    }

    /// Writes in the order that a crash at any point allows: blocks are durable before a superblock that leads to them.
    fn write_synced(&self, batch: &mut Batch, superblock: &FsSuper) -> Result<()> {
        let engine = &self.engine;
        if mutated(Mutation::LeavesAfterSuperblock) {
            engine.pool().write_primary_superblock(superblock)?;
            return engine.write_batch(batch, self.generation).and_then(|()| Ok(engine.pool().flush()?));
        }
        engine.write_batch(batch, self.generation)?;
        engine.pool().flush()?;
        Ok(engine.pool().write_primary_superblock(superblock)?)
    }

    /// Brings the log root tree up to date; the caller has the log exclusively.
    fn write_log_roots(&self) -> Result<RootPtr> {
        let log = &self.engine.log;
        let (root, of) = {
            let trees = log.trees.lock();
            (trees.root.clone(), trees.of.clone())
        };
        let root = match root {
            Some(root) => root,
            None => {
                let made = self.new_log_tree()?;
                log.trees.lock().root = Some(Arc::clone(&made));
                made
            }
        };
        let host = self.log_host();
        let edit = Edit::new(&host);
        let is_stale = mutated(Mutation::StaleLogRoot) && log.trees.lock().superblock.is_some();
        for (subvolume, tree) in of {
            if tree.take_changed() && !is_stale {
                let key = Key::new(TreeId::TREE_LOG.0, ROOT_ITEM, subvolume.0);
                edit.put(&root, &key, self.log_root_item(&tree).bytes())?;
            }
        }
        Ok(root.root_ptr())
    }

    fn log_root_item(&self, tree: &Tree) -> RootItem {
        let root = tree.root_ptr();
        let mut item = RootItem::zeroed();
        item.inode.generation = 1.into();
        item.inode.size = ROOT_INODE_SIZE.into();
        item.inode.nbytes = self.engine.nodesize().into();
        item.inode.nlink = 1.into();
        item.inode.mode = ROOT_INODE_MODE.into();
        item.bytenr = root.at.0.into();
        item.level = root.level;
        item.generation = root.generation.0.into();
        item.generation_v2 = root.generation.0.into();
        item.bytes_used = self.engine.nodesize().into();
        item.refs = 0.into();
        item
    }
}
