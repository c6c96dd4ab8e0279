//! Defines the transaction as trees see it: the trait [`Host`]. `txn/host` and `log/edit` implement it; every edit of a
//! tree calls it.

use btrfs_disk::{Generation, Logical};

use crate::Result;

use super::block::{Block, BlockView, Bytes};
use super::forest::Tree;

/// The services that an edit needs of its transaction.
pub trait Host: Sync {
    /// The running generation, which new blocks get.
    fn generation(&self) -> Generation;

    /// True for a block that this transaction made and may still edit in place. Its generation alone does not prove
    /// that: an image may claim any.
    fn owns(&self, block: &Bytes) -> bool;

    /// An address for a new block of `tree`; accounted as new.
    ///
    /// # Errors
    /// When there is no room.
    fn alloc_block(&self, tree: &Tree, level: u8) -> Result<Logical>;

    /// `old` is replaced by a copy in `tree`: keeps the references of both and of their
    /// children right.
    ///
    /// # Errors
    /// When the references cannot be read.
    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, new: &mut [u8]) -> Result<()>;

    /// A block of the running generation left `tree`.
    ///
    /// # Errors
    /// When the references cannot be read.
    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()>;

    /// A block of the running generation was made; the commit must write it.
    fn block_dirtied(&self, block: &Block);
}
