//! Reports names, numbers and sizes of the store's devices. The crate `btrfs` calls it for the status of a volume,
//! ioctls and shrinking.
//!
//! Sizes include chunks that the running transaction made. Errors of devices are counted in memory, and each commit
//! adds them to the items that the kernel keeps them in.

use btrfs_disk::{DevId, Uuid};
use btrfs_pool::{DeviceCounts, PoolDevice};

use super::Store;

/// A device of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// Its number.
    pub id: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name in messages; usually its path.
    pub name: String,
    /// Bytes that it has.
    pub device_bytes: u64,
    /// Bytes of it that the file system uses.
    pub total_bytes: u64,
    /// Bytes of it that belong to chunks.
    pub used_bytes: u64,
    /// True when the device is absent.
    pub is_missing: bool,
    /// True for a device of a seed, which never changes.
    pub is_seed: bool,
}

impl Store {
    /// The devices, present or missing.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        let items = self.superblock().items().to_vec();
        let used = |id: DevId| {
            let item = items.iter().find(|item| item.devid.get() == id.0);
            item.map_or_else(|| self.0.space.device_bytes_used(id).unwrap_or(0), |item| item.bytes_used.get())
        };
        let state = |device: &PoolDevice| DeviceState {
            id: device.id(),
            uuid: device.uuid(),
            name: device.device().name().to_owned(),
            device_bytes: device.device().size_bytes(),
            total_bytes: device.total_bytes(),
            used_bytes: used(device.id()),
            is_missing: device.is_missing(),
            is_seed: device.seed_fsid().is_some(),
        };
        self.0.pool().devices().iter().map(state).collect()
    }

    /// How many devices failed since the store was opened: it goes on without them.
    #[must_use]
    pub fn lost_devices(&self) -> u64 {
        self.0.pool().losses()
    }

    /// Counts errors of a device that were found otherwise than by its requests: the next commit keeps them.
    pub fn count_device_errors(&self, id: DevId, found: &DeviceCounts) {
        if let Some(device) = self.0.pool().devices().get(id) {
            device.add_counts(found);
        }
    }

    /// The device to use where none is named: of those that are written the one with the lowest number.
    #[must_use]
    pub fn default_device(&self) -> DevId {
        let devices = self.0.pool().devices();
        let is_written = |device: &&PoolDevice| device.is_written();
        devices.iter().filter(is_written).map(PoolDevice::id).min().unwrap_or_default()
    }
}
