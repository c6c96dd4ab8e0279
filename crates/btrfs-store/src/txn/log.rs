//! Log trees: what one fsync made durable between two commits.
//!
//! ```text
//! superblock.log_root --> log root tree --(-6, ROOT_ITEM, subvolume)--> log tree of the subvolume
//! ```
//!
//! A log tree holds copies of items. Its blocks belong to the running transaction, are not in
//! the extent tree, and go when the transaction commits: then what they say is in the trees
//! themselves. After a crash they are replayed into the subvolume.
//!
//! Syncing is a group matter: whoever finds no sync under way leads one, waits for those who are
//! inserting something to be synced, and makes everything durable that is in the log then; those
//! who come later wait for the next. Whoever asked may do something else before it waits, without a
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

use btrfs_disk::items::{OnDisk, RootItem};
#[cfg(feature = "ablation")]
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::superblock::Superblock;
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::error::{Error, SpaceKind};
use crate::extent::CsumTree;
use crate::locks::ReadGuard;
use crate::space::{AllocRequest, Payer, Reservation};
use crate::tree::{Block, BlockView, Bytes, Edit, Host, RootPtr, Tree, TreeKind};

use super::engine::Engine;
use super::handle::Txn;
use super::log_state::LogJoin;
use super::write_out::Batch;

/// Inode fields of a log tree's root item, as the kernel fills them in.
const ROOT_INODE_SIZE: u64 = 3;
const ROOT_INODE_MODE: u32 = 0o040_755;

/// Times a sync waits for more to be synced with it.
const GATHER_ROUNDS_MAX: usize = 16;

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

impl Engine {
    /// Makes durable what was asked for, with its transaction or before.
    pub(crate) fn sync_asked(
        self: &Arc<Self>,
        asked: LogTicket,
        reserve: impl FnOnce() -> Result<Reservation>,
    ) -> Result<LogSync> {
        let is_done = || {
            let done = self.log.group.lock().done;
            done >= asked.ticket || self.gate.durable() >= asked.generation
        };
        if is_done() {
            return Ok(LogSync::Done);
        }
        let reservation = reserve()?;
        self.health.check()?;
        let generation = self.gate.enter();
        let txn = Txn::new(Arc::clone(self), generation, reservation, false);
        if generation == asked.generation {
            return txn.sync_asked(asked.ticket);
        }
        drop(txn);
        // It settled meanwhile, and is on its way to the devices.
        drop(self.gate.serialize());
        self.health.check()?;
        Ok(if is_done() { LogSync::Done } else { LogSync::NeedsCommit })
    }
}

/// The transaction as log trees see it: blocks without references.
struct LogHost<'a> {
    engine: &'a Engine,
    generation: Generation,
    reservation: &'a Reservation,
}

impl Host for LogHost<'_> {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn owns(&self, block: &Bytes) -> bool {
        mutated(Mutation::LogBlocksEditedInPlace) || self.engine.log.dirty.contains(block.at)
    }

    fn alloc_block(&self, _tree: &Tree, _level: u8, _hint: Logical) -> Result<Logical> {
        if let Some(at) = self.engine.log.trees.lock().reusable.pop() {
            return Ok(at);
        }
        let len = self.engine.nodesize();
        let (kind, available) = (SpaceKind::Metadata, self.reservation.left(SpaceKind::Metadata));
        if available < len {
            // A commit does as well: no reason to use what is kept back for it.
            return Err(Error::NoSpace { kind, needed: len, available });
        }
        let request = AllocRequest { kind, len, min_len: len, hint: None };
        let extent = self.engine.space.alloc(&request, Payer::Reservation(self.reservation))?;
        self.engine.check_unused(extent)?;
        self.engine.space.accounts().expect_freed(kind, len);
        self.engine.log.trees.lock().taken.push(extent);
        Ok(extent.at)
    }

    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, _new: &mut [u8]) -> Result<()> {
        // The superblock on the device may lead to it: it goes with the transaction.
        tree.forest().forget(old.at);
        Ok(())
    }

    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        let log = &self.engine.log;
        let is_written = !log.dirty.contains(block.at);
        log.dirty.remove(block.at);
        tree.forest().forget(block.at);
        if !is_written {
            log.trees.lock().reusable.push(block.at);
        }
        Ok(())
    }

    fn block_dirtied(&self, block: &Block) {
        self.engine.log.dirty.insert(block);
    }
}

/// Insertions into the log tree of one subvolume. No sync begins while it lives, so that what
/// is inserted through one value becomes durable together.
pub struct LogEdit<'a> {
    txn: &'a Txn,
    tree: Arc<Tree>,
    _gate: ReadGuard<'a, ()>,
}

impl std::fmt::Debug for LogEdit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogEdit").field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl LogEdit<'_> {
    fn change<R>(&self, f: impl FnOnce(&Edit<'_>, &Tree) -> Result<R>) -> Result<R> {
        let changed = f(&Edit::new(&self.txn.log_host()), &self.tree);
        // Half of an insertion is in: the log must not be written as it is.
        changed.inspect_err(|_| self.txn.require_commit())
    }

    /// The log tree, for looking at what is in it.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Inserts an item or replaces its bytes.
    ///
    /// # Errors
    /// What reading and copying blocks can fail with.
    pub fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.change(|edit, tree| edit.replace(tree, key, key, &[(*key, bytes)]))
    }

    /// Replaces all items of a range, both ends included, by these, whose keys ascend.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn replace(&self, from: &Key, to: &Key, items: &[(Key, &[u8])]) -> Result<()> {
        #[cfg(feature = "ablation")]
        if crate::ablation::makes_items_in_leaf() && items.iter().all(|(key, _)| key.item_type == EXTENT_DATA) {
            return self.change(|edit, tree| edit.replace_in_locked_leaf(tree, from, to, items));
        }
        self.change(|edit, tree| edit.replace(tree, from, to, items))
    }

    /// Stores the checksums of written data, one per sector.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_csums(&self, at: Logical, csums: &[u8]) -> Result<()> {
        let sizes = self.txn.engine.csum_sizes();
        self.change(|edit, tree| CsumTree::new(tree, &sizes).put(edit, at, csums))
    }
}

impl Txn {
    fn log_host(&self) -> LogHost<'_> {
        LogHost { engine: &self.engine, generation: self.generation, reservation: &self.reservation }
    }

    /// True when a log cannot say all that happened in this transaction.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.engine.log.is_useless(self.generation)
    }

    /// Makes every sync of the log fail over to a commit until the next one: for changes that a
    /// log cannot say.
    pub fn require_commit(&self) {
        self.engine.log.require_commit(self.generation);
    }

    /// The log tree of a subvolume, for insertions. Blocks come out of the handle's reservation.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`], or when there is no room.
    pub fn log(&self, subvolume: TreeId) -> Result<LogEdit<'_>> {
        self.engine.health.check()?;
        let gate = self.engine.log.gate.read();
        Ok(LogEdit { txn: self, tree: self.log_tree(subvolume)?, _gate: gate })
    }

    fn log_tree(&self, subvolume: TreeId) -> Result<Arc<Tree>> {
        if let Some(tree) = self.engine.log.trees.lock().of.get(&subvolume) {
            return Ok(Arc::clone(tree));
        }
        // Two may come here at once; the block of the second stays unused until the commit.
        let tree = self.new_log_tree()?;
        let mut trees = self.engine.log.trees.lock();
        Ok(Arc::clone(trees.of.entry(subvolume).or_insert(tree)))
    }

    fn new_log_tree(&self) -> Result<Arc<Tree>> {
        let forest = self.engine.trees.forest();
        let root = Tree::create_root(&self.log_host(), forest, TreeId::TREE_LOG, None)?;
        let tree = Tree::new(Arc::clone(forest), TreeId::TREE_LOG, TreeKind::Single, root);
        tree.note_changed();
        Ok(Arc::new(tree))
    }

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
    /// one for each. Returns the last one's ticket.
    fn gather(&self) -> u64 {
        let log = &self.engine.log;
        let mut group = log.group.lock();
        for _ in 0..GATHER_ROUNDS_MAX {
            let begun = group.begun;
            log.arrived.wait_while(&mut group, |group| group.ended < begun);
            let asked = group.asked;
            // Where others wait for a processor, they may be about to ask too.
            drop(group);
            std::thread::yield_now();
            group = log.group.lock();
            if (group.asked, group.begun) == (asked, begun) {
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
    fn is_next_after(&self, on_device: &Superblock) -> bool {
        on_device.generation().0 + 1 == self.generation.0
    }

    fn lead_sync(&self) -> Result<LogSync> {
        let log = &self.engine.log;
        let mut superblock = log.lock_superblock().clone();
        if !self.is_next_after(&superblock) {
            return Ok(LogSync::NeedsCommit);
        }
        let (batch, root) = {
            let _alone = log.gate.write();
            if log.is_useless(self.generation) {
                return Ok(LogSync::NeedsCommit);
            }
            let root = match self.write_log_roots().inspect_err(|_| self.require_commit()) {
                Err(Error::NoSpace { .. }) => return Ok(LogSync::NeedsCommit),
                root => root?,
            };
            (Batch::copy(&log.dirty.take_sorted()), root)
        };
        let fields = superblock.fields_mut();
        fields.log_root = root.at.0.into();
        fields.log_root_level = root.level;
        if let Err(error) = self.write_synced(batch, &superblock) {
            self.engine.health.poison_unless_full(&error);
            // Of what was taken out to be written, some is not on the device.
            self.require_commit();
            return if error.is_device_full() { Ok(LogSync::NeedsCommit) } else { Err(error) };
        }
        log.trees.lock().superblock = Some(superblock);
        Ok(LogSync::Done)
    }

    /// In the order that a crash at any point allows: what the superblock leads to is durable first.
    fn write_synced(&self, batch: Batch, superblock: &Superblock) -> Result<()> {
        let engine = &self.engine;
        if mutated(Mutation::LeavesAfterSuperblock) {
            engine.pool.write_primary_superblock(superblock)?;
            return engine.write_batch(batch, self.generation).and_then(|()| engine.pool.flush());
        }
        engine.write_batch(batch, self.generation)?;
        if !mutated(Mutation::NoFlushBeforeSuperblock) {
            engine.pool.flush()?;
        }
        engine.pool.write_primary_superblock(superblock)
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
