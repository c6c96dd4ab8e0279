//! Applies queued reference changes before the commit does (a drain): a commit lets no handle begin while it applies
//! them, and after a snapshot there are many, as each leaf that is copied refers to all its extents once more. Called
//! by `store` when an operation reserves space, and by `commit` to shorten its critical section.
//!
//! A drain is an ordinary change of the running transaction, exclusive for some milliseconds. It pays from the charges
//! of its changes, and from a reservation for the blocks that they may copy, never from the global reserve, which grows
//! with the trees that it makes larger: the commit has as much left as if the changes had just been queued. Where
//! metadata may become full there is no drain, since the commit uses less space for the same changes.
//!
//! Failure: an error in the middle of a drain ends all writing to the store, as in a commit.

use btrfs_disk::Generation;
use btrfs_disk::convert::to_u64;

use super::commit::Sink;
use super::engine::Engine;
use super::handle::HEADS_PER_STAGED;
use super::host::{FundingSource, TxnHost};
use crate::Result;
use crate::error::SpaceKind;
use crate::extent::{Apply, ExtentKind};
use crate::space::Reservation;
use crate::tree::Edit;

/// The number of queued changes from which on a drain runs, and about as many as it applies: a few milliseconds. Debug
/// builds drain far more often, so that tests do.
const ENTRIES_MIN: usize = if cfg!(debug_assertions) { 64 } else { 2048 };

impl Engine {
    /// The number of calls of [`Self::drain`] for the changes queued now.
    pub(crate) fn drains_due(&self) -> usize {
        if self.quota.is_on() { 0 } else { self.pending.refs.entry_count() / ENTRIES_MIN }
    }

    /// True when [`Self::drain`] has something to do.
    pub(crate) fn is_drain_due(&self) -> bool {
        self.drains_due() > 0
    }

    /// Applies some of the queued changes, in the running transaction. Applies none, and returns false, while a commit
    /// is running, which applies them itself, or where metadata may become full. The caller must have no open handle.
    ///
    /// # Errors
    /// As a commit; the store is poisoned then.
    pub(crate) fn drain(&self) -> Result<bool> {
        let Some(serial) = self.gate.try_serialize() else { return Ok(false) };
        let Some(room) = self.space.accounts().reserve_for_drain(ENTRIES_MIN, || self.commit_tree_bytes()) else {
            return Ok(false);
        };
        let generation = self.gate.close(&serial);
        let drained = if self.is_drain_due() { self.apply_some(generation, &room) } else { Ok(()) };
        let drained = drained.inspect_err(|error| self.health.poison(error));
        self.gate.open(&serial, false);
        drained.map(|()| true)
    }

    fn apply_some(&self, generation: Generation, room: &Reservation) -> Result<()> {
        self.health.check()?;
        let accounts = self.space.accounts();
        let heads = self.pending.refs.take_some_sorted(ENTRIES_MIN);
        for (_, head) in heads.iter().filter(|(_, head)| head.is_losing()) {
            let kind = match head.kind {
                ExtentKind::Tree { .. } => SpaceKind::Metadata,
                ExtentKind::Data { .. } => SpaceKind::Data,
            };
            accounts.expect_kept(kind, self.extent_sizes().len(head.kind));
        }
        let staged = to_u64(self.pending.staged.count()).saturating_mul(HEADS_PER_STAGED);
        accounts.take_charges(to_u64(self.pending.refs.entry_count()).saturating_add(staged), room);
        // A log on the device may lead to blocks that are freed now.
        let keeps_freed = !self.log.is_empty();
        let host = TxnHost { engine: self, generation, funding: FundingSource::Handle(room), keeps_freed };
        let apply = Apply {
            edit: Edit::new(&host),
            tree: &self.core.extent,
            csums: self.csum_tree(),
            // Data is not reused either before the commit: see `TxnHost::push`.
            space: &Sink { engine: self, keeps_freed: true },
            sizes: self.extent_sizes(),
            names_owners: self.quota.is_simple(),
        };
        apply.run(&heads)?;
        // The next commit may be late, and has to copy these trees.
        accounts.resize_global(self.commit_tree_bytes());
        Ok(())
    }
}
