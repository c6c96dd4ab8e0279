//! Keeps the devices of a pool, by id, with error counters. The pool owns them; its reads and writes go through them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use blockdev::{Device, Op};
use btrfs_disk::convert::to_u64;
use btrfs_disk::{DevId, Uuid};

/// One device of the pool.
#[derive(Debug)]
pub struct PoolDevice {
    id: DevId,
    uuid: Uuid,
    device: Arc<dyn Device>,
    /// Bytes that the file system uses; the device may be larger.
    total_bytes: AtomicU64,
    is_missing: bool,
    /// The file system that a seed of this one is.
    seed_fsid: Option<Uuid>,
    counts: Counts,
}

impl PoolDevice {
    /// A device with id `id`, of which the file system uses `total_bytes`.
    #[must_use]
    pub fn new(id: DevId, uuid: Uuid, device: Arc<dyn Device>, total_bytes: u64) -> Self {
        let total_bytes = AtomicU64::new(total_bytes);
        Self { id, uuid, device, total_bytes, is_missing: false, seed_fsid: None, counts: Counts::default() }
    }

    /// The same, as a seed: the only device, or one of those, of the file system `fsid`.
    #[must_use]
    pub(super) fn of_seed(self, seed_fsid: Option<Uuid>) -> Self {
        Self { seed_fsid, ..self }
    }

    /// The file system that it is a seed of; `None` for a device of this file system alone.
    #[must_use]
    pub fn seed_fsid(&self) -> Option<Uuid> {
        self.seed_fsid
    }

    /// True for a device that this file system writes to: it is there, and no seed.
    #[must_use]
    pub fn is_written(&self) -> bool {
        !self.is_missing && self.seed_fsid.is_none()
    }

    /// A missing device with id `id`: every request to it fails.
    #[must_use]
    pub(super) fn missing(id: DevId, uuid: Uuid, total_bytes: u64) -> Self {
        let device = Arc::new(Missing { name: format!("device {id} (missing)"), size_bytes: total_bytes });
        Self { is_missing: true, ..Self::new(id, uuid, device, total_bytes) }
    }

    /// True for a missing device.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Makes all writes that returned before this call durable.
    pub(super) fn flush(&self) -> blockdev::Result<()> {
        self.device.flush().inspect_err(|_| self.count(Event::WriteError))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> DevId {
        self.id
    }

    /// Its UUID, which stripes repeat.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The block device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes that the file system uses.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Acquire)
    }

    /// Sets the bytes that the file system uses.
    pub fn set_total_bytes(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Release);
    }

    /// Errors and repairs since the pool was opened.
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

/// Errors and repairs of a device since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Blocks or sectors that were readable but failed verification.
    pub corruptions: u64,
    /// Bad copies overwritten with good bytes.
    pub repairs: u64,
}

/// An event to count.
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

/// A placeholder for a missing device: every request to it fails.
#[derive(Debug)]
struct Missing {
    name: String,
    size_bytes: u64,
}

impl Missing {
    fn refuse(&self, op: Op, offset: u64, len: usize) -> blockdev::Result<()> {
        let reason = io::Error::new(io::ErrorKind::NotConnected, "it is missing");
        Err(blockdev::Error::io(op, &self.name, offset, to_u64(len), reason))
    }
}

impl Device for Missing {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.refuse(Op::Read, offset, buf.len())
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.refuse(Op::Write, offset, parts.iter().map(|part| part.len()).sum())
    }

    fn flush(&self) -> blockdev::Result<()> {
        self.refuse(Op::Flush, 0, 0)
    }

    fn discard(&self, offset: u64, _: u64) -> blockdev::Result<()> {
        self.refuse(Op::Discard, offset, 0)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.refuse(Op::Grow, size_bytes, 0)
    }
}

/// The devices of a pool, present or missing. The missing ones are known once the chunk tree is read.
#[derive(Debug)]
pub struct Devices {
    /// The given devices, and missing ones of the superblock's system chunks.
    first: Vec<PoolDevice>,
    /// Other missing devices of the chunk tree.
    missing: OnceLock<Vec<PoolDevice>>,
}

impl Devices {
    /// A set of devices with distinct ids.
    #[must_use]
    pub fn new(devices: Vec<PoolDevice>) -> Self {
        Self { first: devices, missing: OnceLock::new() }
    }

    /// Adds missing devices, once per pool.
    pub(super) fn add_missing(&self, missing: Vec<PoolDevice>) {
        // A second list would have the same devices.
        let _ = self.missing.set(missing);
    }

    /// The device with this number.
    #[must_use]
    pub fn get(&self, id: DevId) -> Option<&PoolDevice> {
        self.iter().find(|device| device.id == id)
    }

    /// All devices.
    pub fn iter(&self) -> Iter<'_> {
        self.first.iter().chain(self.missing.get().into_iter().flatten())
    }

    /// The devices that are present.
    pub fn present(&self) -> impl Iterator<Item = &PoolDevice> {
        self.iter().filter(|device| !device.is_missing)
    }
}

/// Iterator over the devices of a pool.
pub type Iter<'a> =
    std::iter::Chain<std::slice::Iter<'a, PoolDevice>, std::iter::Flatten<std::option::IntoIter<&'a Vec<PoolDevice>>>>;

impl<'a> IntoIterator for &'a Devices {
    type Item = &'a PoolDevice;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
