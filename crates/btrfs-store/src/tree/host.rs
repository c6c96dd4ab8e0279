//! Defines the trait [`Host`]: the part of a transaction that edits of trees call, to allocate blocks and to keep their
//! reference counts. `txn/host`, `txn/drop_resume` and `log/edit` implement it; `tree/write_path`, `tree/relocation`
//! and `txn/drop_tree` call it.

use btrfs_disk::{Generation, Logical};

use crate::Result;

use super::block::{Block, BlockView, Bytes};
use super::forest::Tree;

/// The services that an edit needs of its transaction.
pub trait Host: Sync {
    /// The running generation, which new blocks get.
    fn generation(&self) -> Generation;

    /// True for a block that this transaction made and may still edit in place. The generation in the block does not
    /// prove that: a damaged image may contain any number there.
    fn owns(&self, block: &Bytes) -> bool;

    /// Allocates a block for `tree`, counts it as new, and returns its address.
    ///
    /// # Errors
    /// When there is no space.
    fn alloc_block(&self, tree: &Tree, level: u8) -> Result<Logical>;

    /// Called when the tree replaces `old` by the copy `new` in `tree`: updates the reference counts of both blocks and
    /// of their children.
    ///
    /// # Errors
    /// When the references cannot be read.
    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, new: &mut [u8]) -> Result<()>;

    /// Called when `tree` no longer contains a block of the running generation: drops the reference to it.
    ///
    /// # Errors
    /// When the references cannot be read.
    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()>;

    /// Called when an edit has made a new block, which the commit must write.
    fn block_dirtied(&self, block: &Block);
}
