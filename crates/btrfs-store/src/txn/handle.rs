//! Holds the running transaction open and changes it: a handle ([`Txn`]). The crate `btrfs` makes all its changes
//! through one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use btrfs_disk::items::{OnDisk, RootItem};
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::superblock::LABEL_SIZE;
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::extent::RefChange;
use crate::space::Reservation;
use crate::tree::{Edit, EditItem, Tree};
use crate::{Error, Result};

use super::engine::Engine;
use super::host::{FundingSource, TxnHost};
use super::staging::Staged;

/// Reference heads that one staged item is charged as: a leaf may have to be copied.
pub(super) const HEADS_PER_STAGED: u64 = 16;

/// A handle on the running transaction: nothing is committed while it lives. Changes made
/// through one handle are committed together.
///
/// When a change fails after others succeeded, the transaction can't be completed and the
/// store stops writing ([`Error::Poisoned`]): earlier commits stay durable.
#[must_use = "a handle keeps the transaction from committing"]
pub struct Txn {
    pub(crate) engine: Arc<Engine>,
    pub(crate) generation: Generation,
    pub(crate) reservation: Reservation,
    pub(crate) is_exclusive: bool,
    has_changed: AtomicBool,
}

impl Txn {
    pub(crate) fn new(
        engine: Arc<Engine>,
        generation: Generation,
        reservation: Reservation,
        is_exclusive: bool,
    ) -> Self {
        Self { engine, generation, reservation, is_exclusive, has_changed: AtomicBool::new(false) }
    }

    pub(crate) fn host(&self) -> TxnHost<'_> {
        TxnHost {
            engine: &self.engine,
            generation: self.generation,
            funding: FundingSource::Handle(&self.reservation),
            keeps_freed: false,
        }
    }

    /// Notes a change, or poisons the store if a failure left the transaction half changed.
    pub(crate) fn track<R>(&self, result: Result<R>) -> Result<R> {
        match &result {
            Ok(_) => self.has_changed.store(true, Ordering::Relaxed),
            Err(Error::Exists { .. } | Error::NotFound { .. }) => {}
            Err(error) if self.has_changed.load(Ordering::Relaxed) => self.engine.health.poison(error),
            Err(_) => {}
        }
        result
    }

    /// Ends the operation for `reason`. When a part of it is in the transaction already, the store stops writing
    /// ([`Error::Poisoned`]), because the rest cannot follow; earlier commits stay durable. An operation that has not
    /// changed anything leaves no trace.
    pub fn abort(&self, reason: &Error) {
        if self.has_changed.load(Ordering::Relaxed) {
            self.engine.health.poison(reason);
        }
    }

    fn change<R>(&self, f: impl FnOnce(&Edit<'_>) -> Result<R>) -> Result<R> {
        self.engine.health.check()?;
        self.track(f(&Edit::new(&self.host())))
    }

    /// The transaction's number.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The rest of the handle's reservation.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// True when the transaction has a change that a log cannot record.
    #[must_use]
    pub fn needs_commit(&self) -> bool {
        self.engine.is_log_useless(self.generation)
    }

    /// Makes every sync of the log a commit until the next one: for changes that a log cannot record.
    pub fn require_commit(&self) {
        self.engine.log.require_commit(self.generation);
    }

    /// Inserts an item.
    ///
    /// # Errors
    /// [`Error::Exists`] when the key is taken; those of reading and copying blocks.
    pub fn insert(&self, tree: &Tree, key: &Key, bytes: &[u8]) -> Result<()> {
        self.change(|edit| edit.insert(tree, key, bytes))
    }

    /// Inserts items with ascending keys, as many at once as a leaf has room for.
    ///
    /// # Errors
    /// As [`Self::insert`]; items before a taken key are in.
    pub fn insert_batch(&self, tree: &Tree, items: &[(Key, &[u8])]) -> Result<()> {
        let mut rest = items;
        while !rest.is_empty() {
            // Leaf by leaf: a failure after the first is one in the middle.
            let count = self.change(|edit| edit.insert_run(tree, rest))?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Inserts an item or replaces its bytes.
    ///
    /// # Errors
    /// Those of reading and copying blocks.
    pub fn put(&self, tree: &Tree, key: &Key, bytes: &[u8]) -> Result<()> {
        self.change(|edit| edit.put(tree, key, bytes))
    }

    /// Changes an item's bytes in place; false when there is no such item.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn update(&self, tree: &Tree, key: &Key, f: impl FnOnce(&mut [u8])) -> Result<bool> {
        self.change(|edit| edit.update(tree, key, f))
    }

    /// Decides about an item with its leaf locked. `f` may run more than once
    /// and must not touch trees.
    ///
    /// # Errors
    /// As [`Self::put`], and whatever `f` fails with.
    pub fn edit(&self, tree: &Tree, key: &Key, f: impl FnMut(Option<&[u8]>) -> Result<EditItem>) -> Result<()> {
        self.change(|edit| edit.edit(tree, key, f))
    }

    /// Decides about an item that may be missing, in which case nothing is changed, no block copied,
    /// and the answer false. `f` may run more than once and must not touch trees.
    ///
    /// # Errors
    /// As [`Self::put`], and whatever `f` fails with.
    pub fn edit_existing(&self, tree: &Tree, key: &Key, f: impl FnMut(&[u8]) -> Result<EditItem>) -> Result<bool> {
        self.change(|edit| edit.edit_existing(tree, key, f))
    }

    /// Removes an item; false when there is none.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn remove(&self, tree: &Tree, key: &Key) -> Result<bool> {
        self.change(|edit| edit.remove(tree, key))
    }

    /// Removes the items of a range, both ends included, and shows each to `f` before.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn remove_range(&self, tree: &Tree, from: &Key, to: &Key, mut f: impl FnMut(&Key, &[u8])) -> Result<u64> {
        let show = |key: &Key, bytes: &[u8]| {
            // The range goes leaf by leaf: a failure from here on is one in the middle.
            self.has_changed.store(true, Ordering::Relaxed);
            f(key, bytes);
        };
        self.change(|edit| edit.remove_range(tree, from, to, show))
    }

    /// Changes an item's key to one between the same neighbours.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`]; as [`Self::put`].
    pub fn set_key(&self, tree: &Tree, old: &Key, new: &Key) -> Result<()> {
        self.change(|edit| edit.set_key(tree, old, new))
    }

    /// Stages a replacement of a whole item, applied when this transaction commits; the
    /// last one wins. Reads of the tree see the old bytes until then.
    pub fn stage_replace(&self, tree: &Tree, key: &Key, bytes: Vec<u8>) {
        self.stage(tree, key, Staged::Replace(bytes));
    }

    /// Stages the insertion of an item that is not in the tree, applied when this transaction commits: for an item that
    /// is likely to be removed before ([`Self::unstage`]).
    pub fn stage_insert(&self, tree: &Tree, key: &Key, bytes: Vec<u8>) {
        self.stage(tree, key, Staged::Insert(bytes));
    }

    fn stage(&self, tree: &Tree, key: &Key, change: Staged) {
        if self.engine.pending.staged.stage(tree.id(), key, change) {
            self.engine.space.accounts().charge_heads(HEADS_PER_STAGED, Some(&self.reservation));
        }
    }

    /// Forgets the staged change of an item, because the item was removed or written; false when
    /// nothing is.
    pub fn unstage(&self, tree: &Tree, key: &Key) -> bool {
        let was_staged = self.engine.pending.staged.forget(tree.id(), key);
        if was_staged {
            self.engine.space.accounts().uncharge_heads(HEADS_PER_STAGED);
        }
        was_staged
    }

    /// Queues a change of references to an extent.
    ///
    /// # Errors
    /// When it contradicts the queued changes.
    pub fn ref_change(&self, change: RefChange) -> Result<()> {
        self.engine.health.check()?;
        self.track(self.host().push(change))
    }

    /// Stores the checksums of written data, one per sector.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_csums(&self, at: Logical, csums: &[u8]) -> Result<()> {
        self.change(|edit| self.engine.csum_tree().put(edit, at, csums))
    }

    /// A new empty tree. `item` has all fields but the place of the root block.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn create_tree(&self, id: TreeId, item: &RootItem) -> Result<Arc<Tree>> {
        self.engine.health.check()?;
        self.require_commit();
        self.track(super::snapshot::create_tree(&self.host(), id, item))
    }

    /// A snapshot of `source` with the number `id`. `item` has all fields but the place of the
    /// root block is. For exclusive handles only.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn snapshot_tree(&self, source: &Tree, id: TreeId, item: &RootItem) -> Result<Arc<Tree>> {
        self.engine.health.check()?;
        debug_assert!(self.is_exclusive, "blocks of the running generation must not be shared");
        self.require_commit();
        self.track(super::snapshot::snapshot_tree(&self.host(), source, id, item))
    }

    /// Changes fields of a root item, other than the place of the root block.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`]; as [`Self::put`].
    pub fn update_root_item(&self, id: TreeId, f: impl FnOnce(&mut RootItem)) -> Result<()> {
        let slot = self.engine.trees.slot(id)?;
        self.require_commit();
        let bytes = {
            let mut item = slot.item.lock();
            f(&mut item);
            item.bytes().to_vec()
        };
        let key = Key::new(id.0, ROOT_ITEM, slot.key_offset);
        slot.tree.note_changed();
        self.put(&self.engine.trees.root_tree, &key, &bytes)
    }

    /// Sets the label in the superblock that this transaction writes: at most 255 bytes, and cut at the first NUL.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        // A superblock has the generation of its root tree, so that has to be written anew, too.
        self.update_root_item(TreeId::FS, |_| ())?;
        let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut padded = [0; LABEL_SIZE];
        for (to, from) in padded[..LABEL_SIZE - 1].iter_mut().zip(label) {
            *to = *from;
        }
        self.engine.superblock.lock().fields_mut().label = padded;
        Ok(())
    }

    /// Sets incompat feature bits in the superblock that this transaction writes.
    pub fn add_incompat(&self, bits: u64) {
        let mut superblock = self.engine.superblock.lock();
        let flags = superblock.fields().incompat_flags.get() | bits;
        superblock.fields_mut().incompat_flags = flags.into();
    }

    /// As [`Self::add_incompat`], for features that a reader may ignore.
    pub fn add_compat_ro(&self, bits: u64) {
        let mut superblock = self.engine.superblock.lock();
        let flags = superblock.fields().compat_ro_flags.get() | bits;
        superblock.fields_mut().compat_ro_flags = flags.into();
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.is_exclusive {
            self.engine.gate.leave_exclusive();
        } else {
            self.engine.gate.leave();
        }
    }
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").field("generation", &self.generation).finish_non_exhaustive()
    }
}
