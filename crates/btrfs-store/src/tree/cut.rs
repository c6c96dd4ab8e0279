//! Cuts bytes out of an item: one item or two stay, in the same leaf. Called by the checksum tree.

#![expect(clippy::indexing_slicing, reason = "the place of the cut is looked for in the item itself")]

use btrfs_disk::Key;

use crate::{Error, Result};

use super::edit::{Edit, check_is_before_next, rekey};
use super::forest::Tree;
use super::layout::ITEM;
use super::write_path::{Intent, find, find_copying};
use super::{layout, leaf, split};

/// The parts that stay of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Bytes that it keeps.
    pub(crate) head: usize,
    /// Offset of the bytes that become the item `tail_key`.
    pub(crate) tail: usize,
    /// Key of the second item.
    pub(crate) tail_key: Key,
    /// Offset behind `tail` at which an item in a leaf of its own may begin, and its key.
    pub(crate) rest: (usize, Key),
}

impl Edit<'_> {
    /// Takes bytes out of the middle of an item. Readers find it whole or both parts of it; for a
    /// moment there may be more than those.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for one; [`Error::NotFound`] when there is no such item or it is
    /// shorter; [`Error::Exists`] when another item has the key of a part, as in an image whose items overlap.
    pub(crate) fn cut_middle(&self, tree: &Tree, key: &Key, cut: &Cut) -> Result<()> {
        let host = self.host();
        let mut path = find(host, tree, key, Intent::Touch)?;
        let mut can_split = false;
        loop {
            let slot = path.slot();
            let old = if path.is_found { leaf::data(path.leaf_bytes(), slot) } else { &[] };
            let (Some(first), Some(second)) = (old.get(..cut.head), old.get(cut.tail..)) else {
                return Err(Error::NotFound { tree: tree.id(), key: *key });
            };
            let (first, second) = (first.to_vec(), second.to_vec());
            let room = leaf::free_space(path.leaf_bytes()) + old.len();
            check_is_before_next(&path, &cut.tail_key)?;
            if room >= first.len() + ITEM + second.len() {
                let block = &mut path.leaf().block.data;
                leaf::replace(block, slot, &first);
                leaf::insert(block, slot + 1, &[(cut.tail_key, &second)]);
                debug_assert!(leaf::is_in_order(block, slot + 1, 1), "the keys were looked up where they belong");
                return Ok(());
            }
            let (block, (rest, rest_key)) = (path.leaf_bytes(), cut.rest);
            let is_large = layout::nritems(block) == 1 || second.len() > layout::capacity(block) / 4;
            if is_large && (cut.tail + 1..old.len()).contains(&rest) {
                // If the item moved as it is, the next cut would find its leaf full again, and the old leaf almost
                // empty.
                let (kept, rest) = (old[..rest].to_vec(), old[rest..].to_vec());
                drop(path);
                self.insert(tree, &rest_key, &rest)?;
                self.put(tree, key, &kept)?;
                path = find(host, tree, key, Intent::Touch)?;
                continue;
            }
            if layout::nritems(block) == 1 {
                drop(path);
                self.insert(tree, &cut.tail_key, &second)?;
                return self.put(tree, key, &first);
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
    /// place in the tree.
    ///
    /// # Errors
    /// As [`Self::cut_middle`].
    pub(crate) fn cut_front(&self, tree: &Tree, key: &Key, tail: usize, tail_key: &Key) -> Result<()> {
        let mut path = self.path_to_rekey(tree, key)?;
        let slot = path.slot();
        let kept = leaf::data(path.leaf_bytes(), slot).get(tail..).filter(|kept| !kept.is_empty());
        let kept = kept.ok_or(Error::NotFound { tree: tree.id(), key: *key })?.to_vec();
        rekey(&mut path, tail_key)?;
        leaf::replace(&mut path.leaf().block.data, slot, &kept);
        Ok(())
    }
}
