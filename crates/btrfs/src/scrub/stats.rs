//! Reads and changes the device's error counters, in the item that the kernel keeps them in: `btrfs device stats` shows
//! it. Called by `run` and `volume::scrub`.

use btrfs_disk::items::{DevStatsItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, TreeId};

use super::report::ScrubProgress;
use crate::dir::Namespace;
use crate::error::{CallerError, Result};

/// The errors of a device since its counters were last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceErrors {
    /// Number of the device.
    pub device: u64,
    /// Failed writes.
    pub write: u64,
    /// Failed reads.
    pub read: u64,
    /// Failed flushes.
    pub flush: u64,
    /// Blocks and sectors that failed their check.
    pub corruption: u64,
    /// Tree blocks of another generation than expected.
    pub generation: u64,
}

impl DeviceErrors {
    fn is_zero(&self) -> bool {
        *self == Self { device: self.device, ..Self::default() }
    }
}

/// The counters of the volume's default device.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn read(names: &Namespace) -> Result<DeviceErrors> {
    let device = names.core.store.default_device().0;
    let found = names.core.store.tree(TreeId::DEV)?.get(&key(device))?;
    let none = DeviceErrors { device, ..DeviceErrors::default() };
    // An older kernel's item may be shorter: missing counters are zero.
    let Some((item, _)) = found.as_deref().and_then(|bytes| DevStatsItem::parse_prefix(bytes).ok()) else {
        return Ok(none);
    };
    Ok(DeviceErrors {
        device,
        write: item.write_errors.get(),
        read: item.read_errors.get(),
        flush: item.flush_errors.get(),
        corruption: item.corruption_errors.get(),
        generation: item.generation_errors.get(),
    })
}

/// Resets the counters; returns the old ones.
///
/// # Errors
/// `ReadOnly`; as a sync.
pub(crate) fn reset(names: &Namespace) -> Result<DeviceErrors> {
    if names.core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    let before = read(names)?;
    if !before.is_zero() {
        write(names, &DeviceErrors { device: before.device, ..DeviceErrors::default() })?;
    }
    Ok(before)
}

/// Adds the errors found by a scrub.
///
/// # Errors
/// As a sync.
pub(super) fn add(names: &Namespace, found: &ScrubProgress) -> Result<()> {
    let before = read(names)?;
    let corruption = found.data_errors.saturating_add(found.tree_errors).saturating_add(found.superblock_errors);
    let now = DeviceErrors {
        read: before.read.saturating_add(found.read_errors),
        corruption: before.corruption.saturating_add(corruption.saturating_sub(found.generation_errors)),
        generation: before.generation.saturating_add(found.generation_errors),
        ..before
    };
    if now == before { Ok(()) } else { write(names, &now) }
}

fn key(device: u64) -> Key {
    Key::new(objectid::DEV_STATS, item_type::PERSISTENT_ITEM, device)
}

fn write(names: &Namespace, errors: &DeviceErrors) -> Result<()> {
    let item = DevStatsItem {
        write_errors: errors.write.into(),
        read_errors: errors.read.into(),
        flush_errors: errors.flush.into(),
        corruption_errors: errors.corruption.into(),
        generation_errors: errors.generation.into(),
    };
    let tree = names.core.store.tree(TreeId::DEV)?;
    let reservation = names.reserve(1)?;
    names.apply(reservation, |txn| {
        txn.put(&tree, &key(errors.device), item.bytes())?;
        Ok(())
    })?;
    names.core.store.commit()?;
    Ok(())
}
