//! Files as devices, through the public interface.
#![allow(clippy::as_conversions, clippy::unwrap_used, reason = "tests")]

use blockdev::backends::{FileDevice, FileOptions};
use blockdev::{Access, Device, Error, Locator, Op, open};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// A directory that vanishes with the test, and an image in it.
fn image(size: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::File::create(&path).unwrap().set_len(size).unwrap();
    (dir, path)
}

const READ: FileOptions = FileOptions {
    read_only: true,
    offset: 0,
    size: None,
    create: false,
    no_follow: false,
    wait: false,
    unlocked: false,
};

#[test]
fn many_parts_land_one_after_the_other_and_read_back() {
    let (_dir, path) = image(1 << 20);
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    let bytes: Vec<u8> = (0..30_000u32).map(|at| (at % 251) as u8).collect();
    // More parts than one system call takes, some of them empty.
    let mut parts: Vec<&[u8]> = bytes.chunks(7).collect();
    parts.insert(1024, &[]);
    parts.push(&[]);
    device.write_at(513, &parts).unwrap();
    device.flush().unwrap();

    let mut found = vec![0; bytes.len()];
    device.read_at(513, &mut found).unwrap();
    assert!(found == bytes);
    found.fill(0);
    let mut pieces: Vec<&mut [u8]> = found.chunks_mut(9).collect();
    device.read_parts_at(513, &mut pieces).unwrap();
    assert!(found == bytes);
    assert_eq!(fs::read(&path).unwrap()[513..][..bytes.len()], bytes);
    device.write_at(1 << 20, &[]).unwrap();
    device.read_at(1 << 20, &mut []).unwrap();
}

#[test]
fn a_truncated_image_is_an_unexpected_end() {
    let (_dir, path) = image(8192);
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    let past = device.read_at(8000, &mut [0; 500]).unwrap_err();
    assert!(matches!(past, Error::UnexpectedEnd { offset: 8000, len: 500, size: 8192, .. }));

    // Cut short behind our back.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4100).unwrap();
    let cut = device.read_at(4096, &mut [0; 4096]).unwrap_err();
    assert!(matches!(cut, Error::UnexpectedEnd { offset: 4096, size: 4100, .. }), "{cut}");
    assert_eq!(
        cut.to_string(),
        format!("{}: unexpected end at byte 4100, while reading 4096 bytes at 4096", path.display())
    );
    assert_eq!(std::io::Error::from(cut).kind(), std::io::ErrorKind::UnexpectedEof);
    let outside = device.write_at(8192, &[b"x"]).unwrap_err();
    assert!(matches!(outside, Error::OutOfRange { op: Op::Write, .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), 4100);
}

#[test]
fn one_writer_or_many_readers() {
    let (_dir, path) = image(4096);
    let first = FileDevice::open(&path, &READ).unwrap();
    let second = FileDevice::open(&path, &READ).unwrap();
    let refused = FileDevice::open(&path, &FileOptions::default()).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    drop((first, second));
    let writer = FileDevice::open(&path, &FileOptions::default()).unwrap();
    assert!(matches!(FileDevice::open(&path, &READ), Err(Error::Locked { .. })));
    assert!(matches!(FileDevice::open(&path, &FileOptions::default()), Err(Error::Locked { .. })));
    drop(writer);
    let reader = FileDevice::open(&path, &READ).unwrap();
    assert!(matches!(reader.write_at(0, &[b"x"]), Err(Error::ReadOnly { op: Op::Write, .. })));
    assert!(matches!(reader.grow(9000), Err(Error::ReadOnly { .. })));
    reader.flush().unwrap();
}

#[test]
fn a_partition_of_an_image_stays_inside_its_bounds() {
    let (_dir, path) = image(10_000);
    let ranged = |text: &str| Locator::parse(format!("{}{text}", path.display())).unwrap();
    let device = open(&ranged("?offset=4096&size=100"), Access::WRITE).unwrap();
    assert_eq!(device.size_bytes(), 100);
    device.write_at(10, &[b"inside"]).unwrap();
    assert!(device.write_at(95, &[b"outside"]).is_err());
    assert!(matches!(device.read_at(95, &mut [0; 6]), Err(Error::UnexpectedEnd { .. })));
    assert!(matches!(device.grow(200), Err(Error::CannotGrow { size: 100, .. })));
    drop(device);
    assert_eq!(&fs::read(&path).unwrap()[4106..4112], b"inside");
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);

    let rest = open(&ranged("?offset=4096"), Access::READ).unwrap();
    assert_eq!(rest.size_bytes(), 5904);
    for outside in ["?offset=10001", "?size=10001", "?offset=18446744073709551615&size=2"] {
        let error = open(&ranged(outside), Access::READ).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { op: Op::Open, .. }), "{error}");
    }
    let name = format!("{}?offset=1", path.display());
    fs::write(&name, b"a file of that very name").unwrap();
    let literal = open(&Locator::parse(&name).unwrap(), Access::READ).unwrap();
    assert_eq!(literal.size_bytes(), 24);
}

#[test]
fn images_are_made_and_grow_but_never_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let make = FileOptions { create: true, size: Some(1 << 20), ..FileOptions::default() };
    assert!(FileDevice::open(&path, &FileOptions::default()).is_err());
    let read_only = FileOptions { read_only: true, ..make };
    assert!(FileDevice::open(&path, &read_only).is_err());
    let device = FileDevice::open(&path, &make).unwrap();
    assert_eq!(device.size_bytes(), 1 << 20);
    device.grow(3 << 20).unwrap();
    device.grow(1 << 10).unwrap();
    assert_eq!(device.size_bytes(), 3 << 20);
    device.write_at((3 << 20) - 3, &[b"end"]).unwrap();
    drop(device);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20);
    // An existing file keeps its content and size.
    let again = FileDevice::open(&path, &make).unwrap();
    assert_eq!(again.size_bytes(), 1 << 20);
    drop(again);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 20);
}

#[test]
fn discard_leaves_a_hole_in_the_image() {
    let (_dir, path) = image(1 << 20);
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    device.write_at(0, &[&vec![0xaa; 1 << 20]]).unwrap();
    device.flush().unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    device.discard(65_536, 524_288).unwrap();
    device.discard(0, 0).unwrap();
    assert!(device.discard(1 << 20, 1).is_err());
    device.flush().unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 1 << 20);
    // File systems without holes leave the bytes as they are, which is allowed.
    if after.blocks() < before {
        let mut found = vec![1; 524_288];
        device.read_at(65_536, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
    let mut edge = [0; 2];
    device.read_at(65_535 - 1, &mut edge).unwrap();
    assert_eq!(edge, [0xaa; 2]);
}

/// Skipped ranges must be zeros, at the edges of a partition and near the end of the file too.
#[test]
fn the_holes_of_an_image_are_known() {
    let (_dir, path) = image(1 << 40);
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    device.write_at(1 << 30, &[&[1; 65_536]]).unwrap();
    device.write_at((1 << 40) - 10, &[b"end"]).unwrap();
    device.flush().unwrap();
    let next = device.next_data(0);
    if next == 0 {
        return; // The file system of the test cannot tell.
    }
    assert_eq!(next, 1 << 30);
    assert_eq!(device.next_data((1 << 30) + 77), (1 << 30) + 77);
    let last = device.next_data((1 << 30) + 65_536);
    assert!(last > 1 << 39 && last <= (1 << 40) - 10, "{last}");
    assert_eq!(device.next_data(1 << 40), 1 << 40);
    // Reads and writes say where they are, and do not mind.
    let mut found = [0; 3];
    device.read_at((1 << 40) - 10, &mut found).unwrap();
    assert_eq!(&found, b"end");
    drop(device);

    let part = |offset: u64, size: u64| FileOptions { offset, size: Some(size), ..READ };
    let inside = FileDevice::open(&path, &part((1 << 30) - 512, 1 << 20)).unwrap();
    assert_eq!((inside.next_data(0), inside.next_data(512 + 65_536)), (512, 1 << 20));
    let before = FileDevice::open(&path, &part(4096, 1 << 20)).unwrap();
    assert_eq!((before.next_data(0), before.next_data(77)), (1 << 20, 1 << 20));
}

#[test]
fn only_files_and_block_devices_are_devices() {
    let dir = tempfile::tempdir().unwrap();
    let not_a_device = FileDevice::open("/dev/null", &FileOptions::default()).unwrap_err();
    assert!(matches!(not_a_device, Error::NotADevice { .. }));
    assert!(matches!(FileDevice::open(dir.path(), &READ), Err(Error::NotADevice { .. })));
    assert!(FileDevice::open(dir.path(), &FileOptions::default()).is_err());
    let missing = FileDevice::open(dir.path().join("none"), &READ).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn threads_share_one_device() {
    let (_dir, path) = image(1 << 20);
    let device = FileDevice::open(&path, &FileOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let device = &device;
            scope.spawn(move || {
                for block in 0..64u64 {
                    let at = (block * 4 + u64::from(thread)) * 4096;
                    device.write_at(at, &[&[thread; 4096]]).unwrap();
                    let mut found = [9; 4096];
                    device.read_at(at, &mut found).unwrap();
                    assert_eq!(found, [thread; 4096]);
                }
            });
        }
    });
}

#[test]
fn a_reader_that_waits_gets_the_lock_when_the_writer_goes() {
    let (_dir, path) = image(1 << 20);
    let writer = FileDevice::open(&path, &FileOptions::default()).unwrap();
    assert!(matches!(FileDevice::open(&path, &READ), Err(Error::Locked { .. })));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| FileDevice::open(&path, &FileOptions { wait: true, ..READ }));
        writer.write_at(0, &[b"written while it waits"]).unwrap();
        drop(writer);
        let reader = reader.join().unwrap().unwrap();
        let mut found = [0; 22];
        reader.read_at(0, &mut found).unwrap();
        assert_eq!(&found, b"written while it waits");
    });
}
