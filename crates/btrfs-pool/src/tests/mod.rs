//! The pool, tested through its interface on devices in memory.
//!
//! This file: reads with bad copies, repairs, writes, and refused chunk maps.
//! `layouts`: the layout of each profile, computed by hand.
//! `parity`: RAID5 and RAID6 with every set of lost devices.
//! `superblocks`: authoritative copies and refusals; `members`: valid sets of devices.
//!
//! Chunk maps are made by hand; nothing here needs a file system.

#![allow(clippy::as_conversions, reason = "tests")]

use super::*;
use blockdev::backends::MemoryDevice;
use blockdev::trace::TracingDevice;
use btrfs_disk::Uuid;
use btrfs_disk::flags::BlockGroupFlags;
use std::sync::atomic::{AtomicBool, Ordering};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const LAYOUT: Layout = Layout { node_bytes: 16 << 10, sector_bytes: 4096, csum_type: ChecksumType::Xxhash64 };

fn uuid(id: u64) -> Uuid {
    let mut bytes = [0xaa; 16];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    Uuid(bytes)
}

fn stripe(id: u64, offset: u64) -> Stripe {
    Stripe { device: DevId(id), offset, device_uuid: uuid(id) }
}

fn memory_devices(count: u64) -> Vec<Arc<MemoryDevice>> {
    (0..count).map(|_| Arc::new(MemoryDevice::new(80 * M))).collect()
}

fn pool_on(devices: &[Arc<MemoryDevice>], access: Intent) -> Pool {
    let devices = (1..)
        .zip(devices)
        .map(|(id, device)| {
            let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
            PoolDevice::new(DevId(id), uuid(id), device, 80 * M)
        })
        .collect();
    let pool = Pool::create(devices, LAYOUT, Arc::new(Workers::inline()));
    Pool { access, ..pool }
}

fn add(pool: &Pool, start: u64, len: u64, flags: BlockGroupFlags, stripes: &[Stripe]) -> Result<()> {
    pool.add_chunk(Chunk::new(Logical(start), len, flags, stripes.to_vec())?)
}

/// One device, and a DUP chunk of 8 MiB at 1 GiB with copies at 10 MiB and 30 MiB.
fn dup_pool(access: Intent) -> (Arc<MemoryDevice>, Pool) {
    let devices = memory_devices(1);
    let pool = pool_on(&devices, access);
    let flags = BlockGroupFlags::METADATA | BlockGroupFlags::DATA | BlockGroupFlags::DUP;
    add(&pool, 1024 * M, 8 * M, flags, &[stripe(1, 10 * M), stripe(1, 30 * M)]).unwrap();
    (Arc::clone(&devices[0]), pool)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ 0x5a).collect()
}

fn on_device(device: &MemoryDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}

fn is_pattern(bytes: &[u8]) -> Result<(), Corrupt> {
    if bytes == pattern(bytes.len()) {
        return Ok(());
    }
    Err(Corrupt::new("pattern", Detail::Text("itself"), Detail::Text("something else")))
}

const AT: Logical = Logical(1024 * M + 64 * K);
const COPIES: [u64; 2] = [10 * M + 64 * K, 30 * M + 64 * K];

fn csums_of(pool: &Pool, data: &[u8]) -> Vec<u8> {
    pool.workers().csum_data(pool.csum_type(), pool.sector_bytes(), data)
}

#[test]
fn a_bad_copy_of_a_block_is_mended_from_the_other() {
    let (device, pool) = dup_pool(Intent::ReadWrite);
    let good = pattern(16 << 10);
    pool.write(&[DataRun { at: AT, parts: &[&good[..100], &good[100..]] }]).unwrap();
    assert_eq!(on_device(&device, COPIES[1], good.len()), good);
    device.write_at(COPIES[0] + 5000, &[b"rot"]).unwrap();

    let mut found = vec![0; good.len()];
    pool.read(AT, &mut found, Expect::Block(&is_pattern)).unwrap();
    assert_eq!(found, good);
    assert_eq!(on_device(&device, COPIES[0], good.len()), good);
    let counts = pool.devices().get(DevId(1)).unwrap().counts();
    let expected = DeviceCounts { corruptions: 1, repairs: 1, ..DeviceCounts::default() };
    assert_eq!(counts, expected);
}

#[test]
fn a_read_only_pool_mends_nothing() {
    let (device, pool) = dup_pool(Intent::ReadOnly);
    let good = pattern(16 << 10);
    device.write_at(COPIES[1], &[&good]).unwrap();
    let mut found = vec![0; good.len()];
    pool.read(AT, &mut found, Expect::Block(&is_pattern)).unwrap();
    assert_eq!(found, good);
    assert_ne!(on_device(&device, COPIES[0], good.len()), good);
    assert!(matches!(pool.write(&[DataRun { at: AT, parts: &[&good] }]), Err(Error::ReadOnly)));
    assert!(matches!(pool.write_blocks([(AT, &good[..])]), Err(Error::ReadOnly)));
}

#[test]
fn two_copies_bad_in_different_sectors_give_good_data() {
    let (device, pool) = dup_pool(Intent::ReadWrite);
    let good = pattern(8 * 4096);
    let csums = csums_of(&pool, &good);
    pool.write(&[DataRun { at: AT, parts: &[&good] }]).unwrap();
    device.write_at(COPIES[0] + 4096, &[b"rot"]).unwrap();
    device.write_at(COPIES[0] + 5 * 4096, &[b"rot"]).unwrap();
    device.write_at(COPIES[1] + 2 * 4096, &[b"rot"]).unwrap();

    let mut found = vec![0; good.len()];
    pool.read(AT, &mut found, Expect::Csums(&csums)).unwrap();
    assert_eq!(found, good);
    assert_eq!(on_device(&device, COPIES[0], good.len()), good);
    assert_ne!(on_device(&device, COPIES[1], good.len()), good, "its bad sector was not met");
    assert_eq!(pool.devices().get(DevId(1)).unwrap().counts().repairs, 2);
}

#[test]
fn no_good_copy_is_an_error_and_no_bytes() {
    let (device, pool) = dup_pool(Intent::ReadWrite);
    let good = pattern(4 * 4096);
    let csums = csums_of(&pool, &good);
    pool.write(&[DataRun { at: AT, parts: &[&good] }]).unwrap();
    for copy in COPIES {
        device.write_at(copy + 3 * 4096 + 1, &[b"rot"]).unwrap();
    }
    let mut found = vec![1; good.len()];
    let error = pool.read(AT, &mut found, Expect::Csums(&csums)).unwrap_err();
    assert!(found.iter().all(|byte| *byte == 0));
    let Error::NoGoodCopy { at, len, causes } = &error else { panic!("{error}") };
    assert_eq!((*at, *len, causes.len()), (Logical(AT.0 + 3 * 4096), 4096, 2));
    assert_eq!((causes[1].mirror, causes[1].offset), (1, COPIES[1] + 3 * 4096));
    assert!(error.to_string().starts_with("no good copy of the 4096 bytes at 1073819648: copy 0 (device 1"));

    pool.read(AT, &mut found, Expect::Unchecked).unwrap();
    let mut second = vec![0; good.len()];
    pool.read_copy(AT, &mut second, 1).unwrap();
    assert_eq!(found, second);
}

#[test]
fn too_few_checksums_are_a_mismatch() {
    let (_, pool) = dup_pool(Intent::ReadWrite);
    let mut found = vec![0; 8192];
    let csums = csums_of(&pool, &found[..4096]);
    assert!(matches!(pool.read(AT, &mut found, Expect::Csums(&csums)), Err(Error::NoGoodCopy { .. })));
}

/// A device with injectable read failures.
#[derive(Debug)]
struct Deaf {
    inner: MemoryDevice,
    is_deaf: AtomicBool,
}

impl Device for Deaf {
    fn name(&self) -> &str {
        "deaf"
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        if self.is_deaf.load(Ordering::Relaxed) {
            let source = std::io::ErrorKind::TimedOut.into();
            return Err(blockdev::Error::io(blockdev::Op::Read, "deaf", offset, 1, source));
        }
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.inner.write_at(offset, parts)
    }
    fn flush(&self) -> blockdev::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        Ok(())
    }
    fn grow(&self, _: u64) -> blockdev::Result<()> {
        Ok(())
    }
}

#[test]
fn a_mirror_on_another_device_stands_in_for_one_that_does_not_answer() {
    let deaf = Arc::new(Deaf { inner: MemoryDevice::new(80 * M), is_deaf: AtomicBool::new(false) });
    let devices = vec![
        PoolDevice::new(DevId(1), uuid(1), Arc::clone(&deaf) as Arc<dyn Device>, 80 * M),
        PoolDevice::new(DevId(2), uuid(2), Arc::new(MemoryDevice::new(80 * M)), 80 * M),
    ];
    let pool = Pool::create(devices, LAYOUT, Arc::new(Workers::inline()));
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID1;
    add(&pool, 0, 8 * M, flags, &[stripe(1, M), stripe(2, M)]).unwrap();
    let good = pattern(64 << 10);
    // In the first MiB device 1 is read first, in the second device 2.
    for at in [Logical(0), Logical(M)] {
        pool.write(&[DataRun { at, parts: &[&good] }]).unwrap();
        deaf.is_deaf.store(true, Ordering::Relaxed);
        let mut found = vec![0; good.len()];
        pool.read(at, &mut found, Expect::Unchecked).unwrap();
        assert_eq!(found, good);
        deaf.is_deaf.store(false, Ordering::Relaxed);
    }
    let counts = pool.devices().get(DevId(1)).unwrap().counts();
    // The whole range once, then each of its 16 sectors.
    assert_eq!((counts.read_errors, counts.repairs), (17, 16));
}

/// A range was announced to the first byte's mirror alone, and a read that crossed a turn had one mirror.
#[test]
fn mirrors_are_announced_what_they_are_asked_for() {
    let devices: Vec<_> = (0..2).map(|_| Arc::new(TracingDevice::counting(MemoryDevice::new(80 * M)))).collect();
    let members = (1..).zip(&devices).map(|(id, device)| {
        let device: Arc<dyn Device> = Arc::clone(device) as Arc<dyn Device>;
        PoolDevice::new(DevId(id), uuid(id), device, 80 * M)
    });
    let pool = Pool::create(members.collect(), LAYOUT, Arc::new(Workers::inline()));
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID1;
    add(&pool, 0, 16 * M, flags, &[stripe(1, M), stripe(2, M)]).unwrap();
    let good = pattern(3 << 20);
    let at = Logical(M / 2);
    pool.write(&[DataRun { at, parts: &[&good] }]).unwrap();
    // In the second turn, which is the second device's.
    devices[1].inner().write_at(M + 3 * M / 2 + 4096, &[b"rot"]).unwrap();
    pool.will_read(at, 3 * M);
    let mut found = vec![0; good.len()];
    pool.read(at, &mut found, Expect::Csums(&csums_of(&pool, &good))).unwrap();
    assert_eq!(found, good);
    let counts: Vec<_> = devices.iter().map(|device| device.counts()).collect();
    assert_eq!((counts[0].announced_bytes, counts[1].announced_bytes), (3 * M / 2, 3 * M / 2));
    // The first also gives the sector that the second has lost, which reads it once more before.
    assert_eq!((counts[0].read_bytes, counts[1].read_bytes), (3 * M / 2 + 4096, 3 * M / 2 + 4096));
}

#[test]
fn striped_data_comes_back_as_it_was_written() {
    let devices = memory_devices(4);
    let pool = pool_on(&devices, Intent::ReadWrite);
    let data = BlockGroupFlags::DATA;
    let four = [stripe(1, M), stripe(2, 2 * M), stripe(3, 3 * M), stripe(4, 4 * M)];
    add(&pool, 0, 16 * M, data | BlockGroupFlags::RAID0, &four).unwrap();
    let four = [stripe(1, 20 * M), stripe(2, 21 * M), stripe(3, 22 * M), stripe(4, 23 * M)];
    add(&pool, 100 * M, 16 * M, data | BlockGroupFlags::RAID10, &four).unwrap();
    let good = pattern(700 << 10);
    let csums = csums_of(&pool, &good);
    for at in [Logical(36 * K), Logical(100 * M + 36 * K)] {
        pool.write(&[DataRun { at, parts: &[&good[..5], &good[5..99_999], &[], &good[99_999..]] }]).unwrap();
        let mut found = vec![0; good.len()];
        pool.read(at, &mut found, Expect::Csums(&csums)).unwrap();
        assert_eq!(found, good);
    }
    // RAID10: the bytes at 64 KiB of the chunk are the second pair's first.
    let row = &good[28 << 10..92 << 10];
    assert_eq!(on_device(&devices[2], 22 * M, 64 << 10), row);
    assert_eq!(on_device(&devices[3], 23 * M, 64 << 10), row);
    // RAID0: they are the second stripe's first.
    assert_eq!(on_device(&devices[1], 2 * M, 64 << 10), row);
}

#[test]
fn a_batch_of_blocks_reaches_the_device_as_few_writes() {
    let memory = blockdev::trace::TracingDevice::recording(MemoryDevice::new(80 * M));
    let device = Arc::new(memory);
    let pooled = PoolDevice::new(DevId(1), uuid(1), Arc::clone(&device) as Arc<dyn Device>, 80 * M);
    let pool = Pool::create(vec![pooled], LAYOUT, Arc::new(Workers::inline()));
    let dup = BlockGroupFlags::METADATA | BlockGroupFlags::DUP;
    add(&pool, 64 * M, 8 * M, dup, &[stripe(1, 10 * M), stripe(1, 30 * M)]).unwrap();
    let single = BlockGroupFlags::SYSTEM;
    add(&pool, 8 * M, 4 * M, single, &[stripe(1, 6 * M)]).unwrap();
    let block = pattern(16 << 10);
    let places = [64 * M + 16 * K, 8 * M, 64 * M, 64 * M + 32 * K, 64 * M + 128 * K];
    pool.write_blocks(places.map(|at| (Logical(at), &block[..]))).unwrap();
    let written: Vec<_> = device.take_events().iter().map(|e| (e.offset, e.len)).collect();
    assert_eq!(
        written,
        [(6 * M, 16 * K), (10 * M, 48 * K), (10 * M + 128 * K, 16 * K), (30 * M, 48 * K), (30 * M + 128 * K, 16 * K),]
    );
    let outside = pool.write_blocks([(Logical(8 * M), &block[..]), (Logical(M), &block[..])]);
    assert!(matches!(outside, Err(Error::Corrupt(_))));
    assert!(device.take_events().is_empty(), "nothing is written when a block has no place");
}

#[test]
fn addresses_outside_every_chunk_are_corruption() {
    let (_, pool) = dup_pool(Intent::ReadWrite);
    let mut buf = vec![0; 4096];
    for at in [0, 1024 * M - 4096, 1024 * M - 1, 1032 * M - 1, 1032 * M, u64::MAX - 1, u64::MAX] {
        let read = pool.read(Logical(at), &mut buf, Expect::Unchecked);
        assert!(matches!(read, Err(Error::Corrupt(_))), "{at}");
        assert!(matches!(pool.write(&[DataRun { at: Logical(at), parts: &[&buf] }]), Err(Error::Corrupt(_))), "{at}");
    }
    pool.read(Logical(1032 * M - 4096), &mut buf, Expect::Unchecked).unwrap();
}

#[test]
fn chunk_maps_that_contradict_themselves_are_refused() {
    let (_, pool) = dup_pool(Intent::ReadWrite);
    let data = BlockGroupFlags::DATA;
    let dup = data | BlockGroupFlags::DUP;
    let foreign = Stripe { device_uuid: uuid(9), ..stripe(1, 50 * M) };
    let cases: [(&str, u64, BlockGroupFlags, Vec<Stripe>); 8] = [
        ("overlaps the end", 1031 * M, data, vec![stripe(1, 50 * M)]),
        ("overlaps the start", 1020 * M, data, vec![stripe(1, 50 * M)]),
        ("same start, other place", 1024 * M, data, vec![stripe(1, 50 * M)]),
        ("stripe on a used stripe", 0, data, vec![stripe(1, 37 * M)]),
        ("stripe into a used stripe", 0, data, vec![stripe(1, 3 * M)]),
        ("stripes on each other", 0, dup, vec![stripe(1, 50 * M), stripe(1, 57 * M)]),
        ("beyond the device", 0, data, vec![stripe(1, 72 * M + 4096)]),
        ("another device's UUID", 0, data, vec![foreign]),
    ];
    for (name, start, flags, stripes) in cases {
        let added = add(&pool, start, 8 * M, flags, &stripes);
        assert!(matches!(added, Err(Error::Corrupt(_))), "{name}: {added:?}");
    }
    let unknown = add(&pool, 0, 8 * M, data, &[stripe(2, 50 * M)]);
    assert!(matches!(unknown, Err(Error::Corrupt(_))));
    assert_eq!(pool.chunks().all().len(), 1);

    let (again, stripes) = (pool.chunks().all()[0].clone(), [stripe(1, 50 * M)]);
    pool.add_chunk((*again).clone()).unwrap();
    add(&pool, 1032 * M, 8 * M, data, &stripes).unwrap();
    assert_eq!(pool.chunks().device_runs(DevId(1)), [(10 * M, 8 * M), (30 * M, 8 * M), (50 * M, 8 * M)]);
    assert_eq!(pool.chunks().logical_of(DevId(1), 31 * M), Some(Logical(1025 * M)));
    assert_eq!(pool.chunks().logical_of(DevId(1), 18 * M), None);
}

#[test]
fn superblock_copies_inside_chunks_are_found() {
    let runs = |start: u64, flags: BlockGroupFlags, stripes: &[Stripe]| {
        let flags = BlockGroupFlags::DATA | flags;
        let chunk = Chunk::new(Logical(start), 8 * M, flags, stripes.to_vec()).unwrap();
        let found = chunk_map::superblock_runs(&chunk);
        found.into_iter().map(|(at, len)| (at.0, len)).collect::<Vec<_>>()
    };
    let none = BlockGroupFlags::empty();
    assert_eq!(runs(100 * M, none, &[stripe(1, M)]), []);
    assert_eq!(runs(100 * M, none, &[stripe(1, 60 * M)]), [(104 * M, 64 * K)]);
    assert_eq!(runs(100 * M, none, &[stripe(1, 64 * M)]), [(100 * M, 64 * K)]);
    assert_eq!(runs(100 * M, none, &[stripe(1, 56 * M)]), []);
    // The old layout: the first chunk maps the first bytes of the device to themselves.
    assert_eq!(runs(0, none, &[stripe(1, 0)]), [(0, 128 * K)]);
    let both = [stripe(1, 60 * M), stripe(2, 57 * M)];
    assert_eq!(runs(100 * M, BlockGroupFlags::DUP, &both), [(104 * M, 64 * K), (107 * M, 64 * K)]);
}

mod layouts;
mod members;
mod parity;
mod superblocks;
