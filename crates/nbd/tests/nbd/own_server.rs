//! Our client and our server together.

use std::sync::Arc;

use blockdev::backends::{FileDevice, FileOptions, MemoryDevice};
use blockdev::trace::TracingDevice;
use blockdev::{Access, Device, Error, Holes, Kind, Tag, Write, tagged};

use crate::harness::{Own, open, pattern, try_open};

const SIZE: u64 = 64 << 20;

/// Device and a client of it.
fn served() -> (Arc<MemoryDevice>, Own, Arc<dyn Device>) {
    let memory = Arc::new(MemoryDevice::new(SIZE));
    let own = Own::start(Arc::clone(&memory) as Arc<dyn Device>, false);
    let device = open(&own.locator());
    (memory, own, device)
}

#[test]
fn random_requests_read_what_a_plain_copy_has() {
    let (memory, _own, device) = served();
    let mut copy = vec![0_u8; usize::try_from(SIZE).unwrap()];
    let numbers = pattern(4000, 11);
    for (round, number) in numbers.chunks(8).enumerate() {
        let number = u64::from_le_bytes(number.try_into().unwrap());
        let len = usize::try_from(number % 300_000).unwrap();
        let at = usize::try_from((number >> 20) % (SIZE - 300_000)).unwrap();
        match number % 7 {
            0 | 1 => {
                let bytes = pattern(len, number);
                let (one, two) = bytes.split_at(len / 3);
                device.write_at(at as u64, &[one, two]).unwrap();
                copy[at..at + len].copy_from_slice(&bytes);
            }
            2 => {
                let holes = if number & 8 == 0 { Holes::Allowed } else { Holes::Forbidden };
                assert!(device.write_zeroes(at as u64, len as u64, holes).unwrap());
                copy[at..at + len].fill(0);
            }
            3 => device.flush().unwrap(),
            _ => {
                let kind = if number & 8 == 0 { Kind::Metadata } else { Kind::Data };
                let len = len % 20_000;
                let mut found = vec![1; len];
                tagged(Tag { kind, mirror: 0 }, || device.read_at(at as u64, &mut found)).unwrap();
                assert!(found == copy[at..at + len], "round {round}: {len} bytes at {at}");
            }
        }
    }
    let mut found = vec![1; copy.len()];
    device.read_at(0, &mut found).unwrap();
    assert!(found == copy);
    assert!(memory.to_bytes() == copy);
}

#[test]
fn many_callers_share_the_connections() {
    let (_memory, _own, device) = served();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..60 {
                    let at = thread * (4 << 20) + round * 60_000;
                    let bytes = pattern(50_000, thread * 1000 + round);
                    device.write_at(at, &[&bytes]).unwrap();
                    let mut found = vec![0; bytes.len()];
                    device.read_at(at, &mut found).unwrap();
                    assert!(found == bytes);
                    if round % 20 == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn writes_of_one_call_are_answered_each() {
    let (memory, _own, device) = served();
    let bytes = pattern(5 << 20, 3);
    let parts = [bytes.as_slice()];
    let at = |offset| Write { offset, parts: &parts, tag: Tag::default() };
    let answers = device.submit(&[at(0), at(SIZE - 4096), at(8 << 20)]);
    assert!(matches!(answers.as_slice(), [Ok(()), Err(Error::OutOfRange { .. }), Ok(())]), "{answers:?}");
    let found = memory.to_bytes();
    assert!(found[..bytes.len()] == bytes && found[8 << 20..][..bytes.len()] == bytes);
}

#[test]
fn holes_stay_holes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let file = Arc::new(FileDevice::open(&path, &FileOptions::default()).unwrap());
    file.write_at(100 << 20, &[&pattern(1 << 20, 5)]).unwrap();
    if file.next_data(0) == 0 {
        println!("SKIPPED: the file system of {} has no holes", path.display());
        return;
    }
    let own = Own::start(Arc::clone(&file) as Arc<dyn Device>, false);
    let device = open(&own.locator());
    assert_eq!(device.next_data(0), 100 << 20);
    assert_eq!(device.next_hole(100 << 20), 101 << 20);
    assert_eq!(device.next_data(101 << 20), 1 << 30);
    device.write_at(500 << 20, &[b"island"]).unwrap();
    assert_eq!(device.next_data(101 << 20), 500 << 20);
    device.discard(100 << 20, 1 << 20).unwrap();
    device.discard(500 << 20, 1 << 20).unwrap();
    assert_eq!(device.next_data(0), 1 << 30);
    let mut found = vec![1; 4 << 20];
    device.read_at(99 << 20, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 0));
}

#[test]
fn a_part_of_an_export_begins_and_ends_where_the_locator_says() {
    let (memory, own, _) = served();
    memory.write_at(8192, &[b"here"]).unwrap();
    let part = open(&format!("{}&offset=8192&size=4096", own.locator()));
    assert_eq!(part.size_bytes(), 4096);
    let mut found = [0; 4];
    part.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"here");
    assert!(matches!(part.read_at(4095, &mut found), Err(Error::UnexpectedEnd { .. })));
    assert!(matches!(part.grow(8192), Err(Error::CannotGrow { .. })));
    let error = try_open(&format!("{}&offset=8192&size={SIZE}", own.locator()), Access::READ).unwrap_err();
    assert!(error.to_string().contains("are not in it"), "{error}");
}

#[test]
fn a_read_only_export_is_not_changed() {
    let memory = Arc::new(MemoryDevice::from_bytes(&[7; 4096]));
    let own = Own::start(Arc::clone(&memory) as Arc<dyn Device>, true);
    let error = try_open(&own.locator(), Access::WRITE).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    let device = try_open(&own.locator(), Access::READ).unwrap();
    assert!(matches!(device.write_at(0, &[b"x"]), Err(Error::ReadOnly { .. })));
    assert_eq!(device.flush().map_err(|error| error.to_string()), Ok(()));
}

#[test]
fn an_unknown_export_is_named() {
    let (_memory, own, _) = served();
    let locator = own.locator().replace("/disk?", "/tape?");
    let error = try_open(&locator, Access::READ).unwrap_err().to_string();
    assert!(error.contains("no export `tape`") && error.contains(&locator), "{error}");
}

/// Windows of a fast server are short, and many of them were forgotten before they were read: 1.5 times the bytes came.
#[test]
fn announced_reads_in_turns_bring_each_byte_once() {
    const LEN: u64 = 24 << 20;
    let traced = Arc::new(TracingDevice::counting(MemoryDevice::new(SIZE)));
    // Holes would not be read.
    traced.inner().write_at(0, &[&vec![7; usize::try_from(SIZE).unwrap()]]).unwrap();
    let own = Own::start(Arc::clone(&traced) as Arc<dyn Device>, false);
    let device = open(&own.locator());
    // The first read says how long windows are.
    device.read_at(SIZE - 4096, &mut [0; 4096]).unwrap();
    let mut piece = vec![0; 1 << 20];
    for round in 0..LEN >> 20 {
        for start in [0, LEN] {
            let at = start + (round << 20);
            if round % 4 == 0 {
                device.will_read(at, 4 << 20);
            }
            device.read_at(at, &mut piece).unwrap();
        }
    }
    let read = traced.counts().read_bytes;
    assert!((2 * LEN..2 * LEN + (4 << 20)).contains(&read), "{read} bytes for {}", 2 * LEN);
}
