//! Replaces the items of a range in one go.
//!
//! ```text
//! one leaf, copied already     locked alone, nothing above; same keys and sizes: bytes only
//! else                         down once with write locks, the node above the leaf kept:
//!                              the range may continue in the leaves to the right of it
//! ```
//!
//! Called by edits of ranges, as of a log or of file extents.

#![expect(
    clippy::indexing_slicing,
    reason = "as many items as were put into the leaf are taken from the list; a panic is our own bug"
)]

use btrfs_disk::Key;

use crate::Result;

use super::edit::{Edit, put_new, run_length};
use super::forest::Tree;
use super::layout::{self, ITEM};
use super::write_path::{Intent, Path, child_for_write, find_cheaply, find_copying, free};
use super::{balance, leaf, node, split};

impl Edit<'_> {
    /// Replaces all items from `from` to `to`, both included, by `items`, whose keys ascend and lie in between. After a
    /// failure some old and some new items may be there.
    ///
    /// # Errors
    /// When a block cannot be read or there is no room for a copy.
    pub fn replace(&self, tree: &Tree, from: &Key, to: &Key, items: &[(Key, &[u8])]) -> Result<()> {
        debug_assert!(items.iter().all(|(key, _)| from <= key && key <= to), "within the range");
        if items.is_empty() {
            self.remove_range(tree, from, to, |_, _| ())?;
            return Ok(());
        }
        let path = find_cheaply(self.host(), tree, from, Intent::Touch)?;
        if path.is_some_and(|mut path| replace_in_leaf(&mut path, to, items)) {
            return Ok(());
        }
        let first_bytes = ITEM + items.first().map_or(0, |(_, bytes)| bytes.len());
        let mut path = find_copying(self.host(), tree, from, Intent::Span(first_bytes))?;
        if replace_in_leaf(&mut path, to, items) {
            return Ok(());
        }
        let slot = path.slot();
        let count = leaf::count_until(path.leaf_bytes(), slot, to);
        leaf::remove(&mut path.leaf().block.data, slot, count);
        let is_cut = self.cut_right(&mut path, to)?;
        if is_cut {
            path.is_found = false;
            let (key, bytes) = &items[0];
            split::make_room(self.host(), &mut path, key, ITEM + bytes.len())?;
            let count = run_length(&path, items);
            put_new(&mut path, &items[..count]);
            drop(path);
            return self.insert_batch(tree, &items[count..]);
        }
        balance::after_remove(self.host(), &mut path, slot)?;
        drop(path);
        self.remove_range(tree, from, to, |_, _| ())?;
        self.insert_batch(tree, items)
    }

    /// As [`Self::replace`], the earlier way: a search for each item, which is made in the locked leaf.
    ///
    /// # Errors
    /// As [`Self::replace`].
    #[cfg(feature = "ablation")]
    pub fn replace_in_locked_leaf(&self, tree: &Tree, from: &Key, to: &Key, items: &[(Key, &[u8])]) -> Result<()> {
        self.remove_range(tree, from, to, |_, _| ())?;
        for (key, bytes) in items {
            let mut path = self.path_with_room(tree, key, ITEM + bytes.len())?;
            put_new(&mut path, &[(*key, &vec![0; bytes.len()])]);
            let slot = path.slot();
            let block = &mut path.leaf().block.data;
            crate::ablation::fill(block, layout::HEADER + slot * ITEM, layout::HEADER, bytes);
        }
        Ok(())
    }

    /// Removes items up to `to` from the leaves to the right of the path's. False when the range continues below
    /// another node.
    fn cut_right(&self, path: &mut Path<'_>, to: &Key) -> Result<bool> {
        let tree = path.tree;
        while path.upper.is_some_and(|upper| upper <= *to) {
            let Some(parent) = path.parent() else { return Ok(true) };
            let next = parent.slot + 1;
            if next >= layout::nritems(&parent.block.data) {
                return Ok(false);
            }
            let mut right = child_for_write(self.host(), tree, &mut parent.block.data, next)?;
            let count = leaf::count_until(&right.data, 0, to);
            if count < layout::nritems(&right.data) {
                leaf::remove(&mut right.data, 0, count);
                let first = layout::key_at(&right.data, 0);
                node::set_key(&mut parent.block.data, next, &first);
                path.upper = Some(first);
                return Ok(true);
            }
            node::remove(&mut parent.block.data, next);
            let has_next = next < layout::nritems(&parent.block.data);
            let upper = has_next.then(|| layout::key_at(&parent.block.data, next));
            path.upper = upper.or(path.parent_upper);
            free(self.host(), tree, right)?;
        }
        Ok(true)
    }
}

/// Replaces a range that lies in the path's leaf, if the result fits and the leaf keeps its first key.
fn replace_in_leaf(path: &mut Path<'_>, to: &Key, items: &[(Key, &[u8])]) -> bool {
    let (block, slot) = (path.leaf_bytes(), path.slot());
    let count = leaf::count_until(block, slot, to);
    let goes_on = slot + count == layout::nritems(block) && path.upper.is_some_and(|upper| upper <= *to);
    let first = items.first().map(|(key, _)| *key);
    let keeps_first = slot > 0 || path.is_root_leaf() || (count > 0 && Some(layout::key_at(block, 0)) == first);
    let need: usize = items.iter().map(|(_, bytes)| ITEM + bytes.len()).sum();
    if goes_on || !keeps_first || leaf::free_space(block) + leaf::used_by(block, slot, count) < need {
        return false;
    }
    let has_shape = |(index, (key, bytes)): (usize, &(Key, &[u8]))| {
        layout::key_at(block, slot + index) == *key && leaf::size(block, slot + index) == bytes.len()
    };
    let is_same_shape = count == items.len() && items.iter().enumerate().all(has_shape);
    let block = &mut path.leaf().block.data;
    if is_same_shape {
        for (index, (_, bytes)) in items.iter().enumerate() {
            leaf::data_mut(block, slot + index).copy_from_slice(bytes);
        }
        return true;
    }
    leaf::remove(block, slot, count);
    leaf::insert(block, slot, items);
    debug_assert!(leaf::is_in_order(block, slot, items.len()), "the keys were looked up where they belong");
    true
}
