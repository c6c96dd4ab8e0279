//! Changes of items that lie side by side: their leaf is found once, locked once, and laid out once.

use btrfs_disk::Key;

use super::edit::{Edit, EditItem};
use super::forest::Tree;
use super::write_path::{Intent, Path, find};
use super::{leaf, raw};
use crate::Result;

/// Items of a leaf that get other bytes.
struct Puts {
    items: Vec<(usize, Vec<u8>)>,
    /// Bytes that are left in the leaf.
    free: usize,
}

impl Edit<'_> {
    /// Looks at items of ascending keys, from the first on, and decides what becomes of each, as long as they are
    /// there, lie in one leaf, and that has the room. Returns how many it did; `f` may have been called for one more.
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
        let (mut slot, mut done) = (path.slot(), 0);
        for (index, key) in std::iter::once(first).chain(keys).enumerate() {
            let Some(found) = slot_from(path.leaf_bytes(), slot, &key) else { break };
            slot = found;
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
                    // What is left may go to a neighbour.
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

/// The slot of `key`, at `from` or behind it. Keys that follow each other lie close together.
fn slot_from(block: &[u8], from: usize, key: &Key) -> Option<usize> {
    let mut step = 1;
    let mut low = from;
    let count = raw::nritems(block);
    // The first slot that may have it, and one that has a larger key.
    let mut high = from;
    while high < count && raw::key_at(block, high) < *key {
        low = high.saturating_add(1);
        high = high.saturating_add(step);
        step = step.saturating_mul(2);
    }
    let mut high = high.min(count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if raw::key_at(block, middle) < *key { low = middle.saturating_add(1) } else { high = middle }
    }
    (low < count && raw::key_at(block, low) == *key).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_from_any_slot_before_it() {
        let mut block = raw::empty_block(4096, 0);
        let key = |number: u64| Key::new(number * 10, 1, 0);
        for (slot, number) in (0..60).enumerate() {
            leaf::insert(&mut block, slot, &[(key(number), b"x")]);
        }
        for (slot, number) in (0..60).enumerate() {
            for from in 0..=slot {
                assert_eq!(slot_from(&block, from, &key(number)), Some(slot));
                assert_eq!(slot_from(&block, from, &Key::new(number * 10 + 5, 1, 0)), None);
            }
            assert_eq!(slot_from(&block, slot + 1, &key(number)), None);
        }
        assert_eq!(slot_from(&block, 0, &key(60)), None);
    }
}
