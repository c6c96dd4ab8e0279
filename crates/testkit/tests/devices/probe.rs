//! A device for tests of several devices, and volumes on such devices.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use blockdev::{Device, Op};
use btrfs::{MakeOptions, MemoryDevice, RebuildReport, Volume};
use btrfs_disk::flags::BlockGroupFlags;

/// A device in memory that counts bytes, and fails when it is told to.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) inner: MemoryDevice,
    name: String,
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) fails: AtomicBool,
    /// Reads fail.
    pub(super) is_unreadable: AtomicBool,
    /// Reads of this range fail.
    pub(super) rot: AtomicU64,
}

impl Probe {
    pub(super) fn new(name: &str, bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDevice::new(bytes),
            name: name.to_owned(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            fails: AtomicBool::new(false),
            is_unreadable: AtomicBool::new(false),
            rot: AtomicU64::new(u64::MAX),
        })
    }

    pub(super) fn reset(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    fn refuse(&self, op: Op, offset: u64, len: usize) -> blockdev::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            let reason = io::Error::other("unplugged");
            return Err(blockdev::Error::io(op, &self.name, offset, u64::try_from(len).unwrap(), reason));
        }
        Ok(())
    }
}

impl Device for Probe {
    fn name(&self) -> &str {
        &self.name
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.refuse(Op::Read, offset, buf.len())?;
        let len = u64::try_from(buf.len()).unwrap();
        let rot = self.rot.load(Ordering::Relaxed);
        if (offset..offset + len).contains(&rot) || self.is_unreadable.load(Ordering::Relaxed) {
            return Err(blockdev::Error::io(Op::Read, &self.name, offset, len, io::Error::other("rotten")));
        }
        self.read.fetch_add(len, Ordering::Relaxed);
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.refuse(Op::Write, offset, len)?;
        self.written.fetch_add(u64::try_from(len).unwrap(), Ordering::Relaxed);
        self.inner.write_at(offset, parts)
    }
    fn flush(&self) -> blockdev::Result<()> {
        self.refuse(Op::Flush, 0, 0)
    }
    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }
    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

pub(super) fn devices(probes: &[&Arc<Probe>]) -> Vec<Arc<dyn Device>> {
    probes.iter().map(|probe| -> Arc<dyn Device> { Arc::<Probe>::clone(probe) }).collect()
}

pub(super) fn mirror(probes: &[&Arc<Probe>]) -> Volume {
    let (data_profile, metadata_profile) = (BlockGroupFlags::RAID1, BlockGroupFlags::RAID1);
    let make = MakeOptions { data_profile, metadata_profile, ..MakeOptions::default() };
    Volume::options().make_devices(devices(probes), &make).unwrap()
}

pub(super) fn open(probes: &[&Arc<Probe>]) -> Volume {
    Volume::options().open_devices(devices(probes)).unwrap()
}

pub(super) fn open_without_others(probes: &[&Arc<Probe>]) -> Volume {
    Volume::options().degraded(true).open_devices(devices(probes)).unwrap()
}

/// Bytes that differ everywhere.
pub(super) fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(usize::try_from(len).unwrap()).collect()
}

pub(super) fn check(probes: &[&Arc<Probe>]) {
    use btrfs_check::PassTable as _;
    let passes = btrfs_check::Pass::all().iter().map(|info| info.pass).collect();
    let options = btrfs_check::Options { passes, threads: 1, ..btrfs_check::Options::default() };
    let report = btrfs_check::check(&devices(probes), &options, &()).unwrap();
    assert!(report.counts.is_empty(), "{:?}", report.findings);
}

pub(super) fn go_on(_: &RebuildReport) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The byte of a device where these bytes are.
pub(super) fn place_of(probe: &Probe, wanted: &[u8]) -> u64 {
    find_place(probe, wanted).unwrap()
}

/// As [`place_of`]; `None` for a device that does not have them.
pub(super) fn find_place(probe: &Probe, wanted: &[u8]) -> Option<u64> {
    let bytes = all_bytes(probe);
    let mut places = (0..bytes.len() - wanted.len()).step_by(4096);
    places.find(|at| &bytes[*at..*at + wanted.len()] == wanted).map(|at| u64::try_from(at).unwrap())
}

/// A volume with these profiles.
pub(super) fn made(probes: &[&Arc<Probe>], data: BlockGroupFlags, metadata: BlockGroupFlags) -> Volume {
    let make = MakeOptions { data_profile: data, metadata_profile: metadata, ..MakeOptions::default() };
    Volume::options().make_devices(devices(probes), &make).unwrap()
}

/// Every byte.
pub(super) fn all_bytes(probe: &Probe) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(probe.size_bytes()).unwrap()];
    probe.inner.read_at(0, &mut bytes).unwrap();
    bytes
}
