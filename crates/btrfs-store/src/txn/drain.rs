//! Applying reference changes before the commit: it does so while nobody has a handle, and after a snapshot, when every
//! leaf that is copied refers to all its extents once more, there are so many that others would wait for long.

use super::commit::Sink;
use super::engine::Engine;
use super::host::{Purse, TxnHost};
use crate::Result;
use crate::extent::Apply;
use crate::tree::Edit;
use btrfs_disk::convert::to_u64;

/// Queued changes from which on they are applied: what takes a few milliseconds. Builds that check themselves come here
/// far more often, so that tests do.
const ENTRIES_MIN: usize = if cfg!(debug_assertions) { 64 } else { 2048 };

impl Engine {
    /// True when [`Self::drain`] has something to do. On a volume that may become full changes wait for the commit,
    /// which takes the least space for them.
    pub(crate) fn is_drain_due(&self) -> bool {
        self.pending.refs.entry_count() >= ENTRIES_MIN && !self.quota.is_on() && self.space.accounts().has_plenty()
    }

    /// Applies what is queued, in the running transaction, unless a commit is under way, which does. Not to be called
    /// with an open handle.
    pub(crate) fn drain(&self) -> Result<()> {
        let Some(serial) = self.gate.try_serialize() else { return Ok(()) };
        let generation = self.gate.close(&serial);
        let drained = if self.is_drain_due() { self.apply_queued(generation) } else { Ok(()) };
        let drained = drained.inspect_err(|error| self.health.poison(error));
        self.gate.open(&serial, false);
        drained
    }

    fn apply_queued(&self, generation: btrfs_disk::Generation) -> Result<()> {
        // What a log on the device may lead to is not taken again.
        let keeps_freed = !self.log.is_empty();
        let host = TxnHost { engine: self, generation, purse: Purse::Commit, keeps_freed };
        let apply = Apply {
            edit: Edit::new(&host),
            tree: &self.core.extent,
            csums: self.csum_tree(),
            space: &Sink { engine: self, keeps_freed },
            sizes: self.extent_sizes(),
            names_owners: self.quota.is_simple(),
        };
        apply.run(&self.pending.refs.take_all_sorted())?;
        let accounts = self.space.accounts();
        accounts.uncharge_all();
        accounts.charge_heads(to_u64(self.pending.refs.entry_count()), None);
        Ok(())
    }
}
