//! Searches and scans trees, with read locks handed from parent to child. All readers of trees call it.

use btrfs_disk::{Generation, Key, Logical};

use crate::Result;

use super::block::{Bytes, ReadExpect, ReadLocked};
use super::forest::Tree;
use super::{layout, leaf, node};

/// Whether a scan continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Go on with the next item.
    Continue,
    /// End the scan.
    Stop,
}

/// The result of one step of a search for items written since a transaction.
enum Recent {
    /// A leaf written since, and the key from which on its items are wanted.
    Leaf(Leaf, Key),
    /// Older blocks up to this key; to the end of the tree without one.
    Older(Option<Key>),
}

/// A read-locked leaf and the key at which the next leaf starts.
pub(crate) struct Leaf {
    pub(crate) bytes: ReadLocked,
    pub(crate) upper: Option<Key>,
}

impl Tree {
    /// The leaf in which `key` is or would be.
    #[inline]
    pub(crate) fn leaf(&self, key: &Key) -> Result<Leaf> {
        self.leaf_by_way_of(key, |_| Ok(()))
    }

    /// As [`Self::leaf`]; `see` is called with each block below the root, under its lock and that of the one above.
    #[inline]
    fn leaf_by_way_of(&self, key: &Key, mut see: impl FnMut(&ReadExpect) -> Result<()>) -> Result<Leaf> {
        let root = self.root.read();
        let mut locked = self.forest.read(&self.expect(&root))?;
        drop(root);
        let mut upper = None;
        while layout::level(&locked.data) > 0 {
            let slot = layout::child_slot(&locked.data, key);
            if slot + 1 < layout::nritems(&locked.data) {
                upper = Some(layout::key_at(&locked.data, slot + 1));
            }
            let expect = self.child_expect(&locked.data, slot);
            let child = self.forest.read(&expect)?;
            see(&expect)?;
            locked = child;
        }
        Ok(Leaf { bytes: locked, upper })
    }

    /// Shows the blocks below the root on the way to `key`, each under its lock and that of the one above: address and
    /// level. `f` may look at trees of the store, not at this one; the walk ends when it returns `Scan::Stop`. Returns
    /// where the leaf after that of `key` begins.
    ///
    /// # Errors
    /// When a block cannot be read, or when `f` fails.
    pub(crate) fn walk_to(&self, key: &Key, mut f: impl FnMut(Logical, u8) -> Result<Scan>) -> Result<Option<Key>> {
        let mut goes_on = Scan::Continue;
        let leaf = self.leaf_by_way_of(key, |expect| {
            if goes_on == Scan::Continue {
                goes_on = f(expect.at, expect.level)?;
            }
            Ok(())
        })?;
        Ok(leaf.upper)
    }

    /// The expected properties of a child, from its parent's pointer.
    pub(crate) fn child_expect(&self, parent: &[u8], slot: usize) -> ReadExpect {
        let (at, generation) = node::child(parent, slot);
        ReadExpect {
            at,
            generation,
            level: layout::level(parent).saturating_sub(1),
            first_key: Some(layout::key_at(parent, slot)),
            owner: Some(self.id()),
        }
    }

    /// A copy of an item.
    ///
    /// # Errors
    /// When a block on the way cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.get_with(key, <[u8]>::to_vec)
    }

    /// Looks at an item in place. `f` runs under the leaf's lock: it must not touch trees.
    ///
    /// # Errors
    /// When a block on the way cannot be read.
    pub fn get_with<R>(&self, key: &Key, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        let leaf = self.leaf(key)?;
        let block = &leaf.bytes.data;
        Ok(layout::search(block, key).ok().map(|slot| f(leaf::data(block, slot))))
    }

    /// Shows the items from `from` to `to`, both included, in order, until `f` returns `Scan::Stop`.
    /// `f` runs under a leaf's lock: it must not touch trees.
    ///
    /// # Errors
    /// When a block cannot be read, or when `f` fails.
    pub fn scan(&self, from: &Key, to: &Key, mut f: impl FnMut(&Key, &[u8]) -> Result<Scan>) -> Result<()> {
        self.each_leaf(from, to, |from, leaf| {
            let block = &leaf.data;
            let start = layout::search(block, from).unwrap_or_else(|slot| slot);
            for slot in start..layout::nritems(block) {
                let (key, bytes) = leaf::item(block, slot);
                if key > *to || f(&key, bytes)? == Scan::Stop {
                    return Ok(Scan::Stop);
                }
            }
            Ok(Scan::Continue)
        })
    }

    /// As [`Self::scan`], with the transaction that wrote each item's leaf, and without leaves that were written before
    /// `since`.
    ///
    /// # Errors
    /// When a block cannot be read, or when `f` fails.
    pub fn scan_since(
        &self,
        from: &Key,
        to: &Key,
        since: Generation,
        mut f: impl FnMut(Generation, &Key, &[u8]) -> Result<Scan>,
    ) -> Result<()> {
        let mut from = *from;
        loop {
            let upper = match self.recent_leaf(&from, since)? {
                Recent::Older(upper) => upper,
                Recent::Leaf(leaf, first) => {
                    let block = &leaf.bytes.data;
                    let generation = Generation(layout::generation(block));
                    let start = layout::search(block, &first).unwrap_or_else(|slot| slot);
                    for slot in start..layout::nritems(block) {
                        let (key, bytes) = leaf::item(block, slot);
                        if key > *to || f(generation, &key, bytes)? == Scan::Stop {
                            return Ok(());
                        }
                    }
                    leaf.upper
                }
            };
            match upper {
                Some(upper) if upper <= *to && upper > from => from = upper,
                _ => return Ok(()),
            }
        }
    }

    /// The first leaf with items from `key` on that was written by the transaction `since` or later, as far as the way
    /// down to `key` shows: a block is never newer than the one above.
    fn recent_leaf(&self, key: &Key, since: Generation) -> Result<Recent> {
        let mut key = *key;
        let root = self.root.read();
        let mut locked = self.forest.read(&self.expect(&root))?;
        drop(root);
        let mut upper = None;
        while layout::level(&locked.data) > 0 {
            let (first, count) = (layout::child_slot(&locked.data, &key), layout::nritems(&locked.data));
            let Some(slot) = (first..count).find(|slot| node::child(&locked.data, *slot).1 >= since) else {
                return Ok(Recent::Older(upper));
            };
            if slot > first {
                key = layout::key_at(&locked.data, slot);
            }
            if slot + 1 < count {
                upper = Some(layout::key_at(&locked.data, slot + 1));
            }
            locked = self.forest.read(&self.child_expect(&locked.data, slot))?;
        }
        if Generation(layout::generation(&locked.data)) < since {
            return Ok(Recent::Older(upper));
        }
        Ok(Recent::Leaf(Leaf { bytes: locked, upper }, key))
    }

    /// Shows the leaves in which items from `from` to `to` are or would be, each with the key up to which earlier
    /// leaves were shown, until `f` returns `Scan::Stop`. `f` runs under a leaf's lock: it must not touch trees.
    ///
    /// # Errors
    /// When a block cannot be read, or when `f` fails.
    #[inline]
    pub(crate) fn each_leaf(
        &self,
        from: &Key,
        to: &Key,
        mut f: impl FnMut(&Key, &Bytes) -> Result<Scan>,
    ) -> Result<()> {
        let mut from = *from;
        loop {
            let leaf = self.leaf(&from)?;
            if f(&from, &leaf.bytes)? == Scan::Stop {
                return Ok(());
            }
            match leaf.upper {
                Some(upper) if upper <= *to && upper > from => from = upper,
                _ => return Ok(()),
            }
        }
    }

    /// The item with the smallest key from `key` on.
    ///
    /// # Errors
    /// When a block on the way cannot be read.
    pub fn at_or_after(&self, key: &Key) -> Result<Option<(Key, Vec<u8>)>> {
        let mut found = None;
        self.scan(key, &Key::MAX, |key, bytes| {
            found = Some((*key, bytes.to_vec()));
            Ok(Scan::Stop)
        })?;
        Ok(found)
    }

    /// The item with the greatest key up to `key`.
    ///
    /// # Errors
    /// When a block on the way cannot be read.
    pub fn at_or_before(&self, key: &Key) -> Result<Option<(Key, Vec<u8>)>> {
        self.at_or_before_with(key, |key, bytes| (*key, bytes.to_vec()))
    }

    /// Looks at the item with the greatest key up to `key` in place. `f` runs under the
    /// leaf's lock: it must not touch trees.
    ///
    /// # Errors
    /// When a block on the way cannot be read.
    pub fn at_or_before_with<R>(&self, key: &Key, f: impl FnOnce(&Key, &[u8]) -> R) -> Result<Option<R>> {
        let leaf = self.leaf(key)?;
        let block = &leaf.bytes.data;
        // A parent's key is its child's first key, so a key that is not in this leaf is not in the tree.
        let slot = match layout::search(block, key) {
            Ok(slot) => slot,
            Err(0) => return Ok(None),
            Err(slot) => slot - 1,
        };
        let (key, bytes) = leaf::item(block, slot);
        Ok(Some(f(&key, bytes)))
    }

    /// Shows every block of the tree, parents before children. `f` runs without locks on
    /// a copy of the block, so it may read trees.
    ///
    /// # Errors
    /// When a block cannot be read, or when `f` fails.
    pub fn for_each_block(&self, mut f: impl FnMut(Logical, &[u8]) -> Result<()>) -> Result<()> {
        let mut todo = vec![self.expect(&self.root_ptr())];
        while let Some(expect) = todo.pop() {
            let copy = self.forest.read(&expect)?.data.clone();
            f(expect.at, &copy)?;
            if layout::level(&copy) > 0 {
                let children = (0..layout::nritems(&copy)).rev();
                todo.extend(children.map(|slot| self.child_expect(&copy, slot)));
            }
        }
        Ok(())
    }
}
