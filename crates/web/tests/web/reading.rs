//! Bytes are right whatever is read, and few requests and bytes are needed.

use std::sync::Arc;

use blockdev::{Access, Device, Locator};

use crate::fake::Fake;
use crate::support::{open, pattern, read_all};

#[test]
fn every_byte_is_right() {
    for len in [1, 100, 4096, 69_632, 69_633, 300_001] {
        let file = pattern(len);
        let server = Fake::file(file.clone());
        let device = open(&server.url("/a.img")).unwrap();
        assert_eq!(read_all(&device), file, "{len} bytes");
        assert!(server.bytes() <= file.len() as u64 + 4096);
    }
    let file = pattern(9_000_001);
    let server = Fake::file(file.clone());
    let device = open(&server.url("/a.img")).unwrap();
    let mut at = 0_usize;
    for step in (1..).map(|turn: usize| turn * 7919 % 100_003 + 1) {
        let len = step.min(file.len() - at);
        let mut bytes = vec![0; len];
        device.read_at(at as u64, &mut bytes).unwrap();
        assert_eq!(bytes, &file[at..at + len]);
        at += len;
        if at == file.len() {
            break;
        }
    }
    assert!(server.requests() < 20, "{} requests", server.requests());
    assert!(device.read_at(9_000_000, &mut [0; 2]).is_err());
    assert!(device.read_at(u64::MAX, &mut [0; 2]).is_err());
}

#[test]
fn an_empty_file_is_an_empty_device() {
    let server = Fake::start(|_, _| crate::fake::Reply::new(416).with("Content-Range", "bytes */0"));
    assert_eq!(open(&server.url("/a.img")).unwrap().size_bytes(), 0);
}

#[test]
fn a_part_of_a_file_is_a_device() {
    let file = pattern(1 << 20);
    let server = Fake::file(file.clone());
    for options in ["?offset=1000&size=5000", "#offset=1000&size=5000", "?x=1?offset=1000&size=5000"] {
        let device = open(&server.url(&format!("/a.img{options}"))).unwrap();
        assert_eq!(read_all(&device), &file[1000..6000]);
    }
    assert_eq!(server.seen().last().unwrap().path, "/a.img?x=1");
    assert!(open(&server.url("/a.img?offset=2000000")).is_err());
    assert!(open(&server.url("/a.img?size=2000000")).is_err());
}

#[test]
fn it_is_read_only_and_says_so() {
    let server = Fake::file(pattern(1 << 20));
    let locator = Locator::parse(server.url("/a.img")).unwrap();
    let error = blockdev::open(&locator, Access::WRITE).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert_eq!(error.errno(), 30);
    assert_eq!(server.requests(), 0);
    let device = open(&server.url("/a.img")).unwrap();
    assert!(device.is_read_only());
    assert!(matches!(device.write_at(0, &[b"x"]), Err(blockdev::Error::ReadOnly { .. })));
    device.flush().unwrap();
}

#[test]
fn announced_ranges_are_fetched_meanwhile() {
    let file = pattern(32 << 20);
    let server = Fake::file(file.clone());
    let device = open(&server.url("/a.img")).unwrap();
    device.will_read(8 << 20, 8 << 20);
    let mut bytes = vec![0; 8 << 20];
    device.read_at(8 << 20, &mut bytes).unwrap();
    assert_eq!(bytes, &file[8 << 20..16 << 20]);
    assert!(server.requests() <= 4, "{} requests", server.requests());
    drop(device);
}

#[test]
fn many_threads_read_at_once() {
    let file = Arc::new(pattern(16 << 20));
    let server = Fake::file(file.to_vec());
    let device = open(&server.url("/a.img")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (device, file) = (&device, &file);
            scope.spawn(move || {
                for turn in 0..40_usize {
                    let at = (thread * 7_777_777 + turn * 1_234_567) % (file.len() - 100_000);
                    let mut bytes = vec![0; 1 + turn * 2000];
                    if turn % 3 == 0 {
                        device.will_read(at as u64, 300_000);
                    }
                    device.read_at(at as u64, &mut bytes).unwrap();
                    assert_eq!(bytes, &file[at..at + bytes.len()]);
                }
            });
        }
    });
    assert!(server.bytes() <= 2 * file.len() as u64, "{} bytes", server.bytes());
}

/// Blocks of 16 KiB all over 1 GiB: no more than twice their bytes.
#[test]
fn scattered_reads_fetch_at_most_twice_their_bytes() {
    let file = vec![7; 256 << 20];
    let server = Fake::file(file);
    let device = open(&server.url("/a.img")).unwrap();
    let wanted: Vec<u64> = (0..500_u64).map(|index| index * 7_919 % 16_384 * 16_384).collect();
    for at in &wanted {
        device.read_at(*at, &mut [0; 16_384]).unwrap();
    }
    let used = wanted.len() as u64 * 16_384;
    assert!(server.bytes() <= 2 * used + 69_632, "{} of {used} bytes", server.bytes());
}
