//! Inserts items into log trees. Called by handles that record an fsync (`btrfs`, `log/record`).

use std::sync::Arc;

#[cfg(feature = "ablation")]
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::error::{Error, SpaceKind};
use crate::extent::CsumTree;
use crate::locks::ReadGuard;
use crate::space::{AllocRequest, Payer, Reservation};
use crate::tree::{Block, BlockView, Bytes, Edit, Host, Tree, TreeKind};
use crate::txn::{Engine, Txn};

/// The host of log tree edits: their blocks have no references.
pub(super) struct LogHost<'a> {
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

    fn alloc_block(&self, _tree: &Tree, _level: u8) -> Result<Logical> {
        if let Some(at) = self.engine.log.trees.lock().reusable.pop() {
            return Ok(at);
        }
        let len = self.engine.nodesize();
        let (kind, available) = (SpaceKind::Metadata, self.reservation.left(SpaceKind::Metadata));
        if available < len {
            // A commit makes the changes durable as well: no reason to use the global reserve.
            return Err(Error::NoSpace { kind, needed: len, available });
        }
        let request = AllocRequest { kind, len, min_len: len, hint: None, window: 0 };
        let extent = self.engine.space.alloc(&request, Payer::Reservation(self.reservation))?;
        self.engine.check_unused(extent)?;
        self.engine.space.accounts().expect_freed(kind, len);
        self.engine.log.trees.lock().taken.push(extent);
        Ok(extent.at)
    }

    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, _new: &mut [u8]) -> Result<()> {
        // The superblock on the device may lead to the block: it is freed when the transaction ends.
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

/// Insertions into the log tree of one subvolume. No sync begins while the value lives, so that all insertions through
/// one value become durable together.
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
        // The insertion was done in part: the log must not be written in this state.
        changed.inspect_err(|_| self.txn.require_commit())
    }

    /// The log tree, for lookups.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Inserts an item or replaces its bytes.
    ///
    /// # Errors
    /// Those of reading and copying blocks.
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
    pub(super) fn log_host(&self) -> LogHost<'_> {
        LogHost { engine: &self.engine, generation: self.generation, reservation: &self.reservation }
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

    pub(super) fn new_log_tree(&self) -> Result<Arc<Tree>> {
        let forest = self.engine.trees.forest();
        let root = Tree::create_root(&self.log_host(), forest, TreeId::TREE_LOG, None)?;
        let tree = Tree::new(Arc::clone(forest), TreeId::TREE_LOG, TreeKind::Single, root);
        tree.note_changed();
        Ok(Arc::new(tree))
    }
}
