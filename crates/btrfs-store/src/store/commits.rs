//! Commits and flushes, and tells which transaction is durable: methods of `Store`. Called by the crate `btrfs` (fsync,
//! writeback, balance).

use btrfs_disk::items::{DevStatsItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Generation, Key};
use btrfs_pool::PoolDevice;
use zerocopy::FromZeros as _;

use super::{Need, Store};
use crate::tree::EditItem;
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
        self.keep_device_errors()?;
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

    /// Adds the errors of devices since the last call to the items that the kernel keeps them in. On a full volume they
    /// stay in memory.
    fn keep_device_errors(&self) -> Result<()> {
        let engine = &self.0;
        let devices = || engine.pool().devices().iter().filter(|device: &&PoolDevice| device.has_unsaved());
        if devices().next().is_none() || engine.health.check().is_err() || engine.log.unreplayed.is_waiting() {
            return Ok(());
        }
        let items = u32::try_from(devices().count()).unwrap_or(u32::MAX);
        let txn = match self.reserve(Need { items, data: 0 }) {
            Err(Error::NoSpace { .. }) => return Ok(()),
            reserved => self.begin(reserved?)?,
        };
        for device in devices() {
            let more = device.take_unsaved();
            let key = Key::new(objectid::DEV_STATS, item_type::PERSISTENT_ITEM, device.id().0);
            txn.edit(&engine.core.dev, &key, |old| {
                // An older kernel's item may be shorter: missing counters are zero.
                let old = old.and_then(|bytes| DevStatsItem::parse_prefix(bytes).ok()).map(|(item, _)| *item);
                let mut item = old.unwrap_or_else(DevStatsItem::new_zeroed);
                for (counter, more) in [
                    (&mut item.write_errors, more.write_errors),
                    (&mut item.read_errors, more.read_errors),
                    (&mut item.flush_errors, more.flush_errors),
                    (&mut item.corruption_errors, more.corruptions),
                    (&mut item.generation_errors, more.generation_errors),
                ] {
                    *counter = counter.get().saturating_add(more).into();
                }
                Ok(EditItem::Put(item.bytes().to_vec()))
            })?;
        }
        Ok(())
    }
}
