//! What the running transaction has still to write: a commit takes all of it.

use crate::extent::{RefQueue, Touched};

use super::deferred::Deferred;
use super::dirty::DirtyBlocks;
use super::settled::Unfinished;

/// The work that waits for the commit.
pub(crate) struct Pending {
    /// Reference changes, for the extent tree.
    pub(crate) refs: RefQueue,
    /// Extents whose holders changed, for quotas.
    pub(crate) touched: Touched,
    /// Tree blocks, for the device.
    pub(crate) dirty: DirtyBlocks,
    /// Staged items, for their trees.
    pub(crate) deferred: Deferred,
    /// The transaction before, when it settled and is not written.
    pub(crate) unfinished: Unfinished,
}

impl Pending {
    pub(crate) fn none() -> Self {
        Self {
            refs: RefQueue::new(),
            touched: Touched::new(),
            dirty: DirtyBlocks::new(),
            deferred: Deferred::new(),
            unfinished: Unfinished::none(),
        }
    }

    /// True when the running transaction has changed no block, no reference and no item.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.count() == 0 && self.refs.is_empty() && self.deferred.is_empty()
    }
}
