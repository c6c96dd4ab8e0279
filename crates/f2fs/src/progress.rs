//! How far the changes of a volume are: which of them the last checkpoint has, whether an operation is half done, and
//! whether a failure has ended all writing.

#![expect(clippy::arithmetic_side_effects, reason = "a count of changes in memory")]

use crate::error::{Error, Result};

/// Counts of changes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    changes: u64,
    /// Changes that the last checkpoint has.
    committed: u64,
    /// Changes up to the end of the last whole operation, or to a point where one may be cut short.
    settled: u64,
    /// Fsynced nodes are being replayed: a checkpoint before its end would leave the rest out.
    pub(crate) is_replaying: bool,
    /// Pages that were written over their old blocks.
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

    /// A checkpoint with all changes is on the disk.
    pub(crate) const fn committed(&mut self) {
        self.committed = self.changes;
    }

    pub(crate) const fn is_committed(&self) -> bool {
        self.changes == self.committed
    }

    /// True where a checkpoint would hold whole operations.
    pub(crate) const fn is_settled(&self) -> bool {
        !self.is_replaying && self.changes == self.settled
    }

    pub(crate) const fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Nothing is written any more because of an error; the first one counts.
    pub(crate) fn poison(&mut self, error: &Error) {
        self.poison.get_or_insert_with(|| Box::new(error.clone()));
    }

    /// Refuses to go on once something could not be written.
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
