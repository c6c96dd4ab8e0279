//! Keeps the devices of a pool, by id, with error counters. The pool owns them; its reads and writes go through them.
//!
//! Devices come and go while the pool is in use. An entry is never taken away, so that references to it stay valid: a
//! device that left is marked, and another one comes behind it in the list. A device that failed is treated as a
//! missing one from then on: what was written meanwhile is not on it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// It was not given, or failed since.
    is_missing: AtomicBool,
    /// It is no member any more.
    has_left: AtomicBool,
    /// The file system that a seed of this one is.
    seed_fsid: Option<Uuid>,
    counts: Counts,
    /// Those of them that are kept on disk.
    saved: Counts,
}

impl PoolDevice {
    /// A device with id `id`, of which the file system uses `total_bytes`.
    #[must_use]
    pub fn new(id: DevId, uuid: Uuid, device: Arc<dyn Device>, total_bytes: u64) -> Self {
        let total_bytes = AtomicU64::new(total_bytes);
        Self {
            id,
            uuid,
            device,
            total_bytes,
            is_missing: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            seed_fsid: None,
            counts: Counts::default(),
            saved: Counts::default(),
        }
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
        !self.is_missing() && self.seed_fsid.is_none()
    }

    /// A missing device with id `id`: every request to it fails.
    #[must_use]
    pub(super) fn missing(id: DevId, uuid: Uuid, total_bytes: u64) -> Self {
        let device = Arc::new(Missing::of(id, total_bytes));
        Self { is_missing: AtomicBool::new(true), ..Self::new(id, uuid, device, total_bytes) }
    }

    /// True for a missing device, and for one that failed.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_missing.load(Ordering::SeqCst)
    }

    /// Has it count as missing from now on: a write to it failed, so its contents are out of date.
    pub(super) fn fail(&self) {
        self.is_missing.store(true, Ordering::SeqCst);
        // It may be opened again, to be brought up to date.
        self.device.let_go();
    }

    /// Takes it out of the set. Requests that have begun continue.
    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    fn is_member(&self) -> bool {
        !self.has_left.load(Ordering::Acquire)
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        if self.is_missing() {
            return Missing::of(self.id, self.total_bytes()).refuse(Op::Read, offset, buf.len());
        }
        self.device.read_at(offset, buf).inspect_err(|_| self.count(Event::ReadError))
    }

    /// Makes all writes that returned before this call durable.
    pub(super) fn flush(&self) -> blockdev::Result<()> {
        self.device.flush().inspect_err(|_| self.count(Event::FlushError))
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
        self.counts.get()
    }

    /// True if errors were counted since [`Self::take_unsaved`].
    #[must_use]
    pub fn has_unsaved(&self) -> bool {
        self.counts.get() != self.saved.get()
    }

    /// The errors counted since the last call, to be kept on disk.
    #[must_use]
    pub fn take_unsaved(&self) -> DeviceCounts {
        let now = self.counts.get();
        let fresh = now.since(&self.saved.get());
        self.saved.add(&fresh);
        fresh
    }

    /// Counts errors that were found otherwise than by the pool.
    pub fn add_counts(&self, found: &DeviceCounts) {
        self.counts.add(found);
    }

    pub(super) fn count(&self, event: Event) {
        let counter = match event {
            Event::ReadError => &self.counts.read_errors,
            Event::WriteError => &self.counts.write_errors,
            Event::FlushError => &self.counts.flush_errors,
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
    /// Failed flushes.
    pub flush_errors: u64,
    /// Blocks or sectors that were readable but failed verification.
    pub corruptions: u64,
    /// Tree blocks of another generation than expected.
    pub generation_errors: u64,
    /// Bad copies overwritten with good bytes.
    pub repairs: u64,
}

/// An event to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    ReadError,
    WriteError,
    FlushError,
    Corruption,
    Repair,
}

#[derive(Debug, Default)]
struct Counts {
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    flush_errors: AtomicU64,
    corruptions: AtomicU64,
    generation_errors: AtomicU64,
    repairs: AtomicU64,
}

impl DeviceCounts {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            read_errors: self.read_errors.saturating_sub(earlier.read_errors),
            write_errors: self.write_errors.saturating_sub(earlier.write_errors),
            flush_errors: self.flush_errors.saturating_sub(earlier.flush_errors),
            corruptions: self.corruptions.saturating_sub(earlier.corruptions),
            generation_errors: self.generation_errors.saturating_sub(earlier.generation_errors),
            repairs: self.repairs.saturating_sub(earlier.repairs),
        }
    }
}

impl Counts {
    fn get(&self) -> DeviceCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeviceCounts {
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            flush_errors: get(&self.flush_errors),
            corruptions: get(&self.corruptions),
            generation_errors: get(&self.generation_errors),
            repairs: get(&self.repairs),
        }
    }

    fn add(&self, more: &DeviceCounts) {
        for (counter, more) in [
            (&self.read_errors, more.read_errors),
            (&self.write_errors, more.write_errors),
            (&self.flush_errors, more.flush_errors),
            (&self.corruptions, more.corruptions),
            (&self.generation_errors, more.generation_errors),
            (&self.repairs, more.repairs),
        ] {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }
}

/// A placeholder for a missing device: every request to it fails.
#[derive(Debug)]
struct Missing {
    name: String,
    size_bytes: u64,
}

impl Missing {
    fn of(id: DevId, size_bytes: u64) -> Self {
        Self { name: format!("device {id} (missing)"), size_bytes }
    }

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
    /// Devices that came later.
    later: Later,
}

/// A list that grows while it is read.
#[derive(Debug, Default)]
struct Later(OnceLock<Box<(PoolDevice, Later)>>);

impl Devices {
    /// A set of devices with distinct ids.
    #[must_use]
    pub fn new(devices: Vec<PoolDevice>) -> Self {
        Self { first: devices, missing: OnceLock::new(), later: Later::default() }
    }

    /// Adds missing devices, once per pool.
    pub(super) fn add_missing(&self, missing: Vec<PoolDevice>) {
        // A second list would have the same devices.
        let _ = self.missing.set(missing);
    }

    /// Adds a device to a pool that is in use.
    pub(super) fn add(&self, device: PoolDevice) {
        let (mut place, mut link) = (&self.later, Box::new((device, Later::default())));
        while let Err(refused) = place.0.set(link) {
            link = refused;
            match place.0.get() {
                Some(taken) => place = &taken.1,
                None => return,
            }
        }
    }

    /// The device with this number.
    #[must_use]
    pub fn get(&self, id: DevId) -> Option<&PoolDevice> {
        self.iter().find(|device| device.id == id)
    }

    /// The device with this number, also one that left: a request that began before may still name it.
    pub(super) fn get_any(&self, id: DevId) -> Option<&PoolDevice> {
        self.get(id).or_else(|| self.all().find(|device| device.id == id))
    }

    /// The highest number that a device has, or had.
    #[must_use]
    pub fn last_id(&self) -> DevId {
        self.all().map(PoolDevice::id).max().unwrap_or_default()
    }

    /// All devices.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.all())
    }

    /// The devices that are present.
    pub fn present(&self) -> impl Iterator<Item = &PoolDevice> {
        self.iter().filter(|device| !device.is_missing())
    }

    /// Also those that left.
    fn all(&self) -> All<'_> {
        All { first: self.first.iter(), missing: self.missing.get().map(|missing| missing.iter()), later: &self.later }
    }
}

#[derive(Debug, Clone)]
struct All<'a> {
    first: std::slice::Iter<'a, PoolDevice>,
    missing: Option<std::slice::Iter<'a, PoolDevice>>,
    later: &'a Later,
}

impl<'a> Iterator for All<'a> {
    type Item = &'a PoolDevice;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(next) = self.first.next().or_else(|| self.missing.as_mut()?.next()) {
            return Some(next);
        }
        let (device, later) = &**self.later.0.get()?;
        self.later = later;
        Some(device)
    }
}

/// Iterator over the devices of a pool.
#[derive(Debug, Clone)]
pub struct Iter<'a>(All<'a>);

impl<'a> Iterator for Iter<'a> {
    type Item = &'a PoolDevice;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find(|device| device.is_member())
    }
}

impl<'a> IntoIterator for &'a Devices {
    type Item = &'a PoolDevice;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
