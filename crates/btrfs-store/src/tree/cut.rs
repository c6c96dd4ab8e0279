//! Cutting bytes out of an item: what stays is one item or two, in the leaf where it was.

use btrfs_disk::Key;

use crate::{Error, Result};

use super::edit::Edit;
use super::forest::Tree;
use super::raw::ITEM;
use super::write_path::{Intent, Path, find, find_copying, fix_first_key};
use super::{leaf, raw, split};

/// What becomes of an item whose middle goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Bytes that it keeps.
    pub(crate) head: usize,
    /// Where in it the bytes begin that become the item `tail_key`.
    pub(crate) tail: usize,
    /// Key of the second item.
    pub(crate) tail_key: Key,
    /// Where in it, behind `tail`, an item of a leaf of its own may begin, and its key.
    pub(crate) rest: (usize, Key),
}

impl Edit<'_> {
    /// Takes bytes out of the middle of an item. Readers find it whole or both parts of it; for a
    /// moment there may be more than those. False when there is no such item or it is shorter.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for one; [`Error::Exists`] when there
    /// is an item of a new key.
    pub(crate) fn cut_middle(&self, tree: &Tree, key: &Key, cut: &Cut) -> Result<bool> {
        let host = self.host();
        let mut path = find(host, tree, key, Intent::Touch)?;
        let mut can_split = false;
        loop {
            let slot = path.slot();
            let old = if path.is_found { leaf::data(path.leaf_bytes(), slot) } else { &[] };
            let (Some(first), Some(second)) = (old.get(..cut.head), old.get(cut.tail..)) else {
                return Ok(false);
            };
            let (first, second) = (first.to_vec(), second.to_vec());
            let room = leaf::free_space(path.leaf_bytes()) + old.len();
            check_is_next(&path, tree, &cut.tail_key)?;
            if room >= first.len() + ITEM + second.len() {
                let block = &mut path.leaf().block.data;
                leaf::replace(block, slot, &first);
                leaf::insert(block, slot + 1, &[(cut.tail_key, &second)]);
                return Ok(true);
            }
            let (block, (rest, rest_key)) = (path.leaf_bytes(), cut.rest);
            let is_large = raw::nritems(block) == 1 || second.len() > raw::capacity(block) / 4;
            if is_large && (cut.tail + 1..old.len()).contains(&rest) {
                // Were it moved as it is, the next cut would find its leaf full again, and the one
                // it left almost empty.
                let (kept, rest) = (old[..rest].to_vec(), old[rest..].to_vec());
                drop(path);
                self.insert(tree, &rest_key, &rest)?;
                self.put(tree, key, &kept)?;
                path = find(host, tree, key, Intent::Touch)?;
                continue;
            }
            if raw::nritems(block) == 1 {
                drop(path);
                self.insert(tree, &cut.tail_key, &second)?;
                self.put(tree, key, &first)?;
                return Ok(true);
            }
            if can_split {
                split::halve(host, &mut path)?;
            }
            can_split = true;
            drop(path);
            path = find_copying(host, tree, key, Intent::Room(ITEM + second.len()))?;
        }
    }

    /// Takes the bytes before `tail` off an item, which from then on has another key of the same
    /// place in the tree. False when there is no such item or it is shorter.
    ///
    /// # Errors
    /// As [`Self::cut_middle`].
    pub(crate) fn cut_front(&self, tree: &Tree, key: &Key, tail: usize, tail_key: &Key) -> Result<bool> {
        let mut path = find(self.host(), tree, key, Intent::Touch)?;
        if path.is_found && path.slot() == 0 {
            drop(path);
            // The first key of a leaf stands in the parents, which must be locked.
            path = find_copying(self.host(), tree, key, Intent::Shrink)?;
        }
        let slot = path.slot();
        let old = if path.is_found { leaf::data(path.leaf_bytes(), slot) } else { &[] };
        let Some(kept) = old.get(tail..).map(<[u8]>::to_vec).filter(|kept| !kept.is_empty()) else {
            return Ok(false);
        };
        check_is_next(&path, tree, tail_key)?;
        let block = &mut path.leaf().block.data;
        leaf::replace(block, slot, &kept);
        leaf::set_key(block, slot, tail_key);
        if slot == 0 {
            let last = path.steps.len() - 1;
            fix_first_key(&mut path, last);
        }
        Ok(true)
    }
}

/// Fails when an item lies between that of the path and a new one behind it, which then is none of
/// the same place: items that overlap are an image's that nobody should trust.
fn check_is_next(path: &Path<'_>, tree: &Tree, key: &Key) -> Result<()> {
    let (block, slot) = (path.leaf_bytes(), path.slot() + 1);
    let next = if slot < raw::nritems(block) { Some(raw::key_at(block, slot)) } else { path.upper };
    match next.filter(|next| next <= key) {
        Some(_) => Err(Error::Exists { tree: tree.id(), key: *key }),
        None => Ok(()),
    }
}
