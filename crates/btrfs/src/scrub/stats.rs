//! Reads and resets the devices' error counters, in the items that the kernel keeps them in: `btrfs device stats` shows
//! them. Commits add to them ([`btrfs_store::Store::count_device_errors`]). Called by `volume::scrub`.

use btrfs_disk::items::{DevStatsItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, TreeId};
use zerocopy::FromZeros as _;

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

/// The counters of all devices that the volume writes to, by their numbers.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn read(names: &Namespace) -> Result<Vec<DeviceErrors>> {
    let devices = names.core.store.devices();
    let own = devices.iter().filter(|device| !device.is_seed);
    let mut errors = own.map(|device| read_one(names, device.id.0)).collect::<Result<Vec<_>>>()?;
    errors.sort_by_key(|errors| errors.device);
    Ok(errors)
}

fn read_one(names: &Namespace, device: u64) -> Result<DeviceErrors> {
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
pub(crate) fn reset(names: &Namespace) -> Result<Vec<DeviceErrors>> {
    if names.core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    // Those that are counted in memory come first.
    names.core.store.commit()?;
    let before = read(names)?;
    let tree = names.core.store.tree(TreeId::DEV)?;
    for errors in before.iter().filter(|errors| !errors.is_zero()) {
        let reservation = names.reserve(1)?;
        names.apply(reservation, |txn| {
            txn.put(&tree, &key(errors.device), DevStatsItem::new_zeroed().bytes())?;
            Ok(())
        })?;
    }
    names.core.store.commit()?;
    Ok(before)
}

fn key(device: u64) -> Key {
    Key::new(objectid::DEV_STATS, item_type::PERSISTENT_ITEM, device)
}
