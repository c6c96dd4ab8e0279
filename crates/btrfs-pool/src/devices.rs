//! The devices of a pool, by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::Device;
use btrfs_disk::{DevId, Uuid};

/// One device of the pool.
#[derive(Debug)]
pub struct PoolDevice {
    id: DevId,
    uuid: Uuid,
    device: Arc<dyn Device>,
    /// Bytes the file system uses of it; the device itself may be larger.
    total_bytes: AtomicU64,
    counts: Counts,
}

impl PoolDevice {
    /// Device number `id`, of which the file system uses `total_bytes`.
    #[must_use]
    pub fn new(id: DevId, uuid: Uuid, device: Arc<dyn Device>, total_bytes: u64) -> Self {
        let total_bytes = AtomicU64::new(total_bytes);
        Self { id, uuid, device, total_bytes, counts: Counts::default() }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> DevId {
        self.id
    }

    /// Its UUID, which chunks repeat.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The device itself.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes the file system uses of it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Acquire)
    }

    /// From now on the file system uses this many bytes of it.
    pub fn set_total_bytes(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Release);
    }

    /// What went wrong with it since the pool was opened.
    #[must_use]
    pub fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            read_errors: self.counts.read_errors.load(Ordering::Relaxed),
            write_errors: self.counts.write_errors.load(Ordering::Relaxed),
            corruptions: self.counts.corruptions.load(Ordering::Relaxed),
            repairs: self.counts.repairs.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count(&self, event: Event) {
        let counter = match event {
            Event::ReadError => &self.counts.read_errors,
            Event::WriteError => &self.counts.write_errors,
            Event::Corruption => &self.counts.corruptions,
            Event::Repair => &self.counts.repairs,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What went wrong with a device since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks or sectors that were read, and were not what had been written.
    pub corruptions: u64,
    /// Bad copies that were overwritten with good bytes.
    pub repairs: u64,
}

/// Something to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    ReadError,
    WriteError,
    Corruption,
    Repair,
}

#[derive(Debug, Default)]
struct Counts {
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    corruptions: AtomicU64,
    repairs: AtomicU64,
}

/// Every device of the pool. The set is fixed when the pool is opened.
#[derive(Debug)]
pub struct Devices(Vec<PoolDevice>);

impl Devices {
    /// These devices; their numbers differ.
    #[must_use]
    pub fn new(devices: Vec<PoolDevice>) -> Self {
        Self(devices)
    }

    /// The device with this number.
    #[must_use]
    pub fn get(&self, id: DevId) -> Option<&PoolDevice> {
        self.0.iter().find(|device| device.id == id)
    }

    /// All of them.
    pub fn iter(&self) -> std::slice::Iter<'_, PoolDevice> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Devices {
    type Item = &'a PoolDevice;
    type IntoIter = std::slice::Iter<'a, PoolDevice>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
