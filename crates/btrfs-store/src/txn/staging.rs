//! Keeps item changes that wait for the commit ("delayed inodes"). Handles stage them; the commit writes them into the
//! trees.
//!
//! An inode item changes with every write; in the tree it needs to change once per
//! transaction. The caller that stages a replacement keeps the current value elsewhere: a read of the tree sees the old
//! one until the commit. An item that is likely to be removed again in the same transaction (an orphan item) is staged
//! too: then it costs no tree edit.

use btrfs_disk::{Key, TreeId};

use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};

/// The change that the commit makes for a staged item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Staged {
    /// Replaces the bytes of an item that is in the tree.
    Replace(Vec<u8>),
    /// Inserts an item that is not.
    Insert(Vec<u8>),
}

/// Staged changes of whole items. The last one wins.
pub(crate) struct StagedItems {
    staged: Mutex<NumberMap<(TreeId, Key), Staged>>,
}

impl StagedItems {
    pub(crate) fn new() -> Self {
        Self { staged: Mutex::new(Rank::RefQueue, NumberMap::default()) }
    }

    /// True when nothing was staged for this item before.
    pub(crate) fn stage(&self, tree: TreeId, key: &Key, change: Staged) -> bool {
        self.staged.lock().insert((tree, *key), change).is_none()
    }

    /// True when something was staged for this item.
    pub(crate) fn forget(&self, tree: TreeId, key: &Key) -> bool {
        self.staged.lock().remove(&(tree, *key)).is_some()
    }

    pub(crate) fn forget_tree(&self, tree: TreeId) {
        self.staged.lock().retain(|(id, _), _| *id != tree);
    }

    /// How many items have something staged.
    pub(crate) fn count(&self) -> usize {
        self.staged.lock().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.staged.lock().is_empty()
    }

    /// Takes all, by tree and key.
    pub(crate) fn take_sorted(&self) -> Vec<((TreeId, Key), Staged)> {
        let mut all: Vec<_> = std::mem::take(&mut *self.staged.lock()).into_iter().collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }
}
