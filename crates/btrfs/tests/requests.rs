//! Requests to the device and their timing: reads of neighbours, read-ahead, and data that is written before a sync
//! because it replaces other data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use blockdev::trace::{Counts, TracingDevice};
use btrfs::{Compression, FsOptions, MakeOptions, Volume};
use vfs::{File, FileOptions, SnapshotMode};

type Traced = Arc<TracingDevice<Arc<MemoryDevice>>>;

const DEVICE_BYTES: u64 = 256 << 20;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Larger writes go to disk at once.
const SMALL: usize = 16 << 10;
const SMALL_BYTES: u64 = 16 << 10;

/// An empty volume on a device that counts requests.
fn volume(compression: Option<&str>) -> (Traced, Volume) {
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let make = MakeOptions { size: Some(DEVICE_BYTES), ..MakeOptions::default() };
    Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make).unwrap().close().unwrap();
    open(device, compression)
}

fn open(device: Arc<MemoryDevice>, compression: Option<&str>) -> (Traced, Volume) {
    let device = Arc::new(TracingDevice::counting(device));
    let compression = compression.map(|text| Compression::parse(text).unwrap());
    let options = Volume::options().workers(1).compress(compression);
    let volume = options.open_device(Arc::<TracingDevice<Arc<MemoryDevice>>>::clone(&device)).unwrap();
    (device, volume)
}

/// The same volume, opened anew: nothing of it is in memory.
fn anew(device: &Traced, volume: Volume) -> (Traced, Volume) {
    volume.close().unwrap();
    open(Arc::clone(device.inner()), None)
}

/// The requests to the device while `work` runs.
fn during(device: &Traced, work: impl FnOnce()) -> Counts {
    let before = device.counts();
    work();
    let after = device.counts();
    Counts {
        reads: after.reads - before.reads,
        read_bytes: after.read_bytes - before.read_bytes,
        announced: after.announced - before.announced,
        announced_bytes: after.announced_bytes - before.announced_bytes,
        writes: after.writes - before.writes,
        write_bytes: after.write_bytes - before.write_bytes,
        ..after
    }
}

fn text(len: usize) -> Vec<u8> {
    (0_u64..).flat_map(|n| format!("{n}: a leaf of {}\n", n * 7919 % 100_003).into_bytes()).take(len).collect()
}

fn read(file: &File, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(file.read_at(&mut bytes, u64::try_from(at).unwrap()).unwrap(), len);
    bytes
}

/// Sixteen extents of 64 KiB, written one after the other, lie behind each other.
#[test]
fn neighbouring_extents_are_read_with_one_request() {
    let (device, volume) = volume(None);
    let expected = text(MIB);
    let file = FileOptions::new().write(true).create(true).open(&volume, "/file").unwrap();
    for (at, part) in (0_u64..).zip(expected.chunks(64 * KIB)) {
        file.write_at(part, at * (64 << 10)).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(file.extents().unwrap().len(), 16);
    drop(file);
    let (device, volume) = anew(&device, volume);
    let file = File::open(&volume, "/file").unwrap();
    // The blocks of trees that are needed are in memory then.
    read(&file, 0, 4 * KIB);
    read(&file, MIB - 4 * KIB, 4 * KIB);
    let mut found = Vec::new();
    let counts = during(&device, || found = read(&file, 0, MIB));
    assert_eq!(found, expected);
    assert_eq!((counts.reads, counts.read_bytes), (1, 1 << 20));
    // From within one to within another.
    let counts = during(&device, || found = read(&file, 100_000, 500_001));
    assert_eq!(found, expected[100_000..600_001]);
    assert!(counts.reads <= 3, "the middle, and the sectors at the ends: {counts:?}");
}

#[test]
fn neighbouring_compressed_extents_are_read_with_one_request() {
    let (device, volume) = volume(Some("zstd:3"));
    let expected = text(8 * MIB);
    volume.write("/file", &expected).unwrap();
    let (device, volume) = anew(&device, volume);
    let file = File::open(&volume, "/file").unwrap();
    assert!(file.extents().unwrap().iter().all(|extent| extent.compression == Some("zstd")));
    read(&file, 7 * MIB, 4 * KIB);
    let mut found = Vec::new();
    let counts = during(&device, || found = read(&file, 0, MIB));
    assert!(found == expected[..MIB]);
    assert_eq!(counts.reads, 1, "eight extents of 128 KiB");
    let counts = during(&device, || found = read(&file, MIB, 4 * MIB));
    assert!(found == expected[MIB..5 * MIB]);
    assert_eq!(counts.reads, 4, "eight at a time");
}

/// The device prefetches for sequential readers, and for those with a constant stride; not for others.
#[test]
fn read_ahead_reaches_the_device() {
    let (device, volume) = volume(None);
    volume.write("/file", vec![7; 64 * MIB]).unwrap();
    let (device, volume) = anew(&device, volume);
    let file = File::open(&volume, "/file").unwrap();
    let counts = during(&device, || (0..16).for_each(|at| drop(read(&file, at * MIB, MIB))));
    assert!((14..=24).contains(&(counts.announced_bytes >> 20)), "{counts:?}");
    let counts = during(&device, || (0..20).for_each(|at| drop(read(&file, (20 + 2 * at) * MIB, 64 * KIB))));
    assert!((17..=22).contains(&counts.announced), "those that are in the file: {counts:?}");
    let places = [3_usize, 50, 17, 44, 2, 61, 30, 29, 11, 55];
    let counts = during(&device, || places.iter().for_each(|at| drop(read(&file, at * MIB, 64 * KIB))));
    assert_eq!(counts.announced, 0);
    // No prefetch beyond the end of the file.
    let end = during(&device, || drop((read(&file, 62 * MIB, MIB), read(&file, 63 * MIB, MIB))));
    assert_eq!(end.announced, 0, "{end:?}");
}

/// As in the kernel: a program that empties a file and writes it anew, without a sync, expects the old or the new
/// contents.
#[test]
fn a_file_that_is_written_anew_goes_to_disk_when_it_is_closed() {
    let (device, volume) = volume(None);
    let new = |name: &str| {
        let file = FileOptions::new().write(true).create(true).truncate(true).open(&volume, name).unwrap();
        file.write_at(&[1; SMALL], 0).unwrap();
    };
    let first = during(&device, || new("/file"));
    assert_eq!(first.write_bytes, 0, "it replaces nothing");
    let again = during(&device, || new("/file"));
    assert!(again.write_bytes >= SMALL_BYTES, "{again:?}");
    let appended = during(&device, || {
        let file = FileOptions::new().write(true).open(&volume, "/file").unwrap();
        file.write_at(&[2; 4 * KIB], 0).unwrap();
    });
    assert_eq!(appended.write_bytes, 0, "once for each time that it is emptied");
    volume.close().unwrap();
}

/// A commit that has the new name has the contents, too.
#[test]
fn a_file_that_is_renamed_over_another_goes_to_disk_before() {
    let (device, volume) = volume(None);
    volume.write("/old", [1; SMALL]).unwrap();
    volume.sync().unwrap();
    volume.write("/new", [2; SMALL]).unwrap();
    volume.write("/else", [3; SMALL]).unwrap();
    let elsewhere = during(&device, || volume.rename("/else", "/elsewhere").unwrap());
    assert_eq!(elsewhere.write_bytes, 0, "it replaces nothing");
    let over = during(&device, || volume.rename("/new", "/old").unwrap());
    assert!((SMALL_BYTES..2 * SMALL_BYTES).contains(&over.write_bytes), "{over:?}");
    assert_eq!(volume.read("/old").unwrap(), [2; SMALL]);
    volume.close().unwrap();
}

/// Only the subvolumes that changed last are looked at for what a crash left in them.
#[test]
fn opening_for_writing_does_not_read_each_of_many_snapshots() {
    const SNAPSHOTS: u64 = 800;
    let (device, volume) = volume(None);
    volume.create_subvolume("/s").unwrap();
    for number in 0..SNAPSHOTS {
        volume.snapshot("/s", format!("/snapshot{number}"), SnapshotMode::ReadOnly).unwrap();
    }
    let (device, volume) = anew(&device, volume);
    let reads = device.counts().reads;
    assert!(reads < SNAPSHOTS / 2, "{reads} reads");
    let listed = during(&device, || assert_eq!(volume.subvolumes().unwrap().len(), 801));
    assert!(listed.reads < SNAPSHOTS / 10, "a list needs no tree but that of roots: {listed:?}");
    volume.close().unwrap();
}

/// The others are looked at while the volume is mounted.
#[test]
fn a_file_that_a_crash_left_in_an_old_subvolume_goes_later() {
    let (device, volume) = volume(None);
    for number in 0..300 {
        volume.create_subvolume(format!("/s{number}")).unwrap();
    }
    let open = FileOptions::new().write(true).create(true).open(&volume, "/s0/file").unwrap();
    open.write_at(&vec![1; 8 * MIB], 0).unwrap();
    open.sync_all().unwrap();
    volume.remove_file("/s0/file").unwrap();
    volume.sync().unwrap();
    for number in 1..300 {
        volume.write(format!("/s{number}/new"), b"changed since").unwrap();
    }
    volume.sync().unwrap();
    let crashed = Arc::new(device.inner().duplicate());
    drop(open);
    drop(volume);
    let (_, volume) = self::open(crashed, None);
    let used = || {
        volume.sync().unwrap();
        let status = volume.status().unwrap();
        (status.blocks - status.blocks_free) * u64::from(status.block_bytes)
    };
    let before = used();
    let served = volume.serve(FsOptions::default()).unwrap();
    for _ in 0..20 {
        served.step();
    }
    assert!(before - used() >= 8 << 20, "{before} and {}", used());
    drop(served);
    volume.close().unwrap();
}
