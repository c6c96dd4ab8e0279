//! What is durable, and what makes it so.

use btrfs_disk::Generation;

use super::Store;
use crate::{Error, Result};

impl Store {
    /// Makes everything durable that was written to the devices before: data that was overwritten
    /// in place, which no transaction knows of.
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
        self.0.commit()
    }

    /// Does before [`Self::begin_exclusive`] what that would wait for, so that the caller's locks are held for less:
    /// applies what is queued, in parts between which others go on, and waits for the commit that is under way. Not to
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

    /// Writes what a handle that was alone ([`Self::begin_exclusive`]) left to be written of the transaction before it,
    /// unless somebody has begun to; then, and where nothing was left, it waits for nobody. Not to be called with an
    /// open handle.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn write_settled(&self) -> Result<()> {
        self.0.write_settled()
    }
}
