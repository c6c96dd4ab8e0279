//! Making a log durable.
//!
//! Threads sync as groups: a thread that finds no sync under way leads one, waits for those who are
//! inserting something to be synced, and makes everything durable that is in the log then; those
//! who come later wait for the next. A thread that asked may do something else before it waits, without a
//! handle: then the transaction may be committed first, which is as good. Blocks that were written
//! are never edited in place again, since the superblock on the device leads to them: the next
//! insertion copies them.
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

/// Items for whose changes a sync of the log reserves: the roots of the log trees.
const SYNC_ITEMS: u32 = 4;

/// Times a sync waits for more to be synced with it.
const GATHER_ROUNDS_MAX: usize = 16;

/// How long it waits for them in all. They hold handles meanwhile, as it does, and a commit waits for those, with all
/// who wait for the commit: where other programs keep the processors busy, each round may take tens of milliseconds.
const GATHER_MAX: Duration = Duration::from_millis(4);

/// Whether a sync of the log did what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what the log could not take has to be committed"]
pub enum LogSync {
    /// What was in the log is durable.
    Done,
    /// Something happened in this transaction that a log cannot say: commit instead.
    NeedsCommit,
}

/// What was asked to become durable: all that was in the log of a transaction by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nobody has promised anything yet"]
pub struct LogTicket {
    /// The transaction.
    pub generation: Generation,
    /// Its number among all that were asked for.
    pub ticket: u64,
}

/// A thread that inserts into the log and then wants it synced. The leader of a sync waits for it.
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
    /// Makes durable what was asked for ([`Txn::ask_sync`]). Not to be called with an open handle.
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
            done >= asked.ticket || engine.gate.durable() >= asked.generation
        };
        if is_done() {
            return Ok(LogSync::Done);
        }
        let txn = self.begin(self.reserve(Need { items: SYNC_ITEMS, data: 0 })?)?;
        if txn.generation() == asked.generation {
            return txn.sync_asked(asked.ticket);
        }
        drop(txn);
        // It settled meanwhile, and is on its way to the devices.
        drop(engine.gate.serialize());
        engine.health.check()?;
        Ok(if is_done() { LogSync::Done } else { LogSync::NeedsCommit })
    }
}

impl Txn {
    /// To be called before something is inserted that is to be synced: a sync that begins
    /// meanwhile waits for it. Until it asks or is dropped, the caller waits for nobody who may wait
    /// for a sync or a commit.
    pub fn join_log(&self) -> LogJoin<'_> {
        LogJoin::new(&self.engine.log)
    }

    /// Asks for what is in the log to become durable, with the data it refers to; waits for nothing.
    /// The handle may end before that is so.
    pub fn ask_sync(&self, join: LogJoin<'_>) -> LogTicket {
        LogTicket { generation: self.generation, ticket: join.ask() }
    }

    /// Makes durable what was asked for in this transaction.
    fn sync_asked(&self, ticket: u64) -> Result<LogSync> {
        let log = &self.engine.log;
        let mut group = log.group.lock();
        while group.done < ticket {
            self.engine.health.check()?;
            if log.is_useless(self.generation) {
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

    /// Waits for those who are about to ask for a sync: one for all of them costs little more than
    /// one for each. Who did not ask in time is synced by the next. Returns the last one's ticket.
    fn gather(&self) -> u64 {
        let log = &self.engine.log;
        // Real time, not the time of `Env`: it is others who wait.
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

    /// Makes durable what was written before, where nothing new was put into the log: what the log
    /// has or the last commit, and data that was overwritten in place.
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
        if log.is_useless(self.generation) {
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
        Ok(LogSync::Done)
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
            if log.is_useless(self.generation) {
                return Ok(LogSync::NeedsCommit);
            }
            let root = match self.write_log_roots().inspect_err(|_| self.require_commit()) {
                Err(Error::NoSpace { .. }) => return Ok(LogSync::NeedsCommit),
                root => root?,
            };
            (self.engine.copy(&log.dirty.take_sorted()), root)
        };
        let fields = superblock.fields_mut();
        fields.log_root = root.at.0.into();
        fields.log_root_level = root.level;
        let written = self.write_synced(&mut batch, &superblock);
        self.engine.end(batch);
        if let Err(error) = written {
            self.engine.health.poison_unless_full(&error);
            // Of what was taken out to be written, some is not on the device.
            self.require_commit();
            return if error.is_device_full() { Ok(LogSync::NeedsCommit) } else { Err(error) };
        }
        log.trees.lock().superblock = Some(superblock);
        Ok(LogSync::Done)
    }

    /// In the order that a crash at any point allows: what the superblock leads to is durable first.
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

    /// Brings the log root tree up to date; nobody else is at work on the log.
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
