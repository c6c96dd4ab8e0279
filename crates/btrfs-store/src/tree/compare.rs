//! Finds the differences between two trees, in the order of keys. Blocks that both have are skipped.
//!
//! Two trees with a common origin, as a subvolume and its snapshot, share every unchanged block: the same address and
//! generation. Only pointers to different blocks are followed.
//!
//! Invariants: neither tree changes meanwhile (both are of a committed state, or read-only); the cursors keep copies of
//! one block a level, and no locks, so that the trees may be read between two differences. Called by send, through
//! `Store`.

use std::cmp::Ordering;
use std::sync::Arc;

use btrfs_disk::Key;

use crate::Result;

use super::block::ReadExpect;
use super::forest::Tree;
use super::{layout, leaf, node};

/// An item that differs: at least one of the trees has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    /// Its key.
    pub key: Key,
    /// Its bytes in the first tree.
    pub old: Option<&'a [u8]>,
    /// Its bytes in the second tree.
    pub new: Option<&'a [u8]>,
}

/// Goes through two trees, of which the first may be missing: then everything in the second differs.
pub struct Compare {
    old: Cursor,
    new: Cursor,
    /// Which cursor to advance before the next step: the order of the items shown last.
    shown: Option<Ordering>,
}

/// A place in a tree: a pointer or an item of the last block.
struct Cursor {
    tree: Option<Arc<Tree>>,
    path: Vec<(Box<[u8]>, usize)>,
    block_count: u64,
}

impl Compare {
    /// Begins at the first keys.
    ///
    /// # Errors
    /// When a root cannot be read.
    pub fn new(old: Option<Arc<Tree>>, new: Arc<Tree>) -> Result<Self> {
        let is_same = old.as_ref().is_some_and(|old| old.root_ptr() == new.root_ptr());
        let (old, new) = if is_same { (None, None) } else { (old, Some(new)) };
        Ok(Self { old: Cursor::new(old)?, new: Cursor::new(new)?, shown: None })
    }

    /// Blocks that were looked at so far, in both trees.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.old.block_count.saturating_add(self.new.block_count)
    }

    /// The next item that differs.
    ///
    /// # Errors
    /// When a block cannot be read.
    pub fn step(&mut self) -> Result<Option<Difference<'_>>> {
        if let Some(shown) = self.shown.take() {
            self.advance(shown);
        }
        let found = loop {
            let order = match (self.old.key(), self.new.key()) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(&new),
            };
            match order {
                Ordering::Less if self.old.level() > 0 => self.old.down()?,
                Ordering::Greater if self.new.level() > 0 => self.new.down()?,
                Ordering::Less | Ordering::Greater => break order,
                Ordering::Equal => match self.old.level().cmp(&self.new.level()) {
                    Ordering::Greater => self.old.down()?,
                    Ordering::Less => self.new.down()?,
                    Ordering::Equal if self.is_same() => self.advance(order),
                    Ordering::Equal if self.old.level() == 0 => break order,
                    Ordering::Equal => {
                        self.old.down()?;
                        self.new.down()?;
                    }
                },
            }
        };
        self.shown = Some(found);
        let old = (found != Ordering::Greater).then(|| self.old.item()).flatten();
        let new = (found != Ordering::Less).then(|| self.new.item()).flatten();
        Ok(old.or(new).map(|(key, _)| Difference {
            key,
            old: old.map(|(_, bytes)| bytes),
            new: new.map(|(_, bytes)| bytes),
        }))
    }

    fn advance(&mut self, order: Ordering) {
        if order != Ordering::Greater {
            self.old.advance();
        }
        if order != Ordering::Less {
            self.new.advance();
        }
    }

    /// Whether the cursors, which are at one key and level, lead to one block, or are at items with the same bytes.
    fn is_same(&self) -> bool {
        match (self.old.path.last(), self.new.path.last()) {
            (Some((old, old_slot)), Some((new, new_slot))) if layout::level(old) > 0 => {
                node::child(old, *old_slot) == node::child(new, *new_slot)
            }
            (Some((old, old_slot)), Some((new, new_slot))) => leaf::data(old, *old_slot) == leaf::data(new, *new_slot),
            _ => false,
        }
    }
}

impl Cursor {
    fn new(tree: Option<Arc<Tree>>) -> Result<Self> {
        let mut cursor = Self { tree, path: Vec::new(), block_count: 0 };
        if let Some(tree) = &cursor.tree {
            let expect = tree.expect(&tree.root_ptr());
            cursor.enter(&expect)?;
        }
        Ok(cursor)
    }

    fn enter(&mut self, expect: &ReadExpect) -> Result<()> {
        let Some(tree) = &self.tree else { return Ok(()) };
        let block = tree.forest().read(expect)?.data.clone();
        self.block_count += 1;
        let is_empty = layout::nritems(&block) == 0;
        self.path.push((block, 0));
        if is_empty {
            self.leave();
        }
        Ok(())
    }

    fn level(&self) -> u8 {
        self.path.last().map_or(0, |(block, _)| layout::level(block))
    }

    /// The key here; none at the end.
    fn key(&self) -> Option<Key> {
        self.path.last().map(|(block, slot)| layout::key_at(block, *slot))
    }

    /// The item here, in a leaf.
    fn item(&self) -> Option<(Key, &[u8])> {
        self.path.last().map(|(block, slot)| leaf::item(block, *slot))
    }

    /// Into the block that the pointer here leads to.
    fn down(&mut self) -> Result<()> {
        let expect = match (&self.tree, self.path.last()) {
            (Some(tree), Some((block, slot))) => tree.child_expect(block, *slot),
            _ => return Ok(()),
        };
        self.enter(&expect)
    }

    fn advance(&mut self) {
        if let Some((block, slot)) = self.path.last_mut() {
            *slot += 1;
            if *slot >= layout::nritems(block) {
                self.leave();
            }
        }
    }

    /// To the next pointer or item behind this block.
    fn leave(&mut self) {
        while self.path.pop().is_some() {
            let Some((block, slot)) = self.path.last_mut() else { return };
            *slot += 1;
            if *slot < layout::nritems(block) {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Compare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compare").field("at", &(self.old.key(), self.new.key())).finish_non_exhaustive()
    }
}
