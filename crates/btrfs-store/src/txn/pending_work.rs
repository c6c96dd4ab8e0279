//! Holds the pending work of the running transaction, all of which its commit takes. The engine owns it.

use crate::extent::{RefQueue, TouchedExtents};

use super::dirty_blocks::DirtyBlocks;
use super::settled_txn::UnwrittenTxn;
use super::staging::StagedItems;

/// The work that waits for the commit.
pub(crate) struct Pending {
    /// Reference changes, for the extent tree.
    pub(crate) refs: RefQueue,
    /// Extents with changed holders, for quotas.
    pub(crate) touched: TouchedExtents,
    /// Tree blocks, for the device.
    pub(crate) dirty: DirtyBlocks,
    /// Staged items, for their trees.
    pub(crate) staged: StagedItems,
    /// The transaction before, when it has settled and is not written.
    pub(crate) unwritten: UnwrittenTxn,
}

impl Pending {
    pub(crate) fn none() -> Self {
        Self {
            refs: RefQueue::new(),
            touched: TouchedExtents::new(),
            dirty: DirtyBlocks::new(),
            staged: StagedItems::new(),
            unwritten: UnwrittenTxn::none(),
        }
    }

    /// True when the running transaction has changed no block, no reference and no item.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.count() == 0 && self.refs.is_empty() && self.staged.is_empty()
    }
}
