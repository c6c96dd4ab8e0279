//! Changes items that lie side by side: their leaf is found once, locked once, and laid out once. Called by
//! `extent/apply`.

use btrfs_disk::Key;

use super::edit::{Edit, EditItem};
use super::forest::Tree;
use super::write_path::{Intent, Path, find};
use super::{layout, leaf};
use crate::Result;

/// Items of a leaf that get new bytes.
struct Puts {
    items: Vec<(usize, Vec<u8>)>,
    /// Bytes that are left in the leaf.
    free: usize,
}

impl Edit<'_> {
    /// Shows items of ascending keys to `f`, which decides about each, as long as they exist, lie in one leaf, and that
    /// has the room. Returns how many were decided; `f` may have been called for one more.
    /// Nothing else changes the leaf in between. `f` must not touch trees.
    ///
    /// # Errors
    /// When `f` fails, a block cannot be read, or there is no room for a copy.
    pub(crate) fn edit_run(
        &self,
        tree: &Tree,
        mut keys: impl Iterator<Item = Key>,
        mut f: impl FnMut(usize, &[u8]) -> Result<EditItem>,
    ) -> Result<usize> {
        let Some(first) = keys.next() else { return Ok(0) };
        let mut path = find(self.host(), tree, &first, Intent::Touch)?;
        if !path.is_found {
            return Ok(0);
        }
        let mut puts = Puts { items: Vec::new(), free: leaf::free_space(path.leaf_bytes()) };
        let mut done = 0;
        for (index, key) in std::iter::once(first).chain(keys).enumerate() {
            let Ok(slot) = layout::search(path.leaf_bytes(), &key) else { break };
            match f(index, leaf::data(path.leaf_bytes(), slot))? {
                EditItem::Keep => {}
                EditItem::Put(bytes) => {
                    if !puts.add(path.leaf_bytes(), slot, bytes) {
                        break;
                    }
                }
                EditItem::Remove => {
                    puts.lay_out(&mut path);
                    if !path.can_remove(slot, 1) {
                        return Ok(done);
                    }
                    // The rest of the leaf may be merged with a neighbour.
                    self.remove_at(&mut path, slot, 1)?;
                    return Ok(index.saturating_add(1));
                }
            }
            done = index.saturating_add(1);
        }
        puts.lay_out(&mut path);
        Ok(done)
    }
}

impl Puts {
    /// False where the leaf has no room for it.
    fn add(&mut self, block: &[u8], slot: usize, bytes: Vec<u8>) -> bool {
        let free = self.free.saturating_add(leaf::size(block, slot));
        let Some(free) = free.checked_sub(bytes.len()) else { return false };
        self.free = free;
        self.items.push((slot, bytes));
        true
    }

    fn lay_out(&mut self, path: &mut Path<'_>) {
        let block = &mut path.leaf().block.data;
        match &*self.items {
            [] => {}
            [(slot, bytes)] => leaf::replace(block, *slot, bytes),
            items => leaf::replace_many(block, items),
        }
        self.items.clear();
    }
}
