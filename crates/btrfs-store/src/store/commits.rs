//! Commits and flushes, and tells which transaction is durable: methods of `Store`. Called by the crate `btrfs` (fsync,
//! writeback, balance).

use btrfs_disk::Generation;

use super::Store;
use crate::{Error, Result};

impl Store {
    /// Makes earlier writes to the devices durable: data that was overwritten in place, which no transaction records.
    ///
    /// # Errors
    /// The device's, after which nothing more is written.
    pub fn flush_devices(&self) -> Result<()> {
        self.0.flush()
    }

    /// The newest transaction that is durable.
    #[must_use]
    pub fn durable(&self) -> Generation {
        self.0.gate.durable()
    }

    /// Makes everything durable that was changed before the call. Not to be called with an
    /// open handle.
    ///
    /// # Errors
    /// Whatever writing fails with; [`Error::Poisoned`] from then on.
    pub fn commit(&self) -> Result<Generation> {
        if self.0.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut generation = self.0.commit()?;
        // A device that failed in this commit, or before, has to be behind the others.
        while let Some(losses) = self.0.unnoted_losses() {
            self.note_losses(losses)?;
            generation = self.0.commit()?;
        }
        Ok(generation)
    }

    /// Shortens the wait of the next [`Self::begin_exclusive`], so that the caller's locks are held for less: applies
    /// the queued changes, in parts between which other operations continue, and waits for the running commit. Not to
    /// be called with an open handle.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn make_way(&self) -> Result<()> {
        if self.0.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.0.make_way().map(drop)
    }

    /// Writes the transaction that [`Self::begin_exclusive`] ended, unless another thread has begun to; then, and where
    /// nothing is left to write, it returns at once. Not to be called with an open handle.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn write_settled(&self) -> Result<()> {
        self.0.write_settled()
    }
}
