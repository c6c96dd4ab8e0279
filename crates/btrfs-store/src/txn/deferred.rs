//! Item replacements that wait for the commit ("delayed inodes").
//!
//! An inode item changes with every write; in the tree it needs to change once per
//! transaction. Whoever stages a replacement keeps the current value elsewhere: a read of
//! the tree sees the old one until the commit.

use std::collections::HashMap;

use btrfs_disk::{Key, TreeId};

use crate::locks::{Mutex, Rank};

/// Staged replacements of whole items. The last one wins.
pub(crate) struct Deferred {
    staged: Mutex<HashMap<(TreeId, Key), Vec<u8>>>,
}

impl Deferred {
    pub(crate) fn new() -> Self {
        Self { staged: Mutex::new(Rank::RefQueue, HashMap::new()) }
    }

    /// True when nothing was staged for this item before.
    pub(crate) fn stage(&self, tree: TreeId, key: &Key, bytes: Vec<u8>) -> bool {
        self.staged.lock().insert((tree, *key), bytes).is_none()
    }

    pub(crate) fn forget(&self, tree: TreeId, key: &Key) {
        self.staged.lock().remove(&(tree, *key));
    }

    pub(crate) fn forget_tree(&self, tree: TreeId) {
        self.staged.lock().retain(|(id, _), _| *id != tree);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.staged.lock().is_empty()
    }

    /// Takes all, by tree and key.
    pub(crate) fn take_sorted(&self) -> Vec<((TreeId, Key), Vec<u8>)> {
        let mut all: Vec<_> = std::mem::take(&mut *self.staged.lock()).into_iter().collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }
}
