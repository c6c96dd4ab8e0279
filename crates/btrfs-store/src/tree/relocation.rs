//! Gives blocks of a tree another address; they keep their contents (the tree's side of relocation).
//!
//! Called by `relocate`, while no other thread changes any tree; readers continue.

use btrfs_disk::{Generation, Key, Logical};

use crate::Result;

use super::block::Block;
use super::forest::{Forest, RootPtr, Tree};
use super::host::Host;
use super::layout;

impl Tree {
    /// The blocks on the way to `key`, from the root down to the one at `level`; none where the root lies lower.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub(crate) fn path_to(&self, key: &Key, level: u8) -> Result<Vec<Logical>> {
        let root = self.root.read();
        let mut path = Vec::new();
        if root.level < level {
            return Ok(path);
        }
        let mut locked = self.forest.read(&self.expect(&root))?;
        drop(root);
        path.push(locked.at);
        while layout::level(&locked.data) > level {
            let slot = layout::child_slot(&locked.data, key);
            locked = self.forest.read(&self.child_expect(&locked.data, slot))?;
            path.push(locked.at);
        }
        Ok(path)
    }

    /// Changes the address of the root block.
    pub(crate) fn move_root(&self, at: Logical, generation: Generation) {
        let mut root = self.root.write();
        *root = RootPtr { at, generation, ..*root };
        drop(root);
        self.note_changed();
    }
}

impl Forest {
    /// A copy of a block's bytes, from the cache, else from `read`.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn copy_of(&self, at: Logical, read: impl FnOnce() -> Result<Box<[u8]>>) -> Result<Box<[u8]>> {
        match self.cache.get(at) {
            Some(block) => Ok(block.read_own().data.clone()),
            None => read(),
        }
    }

    /// Adds a new block of the transaction to the cache; nothing points to it yet.
    pub(crate) fn adopt_moved(&self, host: &dyn Host, at: Logical, data: Box<[u8]>) {
        let block = Block::made(at, data);
        self.cache.insert_new(block.clone());
        host.block_dirtied(&block);
    }

    /// Waits for readers of a block that nothing points to any more, and forgets it. A thread on its way to the block
    /// has locked the block above: retire that one first.
    pub(crate) fn retire_moved(&self, at: Logical) {
        if let Some(block) = self.cache.get(at) {
            drop(block.write_new());
        }
        self.forget(at);
    }
}
