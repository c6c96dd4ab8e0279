//! Serves tree edits on behalf of the transaction: allocates blocks, queues reference changes, collects dirty blocks.
//! Handles, drains and the commit pass one to every edit.

use btrfs_disk::{Generation, Logical, TreeId};

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::error::SpaceKind;
use crate::extent::{
    BlockState, ExtentKind, Pushed, RefChange, Shareability, cow_changes, lookup, may_be_shared, on_cow, unshared,
};
use crate::space::{AllocRequest, Extent, Payer, Reservation};
use crate::tree::{Block, BlockView, Bytes, Host, Tree, TreeKind, layout};

use super::engine::Engine;

/// The source of the space for the blocks of an edit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FundingSource<'a> {
    /// A handle's reservation.
    Handle(&'a Reservation),
    /// The commit, from the global reserve.
    Commit,
}

/// The kind of space of a change's extent.
const fn kind_of(change: &RefChange) -> SpaceKind {
    match change.kind() {
        ExtentKind::Tree { .. } => SpaceKind::Metadata,
        ExtentKind::Data { .. } => SpaceKind::Data,
    }
}

/// The side of the transaction that trees see.
pub(crate) struct TxnHost<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) generation: Generation,
    pub(crate) funding: FundingSource<'a>,
    /// Blocks that this transaction allocated and freed must not be reused before it is durable.
    pub(crate) keeps_freed: bool,
}

impl TxnHost<'_> {
    fn payer(&self) -> Payer<'_> {
        match self.funding {
            FundingSource::Handle(reservation) => Payer::Reservation(reservation),
            FundingSource::Commit => Payer::Commit,
        }
    }

    /// Queues a reference change; a tree block without references left is free at once, data with the commit.
    pub(crate) fn push(&self, change: RefChange) -> Result<()> {
        let accounts = self.engine.space.accounts();
        if matches!(change, RefChange::DropData { .. }) && mutated(Mutation::FreedDataReused) {
            self.engine.space.free_now(self.extent_of(&change))?;
        }
        let pushed = self.engine.pending.refs.push(change)?;
        if self.engine.quota.is_on() {
            self.note_touched(&change, pushed == Pushed::Cancelled);
        }
        match (pushed, self.funding) {
            (pushed @ (Pushed::Queued | Pushed::Losing | Pushed::Regained), FundingSource::Handle(reservation)) => {
                accounts.charge_heads(1, Some(reservation));
                // An estimate: others may hold the extent.
                let (kind, bytes) = (kind_of(&change), self.extent_of(&change).len);
                match pushed {
                    Pushed::Losing => accounts.expect_freed(kind, bytes),
                    Pushed::Regained => accounts.expect_kept(kind, bytes),
                    Pushed::Queued | Pushed::Cancelled => {}
                }
            }
            (Pushed::Queued | Pushed::Losing | Pushed::Regained, FundingSource::Commit) => {}
            (Pushed::Cancelled, funding) => {
                if let FundingSource::Handle(_) = funding {
                    accounts.uncharge_heads(1);
                }
                let extent = self.extent_of(&change);
                if kind_of(&change) == SpaceKind::Data || self.keeps_freed {
                    // Pin instead of freeing: a reader that looked the extent up may still be reading it, the log may
                    // refer to it, and the cache of decompressed data is keyed by (address, generation). Freed blocks
                    // must also not be reused within the commit (`ROUNDS_FREEING`).
                    self.engine.space.pin(extent)?;
                } else {
                    self.engine.space.free_now(extent)?;
                }
            }
        }
        Ok(())
    }

    fn extent_of(&self, change: &RefChange) -> Extent {
        Extent { at: change.at(), len: self.engine.extent_sizes().len(change.kind()) }
    }

    /// The reference state of a block, looked up only where it can be shared.
    pub(crate) fn state_of(&self, tree: &Tree, block: &BlockView<'_>) -> Result<BlockState> {
        let shareability = Shareability {
            tree_is_shareable: tree.kind() == TreeKind::Shareable,
            is_root: false,
            block_generation: block.generation,
            last_snapshot: tree.last_snapshot(),
            is_relocated: block.flags & layout::FLAG_RELOC != 0,
        };
        if !may_be_shared(&shareability) {
            return Ok(unshared(false));
        }
        let engine = self.engine;
        let kind = ExtentKind::Tree { level: block.level };
        let info = lookup(&engine.core.extent, &engine.pending.refs, block.at, kind, &engine.extent_sizes())?;
        Ok(BlockState {
            refs: info.refs,
            full_backref: info.flags.contains(btrfs_disk::flags::ExtentFlags::FULL_BACKREF),
            is_owned: block.owner == tree.id(),
            is_relocation: false,
        })
    }
}

impl Host for TxnHost<'_> {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn owns(&self, block: &Bytes) -> bool {
        // Blocks made in a transaction stay in memory, and dirty, until its commit.
        block.is_made && layout::generation(&block.data) == self.generation.0
    }

    fn alloc_block(&self, tree: &Tree, level: u8) -> Result<Logical> {
        let kind = if tree.id() == TreeId::CHUNK { SpaceKind::System } else { SpaceKind::Metadata };
        let len = self.engine.nodesize();
        let request = AllocRequest { kind, len, min_len: len, hint: None, window: 0 };
        let at = self.engine.space.alloc(&request, self.payer())?.at;
        self.push(RefChange::AddTree { at, level, owner: tree.id(), parent: None, new: true })?;
        Ok(at)
    }

    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, new: &mut [u8]) -> Result<()> {
        let places = (old.at, BlockView::new(new).at);
        let plan = match self.state_of(tree, old) {
            Ok(state) => on_cow(&state),
            Err(error) => {
                // The copy never gets into the tree, so its reference is dropped.
                let (at, level, owner) = (places.1, old.level, tree.id());
                self.push(RefChange::DropTree { at, level, owner, parent: None })?;
                return Err(error);
            }
        };
        cow_changes(&plan, old.bytes, places, tree.id(), &mut |change| self.push(change))
            .inspect_err(|error| self.engine.health.poison(error))?;
        if plan.frees_old {
            // A block that was moved here in this transaction must not be written.
            self.engine.pending.dirty.remove(old.at);
            tree.forest().forget(old.at);
        }
        Ok(())
    }

    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        self.engine.pending.dirty.remove(block.at);
        tree.forest().forget(block.at);
        self.push(RefChange::DropTree { at: block.at, level: block.level, owner: tree.id(), parent: None })
    }

    fn block_dirtied(&self, block: &Block) {
        self.engine.pending.dirty.insert(block);
    }
}
