//! Equal bytes of two files become one extent, and nothing else changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::Volume;
use common::{Image, what};
use vfs::file_system::{Errno, NodeFlags};
use vfs::{File, FileOptions, SnapshotMode};

fn open(volume: &Volume, path: &str) -> File {
    FileOptions::new().read(true).write(true).open(volume, path).unwrap()
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 256 * seed) % 251).unwrap()).collect()
}

/// Where a file's bytes are on disk.
fn places(file: &File) -> Vec<(u64, Option<u64>)> {
    file.extents().unwrap().iter().map(|extent| (extent.offset, extent.logical)).collect()
}

#[test]
fn equal_ranges_share_and_times_stay() {
    let (image, volume) = Image::make();
    let contents = bytes(300_001, 7);
    for path in ["/a", "/b"] {
        volume.write(path, &contents).unwrap();
    }
    volume.sync().unwrap();
    let (a, b) = (open(&volume, "/a"), open(&volume, "/b"));
    let before = b.metadata().unwrap();
    assert_ne!(places(&a), places(&b));
    assert!(b.dedupe(&a, 0, 0, 300_001).unwrap());
    assert_eq!(places(&a), places(&b));
    assert!(b.dedupe(&a, 0, 0, 300_001).unwrap(), "once more");
    let after = b.metadata().unwrap();
    assert_eq!(
        (after.mtime, after.ctime, after.size, after.blocks),
        (before.mtime, before.ctime, before.size, before.blocks)
    );

    // One different byte, and nothing is shared.
    volume.write("/c", &contents).unwrap();
    let c = open(&volume, "/c");
    c.write_at(b"x", 200_000).unwrap();
    let was = places(&c);
    assert!(!c.dedupe(&a, 0, 0, 300_001).unwrap());
    assert_eq!(places(&c), was);
    assert!(c.dedupe(&a, 0, 0, 196_608).unwrap());
    assert_eq!(places(&c)[0], places(&a)[0]);

    for (source, target, len, error) in [(0, 4096, 4095, Errno::EINVAL), (0, 100, 4096, Errno::EINVAL)] {
        assert_eq!(what(b.dedupe(&a, source, target, len)), error);
    }
    assert_eq!(what(b.dedupe(&a, 0, 300_032, 4096)), Errno::EINVAL, "behind the end");
    assert_eq!(what(b.dedupe(&a, 0, 0, 32 << 20)), Errno::EINVAL);
    volume.write("/small", b"hello").unwrap();
    volume.write("/small too", b"hello").unwrap();
    assert!(!open(&volume, "/small too").dedupe(&open(&volume, "/small"), 0, 0, 5).unwrap(), "they are in their items");
    volume.write("/nodatacow", b"").unwrap();
    volume.set_flags("/nodatacow", NodeFlags::NOCOW).unwrap();
    open(&volume, "/nodatacow").write_at(&contents, 0).unwrap();
    assert_eq!(what(open(&volume, "/nodatacow").dedupe(&a, 0, 0, 4096)), Errno::EINVAL);
    volume.snapshot("/", "/frozen", SnapshotMode::ReadOnly).unwrap();
    drop((a, b, c));
    let volume = image.reopen(volume);
    for path in ["/a", "/b", "/frozen/b"] {
        assert!(volume.read(path).unwrap() == contents, "{path}");
    }
    let mut changed = contents;
    changed[200_000] = b'x';
    assert!(volume.read("/c").unwrap() == changed);
    volume.close().unwrap();
}

/// Concurrent writes while files are made to share are kept, in the source and in the target.
#[test]
fn writers_lose_nothing_while_files_become_shared() {
    let (image, volume) = Image::make();
    let contents = bytes(2 << 20, 3);
    for path in ["/a", "/b"] {
        volume.write(path, &contents).unwrap();
    }
    volume.sync().unwrap();
    let mut expected = [contents.clone(), contents];
    std::thread::scope(|scope| {
        let sharer = scope.spawn(|| {
            let (a, b) = (open(&volume, "/a"), open(&volume, "/b"));
            let mut shared = 0;
            for turn in 0..400_u64 {
                let at = turn % 16 * 131_072;
                shared += u32::from(b.dedupe(&a, at, at, 131_072).unwrap());
                shared += u32::from(a.dedupe(&b, at, at, 131_072).unwrap());
            }
            shared
        });
        let files = ["/a", "/b"].map(|path| open(&volume, path));
        let mut turn = 0;
        while !sharer.is_finished() {
            for (file, expected) in files.iter().zip(&mut expected) {
                // Mostly the same bytes again, so that much stays equal.
                let at = turn * 7919 % (2 << 20);
                let end = (at + 5000).min(expected.len());
                if turn % 64 == 0 {
                    expected[at] = u8::try_from(turn / 64 % 251).unwrap();
                }
                file.write_at(&expected[at..end], u64::try_from(at).unwrap()).unwrap();
            }
            turn += 1;
        }
        assert!(sharer.join().unwrap() > 50);
    });
    let volume = image.reopen(volume);
    for (path, expected) in ["/a", "/b"].into_iter().zip(&expected) {
        assert!(volume.read(path).unwrap() == *expected, "{path}");
    }
    volume.close().unwrap();
}
