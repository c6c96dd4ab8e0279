//! Edits trees for a transaction: inserts, changes and removes items. Called by handles and by the commit.

#![expect(
    clippy::indexing_slicing,
    reason = "as many items as were put into the leaf are taken from the list; a panic is our own bug"
)]

use btrfs_disk::convert::to_u64;
use btrfs_disk::{Generation, Key};

use crate::{Error, Result};

use super::forest::Tree;
use super::host::Host;
use super::layout::ITEM;
use super::read::Scan;
use super::write_path::{Intent, Path, find, find_cheaply, find_copying, fix_first_key};
use super::{balance, layout, leaf, split};

/// The decision about an item that [`Edit::edit`] showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditItem {
    /// The item stays as it is (or absent).
    Keep,
    /// The item gets these bytes.
    Put(Vec<u8>),
    /// The item is removed.
    Remove,
}

/// Edits trees on behalf of a transaction.
#[derive(Clone, Copy)]
pub struct Edit<'a> {
    host: &'a dyn Host,
}

impl std::fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Edit")
    }
}

impl<'a> Edit<'a> {
    /// Edits of the transaction behind `host`.
    #[must_use]
    pub fn new(host: &'a dyn Host) -> Self {
        Self { host }
    }

    pub(super) fn host(&self) -> &'a dyn Host {
        self.host
    }

    /// The running generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.host.generation()
    }

    /// Inserts an item.
    ///
    /// # Errors
    /// [`Error::Exists`] when the key is taken.
    pub fn insert(&self, tree: &Tree, key: &Key, bytes: &[u8]) -> Result<()> {
        self.insert_batch(tree, &[(*key, bytes)])
    }

    /// Inserts items with ascending keys, as many at once as fit into a leaf.
    ///
    /// # Errors
    /// [`Error::Exists`] when a key is taken; the items before it are in.
    pub fn insert_batch(&self, tree: &Tree, items: &[(Key, &[u8])]) -> Result<()> {
        debug_assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
        let mut rest = items;
        while !rest.is_empty() {
            let count = self.insert_run(tree, rest)?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Inserts as many of the items, from the first on, as go into one leaf at once; returns
    /// how many. After a failure none is in.
    ///
    /// # Errors
    /// [`Error::Exists`] when the first key is taken.
    pub(crate) fn insert_run(&self, tree: &Tree, items: &[(Key, &[u8])]) -> Result<usize> {
        let Some((key, bytes)) = items.first() else { return Ok(0) };
        let mut path = self.path_with_room(tree, key, ITEM + bytes.len())?;
        if path.is_found {
            return Err(Error::Exists { tree: tree.id(), key: *key });
        }
        let count = run_length(&path, items);
        put_new(&mut path, &items[..count]);
        Ok(count)
    }

    pub(super) fn path_with_room<'t>(&self, tree: &'t Tree, key: &Key, bytes: usize) -> Result<Path<'t>> {
        let mut path = find(self.host, tree, key, Intent::Room(bytes))?;
        if !path.is_found && leaf::free_space(path.leaf_bytes()) < bytes {
            split::make_room(self.host, &mut path, key, bytes)?;
        }
        Ok(path)
    }

    /// Inserts an item, or replaces its bytes.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for one.
    pub fn put(&self, tree: &Tree, key: &Key, bytes: &[u8]) -> Result<()> {
        self.edit(tree, key, |_| Ok(EditItem::Put(bytes.to_vec())))
    }

    /// Changes an item's bytes in place; false when there is no such item.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for a copy.
    pub fn update(&self, tree: &Tree, key: &Key, f: impl FnOnce(&mut [u8])) -> Result<bool> {
        if tree.get_with(key, |_| ())?.is_none() {
            return Ok(false);
        }
        let mut path = find(self.host, tree, key, Intent::Touch)?;
        if path.is_found {
            let step = path.leaf();
            f(leaf::data_mut(&mut step.block.data, step.slot));
        }
        Ok(path.is_found)
    }

    /// Shows an item to `f`, which decides about it, with the leaf locked.
    /// `f` may be called more than once and must not touch trees.
    ///
    /// # Errors
    /// When `f` fails, a block cannot be read, or there is no room.
    pub fn edit(&self, tree: &Tree, key: &Key, f: impl FnMut(Option<&[u8]>) -> Result<EditItem>) -> Result<()> {
        let path = find(self.host, tree, key, Intent::Touch)?;
        self.edit_at(path, key, f)
    }

    /// As [`Self::edit`], of an item that may be missing: then no block is copied, and `f` is not
    /// called, or not again. False when there is none.
    ///
    /// # Errors
    /// As [`Self::edit`].
    pub fn edit_existing(&self, tree: &Tree, key: &Key, mut f: impl FnMut(&[u8]) -> Result<EditItem>) -> Result<bool> {
        let path = match find_cheaply(self.host, tree, key, Intent::Touch)? {
            Some(path) => path,
            None if tree.get_with(key, |_| ())?.is_none() => return Ok(false),
            None => find_copying(self.host, tree, key, Intent::Touch)?,
        };
        let mut was_there = false;
        self.edit_at(path, key, |old| {
            was_there = old.is_some();
            old.map_or(Ok(EditItem::Keep), &mut f)
        })?;
        Ok(was_there)
    }

    fn edit_at(
        &self,
        mut path: Path<'_>,
        key: &Key,
        mut f: impl FnMut(Option<&[u8]>) -> Result<EditItem>,
    ) -> Result<()> {
        let tree = path.tree;
        loop {
            let slot = path.slot();
            let old = path.is_found.then(|| leaf::data(path.leaf_bytes(), slot));
            let old_len = old.map_or(0, <[u8]>::len);
            match f(old)? {
                EditItem::Keep => return Ok(()),
                EditItem::Remove if !path.is_found => return Ok(()),
                EditItem::Remove => {
                    if path.can_remove(slot, 1) {
                        return self.remove_at(&mut path, slot, 1);
                    }
                    drop(path);
                    path = find_copying(self.host, tree, key, Intent::Shrink)?;
                }
                EditItem::Put(bytes) => {
                    if self.try_put(&mut path, key, &bytes, old_len) {
                        return Ok(());
                    }
                    drop(path);
                    path = find_copying(self.host, tree, key, Intent::Room(ITEM + bytes.len()))?;
                    self.room_for_put(&mut path, key, bytes.len())?;
                }
            }
        }
    }

    /// Puts the bytes at the path if the leaf has room.
    fn try_put(&self, path: &mut Path<'_>, key: &Key, bytes: &[u8], old_len: usize) -> bool {
        if path.is_found {
            let growth = bytes.len().saturating_sub(old_len);
            let step = path.leaf();
            if leaf::free_space(&step.block.data) < growth {
                return false;
            }
            leaf::replace(&mut step.block.data, step.slot, bytes);
            return true;
        }
        if !path.can_insert(ITEM + bytes.len()) {
            return false;
        }
        put_new(path, &[(*key, bytes)]);
        true
    }

    /// Makes room for an item of `len` bytes on a full path, whether the key is there or not.
    fn room_for_put(&self, path: &mut Path<'_>, key: &Key, len: usize) -> Result<()> {
        if !path.is_found {
            return split::make_room(self.host, path, key, ITEM + len);
        }
        let slot = path.slot();
        let old = leaf::data(path.leaf_bytes(), slot).to_vec();
        if leaf::free_space(path.leaf_bytes()) + old.len() >= len {
            return Ok(());
        }
        // The item is taken out, room is made where it was, and it goes back in there.
        leaf::remove(&mut path.leaf().block.data, slot, 1);
        let made = split::make_room(self.host, path, key, ITEM + len.max(old.len()));
        // Splitting only ever frees room, so the old bytes fit again even where it failed.
        put_new(path, &[(*key, &old)]);
        made
    }

    /// Removes an item; false when there is none.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for a copy.
    pub fn remove(&self, tree: &Tree, key: &Key) -> Result<bool> {
        self.edit_existing(tree, key, |_| Ok(EditItem::Remove))
    }

    pub(super) fn remove_at(&self, path: &mut Path<'_>, slot: usize, count: usize) -> Result<()> {
        leaf::remove(&mut path.leaf().block.data, slot, count);
        balance::after_remove(self.host, path, slot)
    }

    /// Removes the items from `from` to `to`, both included, showing each to `f` before.
    /// `f` must not touch trees. Returns how many there were.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for a copy.
    pub fn remove_range(&self, tree: &Tree, from: &Key, to: &Key, mut f: impl FnMut(&Key, &[u8])) -> Result<u64> {
        let mut removed = 0;
        while let Some(first) = first_key(tree, from, to)? {
            let mut path = self.path_to_remove(tree, &first, to)?;
            let (block, slot) = (path.leaf_bytes(), path.slot());
            let count = leaf::count_until(block, slot, to);
            for slot in slot..slot + count {
                let (key, bytes) = leaf::item(block, slot);
                f(&key, bytes);
            }
            if count > 0 {
                self.remove_at(&mut path, slot, count)?;
                removed += to_u64(count);
            }
        }
        Ok(removed)
    }

    /// A path to remove items from `first` on: nothing above the leaf is locked, and no block copied, when the
    /// remaining items need not move to another block.
    fn path_to_remove<'t>(&self, tree: &'t Tree, first: &Key, to: &Key) -> Result<Path<'t>> {
        if let Some(path) = find_cheaply(self.host, tree, first, Intent::Touch)? {
            let (block, slot) = (path.leaf_bytes(), path.slot());
            if path.can_remove(slot, leaf::count_until(block, slot, to)) {
                return Ok(path);
            }
        }
        find_copying(self.host, tree, first, Intent::Shrink)
    }

    /// Changes the key of an item to one that keeps the order.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such item, [`Error::Exists`] when the new key
    /// is not between the neighbours.
    pub fn set_key(&self, tree: &Tree, old: &Key, new: &Key) -> Result<()> {
        let mut path = self.path_to_rekey(tree, old)?;
        rekey(&mut path, new)
    }

    /// A path to an item, to change its key.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such item.
    pub(super) fn path_to_rekey<'t>(&self, tree: &'t Tree, key: &Key) -> Result<Path<'t>> {
        let mut path = find(self.host, tree, key, Intent::Touch)?;
        if path.is_found && path.slot() == 0 {
            drop(path);
            // The first key of a leaf stands in the parents, which must be locked.
            path = find_copying(self.host, tree, key, Intent::Shrink)?;
        }
        if !path.is_found {
            return Err(Error::NotFound { tree: tree.id(), key: *key });
        }
        Ok(path)
    }
}

/// Changes the key of the path's item to one that keeps the order.
///
/// # Errors
/// [`Error::Exists`] when the new key is not between the neighbours.
pub(super) fn rekey(path: &mut Path<'_>, new: &Key) -> Result<()> {
    let slot = path.slot();
    check_is_before_next(path, new)?;
    if slot > 0 && layout::key_at(path.leaf_bytes(), slot - 1) >= *new {
        return Err(Error::Exists { tree: path.tree.id(), key: *new });
    }
    leaf::set_key(&mut path.leaf().block.data, slot, new);
    if slot == 0 {
        let last = path.steps.len() - 1;
        fix_first_key(path, last);
    }
    Ok(())
}

/// Fails unless the key behind the path's item is also behind `key`.
///
/// # Errors
/// [`Error::Exists`].
pub(super) fn check_is_before_next(path: &Path<'_>, key: &Key) -> Result<()> {
    let (block, slot) = (path.leaf_bytes(), path.slot() + 1);
    let next = if slot < layout::nritems(block) { Some(layout::key_at(block, slot)) } else { path.upper };
    match next.filter(|next| next <= key) {
        Some(_) => Err(Error::Exists { tree: path.tree.id(), key: *key }),
        None => Ok(()),
    }
}

/// Inserts items at the path's slot, where there is room.
pub(super) fn put_new(path: &mut Path<'_>, items: &[(Key, &[u8])]) {
    let step = path.leaf();
    leaf::insert(&mut step.block.data, step.slot, items);
    debug_assert!(
        leaf::is_in_order(&step.block.data, step.slot, items.len()),
        "the keys were looked up where they belong"
    );
    if step.slot == 0 {
        let last = path.steps.len() - 1;
        fix_first_key(path, last);
    }
    path.is_found = true;
}

/// How many of `items` can go in one piece at the path's slot; at least one.
pub(super) fn run_length(path: &Path<'_>, items: &[(Key, &[u8])]) -> usize {
    let (block, slot) = (path.leaf_bytes(), path.slot());
    let limit = if slot < layout::nritems(block) { Some(layout::key_at(block, slot)) } else { path.upper };
    let mut room = leaf::free_space(block);
    let mut count = 0;
    for (key, bytes) in items {
        let need = ITEM + bytes.len();
        let is_before_limit = limit.is_none_or(|limit| *key < limit);
        if count > 0 && (need > room || !is_before_limit) {
            break;
        }
        room = room.saturating_sub(need);
        count += 1;
    }
    count
}

/// The first key from `from` to `to` that has an item.
fn first_key(tree: &Tree, from: &Key, to: &Key) -> Result<Option<Key>> {
    let mut first = None;
    tree.scan(from, to, |key, _| {
        first = Some(*key);
        Ok(Scan::Stop)
    })?;
    Ok(first)
}
