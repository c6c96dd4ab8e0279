//! What copying tree blocks costs the transaction: addresses, references, dirty blocks.

use btrfs_disk::{Generation, Logical, TreeId};

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::error::SpaceKind;
use crate::extent::{
    BlockState, ExtentKind, Pushed, RefChange, Shareability, cow_changes, lookup, may_be_shared, on_cow, unshared,
};
use crate::space::{AllocRequest, Extent, Payer, Reservation};
use crate::tree::{Block, BlockView, Bytes, Host, Tree, TreeKind, raw};

use super::engine::Engine;

/// Who pays for the blocks of an edit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purse<'a> {
    /// A handle's reservation.
    Handle(&'a Reservation),
    /// The commit, from what is kept back for it.
    Commit,
}

/// Whose space a change is about.
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
    pub(crate) purse: Purse<'a>,
    /// What this transaction took and gave up is not to be taken again before it is durable.
    pub(crate) keeps_freed: bool,
}

impl TxnHost<'_> {
    fn payer(&self) -> Payer<'_> {
        match self.purse {
            Purse::Handle(reservation) => Payer::Reservation(reservation),
            Purse::Commit => Payer::Commit,
        }
    }

    /// Queues a reference change; a tree block that nobody refers to any more is free at once, data with the commit.
    pub(crate) fn push(&self, change: RefChange) -> Result<()> {
        let accounts = self.engine.space.accounts();
        if matches!(change, RefChange::DropData { .. }) && mutated(Mutation::FreedDataReused) {
            self.engine.space.free_now(self.extent_of(&change))?;
        }
        let pushed = self.engine.pending.refs.push(change)?;
        if self.engine.quota.is_on() {
            self.note_touched(&change, pushed == Pushed::Cancelled);
        }
        match (pushed, self.purse) {
            (pushed @ (Pushed::Queued | Pushed::Losing | Pushed::Regained), Purse::Handle(reservation)) => {
                accounts.charge_heads(1, Some(reservation));
                // An estimate: others may hold the extent.
                let (kind, bytes) = (kind_of(&change), self.extent_of(&change).len);
                match pushed {
                    Pushed::Losing => accounts.expect_freed(kind, bytes),
                    Pushed::Regained => accounts.expect_kept(kind, bytes),
                    Pushed::Queued | Pushed::Cancelled => {}
                }
            }
            (Pushed::Queued | Pushed::Losing | Pushed::Regained, Purse::Commit) => {}
            (Pushed::Cancelled, purse) => {
                if let Purse::Handle(_) = purse {
                    accounts.uncharge_heads(1);
                }
                let extent = self.extent_of(&change);
                if kind_of(&change) == SpaceKind::Data || self.keeps_freed {
                    // Data may be being read by who looked it up before, a log may have its place, and what is kept of
                    // it in memory is told apart by its place and the transaction that made it. And rounds must end.
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

    /// How often a block is referred to, looked up only where it can matter.
    pub(crate) fn state_of(&self, tree: &Tree, block: &BlockView<'_>) -> Result<BlockState> {
        let shareability = Shareability {
            tree_is_shareable: tree.kind() == TreeKind::Shareable,
            is_root: false,
            block_generation: block.generation,
            last_snapshot: tree.last_snapshot(),
            is_relocated: block.flags & raw::FLAG_RELOC != 0,
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
        // What is made in a transaction stays in memory until its commit, and is dirty as long.
        block.is_made && raw::generation(&block.data) == self.generation.0
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
                // The copy never gets into the tree, so nothing may be left of it.
                let (at, level, owner) = (places.1, old.level, tree.id());
                self.push(RefChange::DropTree { at, level, owner, parent: None })?;
                return Err(error);
            }
        };
        cow_changes(&plan, old.bytes, places, tree.id(), &mut |change| self.push(change))
            .inspect_err(|error| self.engine.health.poison(error))?;
        if plan.frees_old {
            // One that was moved here in this transaction is never to be written.
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
