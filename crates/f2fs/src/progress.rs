//! Tracks the progress of changes: how many the last checkpoint has, whether an operation is half done, and whether a
//! failure has ended all writing. `write_volume` owns it; `change` and `vfs_impl` ask.

#![expect(clippy::arithmetic_side_effects, reason = "a count of changes in memory")]

use crate::error::{Error, Result};

/// Counts of changes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    changes: u64,
    /// Changes in the last checkpoint.
    committed: u64,
    /// Changes up to the end of the last whole operation, or to a point at which it may be interrupted.
    settled: u64,
    /// A replay of fsynced nodes is running: a checkpoint before its end would drop the rest.
    pub(crate) is_replaying: bool,
    /// Number of pages written in place.
    rewrites: u64,
    poison: Option<Box<Error>>,
}

impl Progress {
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) const fn changed(&mut self) {
        self.changes += 1;
    }

    pub(crate) const fn rewrites(&self) -> u64 {
        self.rewrites
    }

    pub(crate) const fn rewrote(&mut self) {
        self.rewrites += 1;
    }

    pub(crate) const fn settle(&mut self) {
        self.settled = self.changes;
    }

    /// Notes a checkpoint with all changes.
    pub(crate) const fn committed(&mut self) {
        self.committed = self.changes;
    }

    pub(crate) const fn is_committed(&self) -> bool {
        self.changes == self.committed
    }

    /// True if a checkpoint would have only whole operations.
    pub(crate) const fn is_settled(&self) -> bool {
        !self.is_replaying && self.changes == self.settled
    }

    pub(crate) const fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Ends all writing because of an error; the first one counts.
    pub(crate) fn poison(&mut self, error: &Error) {
        self.poison.get_or_insert_with(|| Box::new(error.clone()));
    }

    /// Refuses to write after a failure.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn check(&self) -> Result<()> {
        match &self.poison {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}
