//! Data to be compressed is written back in the background, and its errors are reported.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use blockdev::Op;
use blockdev::backends::MemoryDevice;
use btrfs::{Compression, MakeOptions, Volume, VolumeOptions};
use testkit::faults::{FailingDevice, Fault, FaultKind};
use testkit::{Random, reference};
use vfs::FileOptions;

const IMAGE_BYTES: u64 = 256 << 20;
const DIRTY_BYTES: usize = 8 << 20;
const PIECE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

struct Disk {
    memory: Arc<MemoryDevice>,
    device: Arc<FailingDevice>,
}

impl Disk {
    /// A volume on it, with so many workers; nothing failed, nothing was counted.
    fn make(options: &VolumeOptions) -> Result<(Self, Volume)> {
        let memory = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let device = Arc::new(FailingDevice::new(Arc::<MemoryDevice>::clone(&memory)));
        let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
        let volume = options.clone().make_device(Arc::<FailingDevice>::clone(&device), &make)?;
        volume.sync()?;
        device.plan(Vec::new());
        Ok((Self { memory, device }, volume))
    }

    fn plan(&self, after: u64, kind: FaultKind) {
        self.device.plan(vec![Fault { op: Op::Write, after, kind }]);
    }

    /// `btrfs check` passes, and the file has these contents.
    fn judge(&self, contents: &[u8]) -> Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("image");
        crash_explorer::store_device(&*self.memory, &path)?;
        reference::check(&path)?;
        let found = Volume::options().read_only(true).open(&path)?.read("/file")?;
        ensure!(found == contents, "{} bytes, or others", found.len());
        Ok(())
    }
}

fn options(workers: usize) -> VolumeOptions {
    Volume::options().workers(workers).dirty_bytes(DIRTY_BYTES).compress(Compression::parse("zstd:1"))
}

/// Bytes of which a half can be compressed, other ones for each number.
fn piece(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut bytes = random.noise(PIECE / 2);
    bytes.resize(PIECE, 7);
    bytes
}

/// Writes pieces to the end of the file, adding them to `contents`.
fn write(volume: &Volume, count: u64, contents: &mut Vec<u8>) -> Result<()> {
    let file = FileOptions::new().write(true).create(true).open(volume, "/file")?;
    for number in 0..count {
        let bytes = piece(number);
        file.write_at(&bytes, u64::try_from(contents.len())?)?;
        contents.extend_from_slice(&bytes);
    }
    Ok(())
}

#[test]
fn what_is_dirty_is_written_before_writers_have_to() -> Result<()> {
    for workers in [1, 2] {
        let (disk, volume) = Disk::make(&options(workers))?;
        let mut contents = Vec::new();
        write(&volume, 1400, &mut contents)?;
        let start = Instant::now();
        if workers == 1 {
            // Only the caller does it.
            ensure!(disk.device.count(Op::Write) == 0, "{} writes", disk.device.count(Op::Write));
        }
        while workers > 1 && disk.device.count(Op::Write) == 0 {
            ensure!(start.elapsed() < PATIENCE, "nothing was written");
            std::thread::yield_now();
        }
        write(&volume, 12_000, &mut contents)?;
        ensure!(volume.read("/file")? == contents, "{workers}");
        volume.close()?;
        disk.judge(&contents).with_context(|| format!("{workers} workers"))?;
    }
    Ok(())
}

#[test]
fn a_disk_that_fails_stops_its_writers() -> Result<()> {
    for after in [0, 1, 3, 20] {
        let (disk, volume) = Disk::make(&options(2))?;
        let mut contents = Vec::new();
        disk.plan(after, FaultKind::Always);
        let start = Instant::now();
        let written = write(&volume, 20_000, &mut contents);
        ensure!(written.is_err(), "{after}: all of it was taken");
        ensure!(start.elapsed() < PATIENCE, "{after}: {:?}", start.elapsed());
        let found = volume.read("/file")?;
        let same = found.iter().zip(&contents).take_while(|(a, b)| a == b).count();
        ensure!(same == contents.len(), "{after}: {same} of {} bytes, {}", contents.len(), found.len());
        ensure!(volume.sync().is_err(), "{after}");
    }
    Ok(())
}

/// Data that could not be written once stays dirty, and is written.
#[test]
fn a_failure_that_passes_loses_nothing() -> Result<()> {
    for (after, kind) in [(0, FaultKind::NoSpace), (2, FaultKind::NoSpace), (5, FaultKind::NoSpace)] {
        let (disk, volume) = Disk::make(&options(2))?;
        let mut contents = Vec::new();
        disk.plan(after, kind);
        write(&volume, 5000, &mut contents)?;
        volume.sync()?;
        ensure!(disk.device.happened() == 1, "{after}: no failure");
        write(&volume, 5000, &mut contents)?;
        volume.close()?;
        disk.judge(&contents).with_context(|| format!("{kind:?} after {after}"))?;
    }
    Ok(())
}
