//! Compressed files: written, overwritten, cut, shared, synced, and judged by `btrfs check`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::{Compression, Volume};
use common::{Image, check, what};
use vfs::file_system::{AllocateFlags, Errno, NodeFlags, XattrMode};
use vfs::{File, FileOptions, Layout, SnapshotMode};

const PROPERTY: &str = "btrfs.compression";

fn compression(text: &str) -> Compression {
    Compression::parse(text).unwrap()
}

/// Opens an image so that new data is compressed.
fn open(image: &Image, text: &str) -> Volume {
    Volume::options().compress(Some(compression(text))).open(image.file.path()).unwrap()
}

/// An empty volume that compresses.
fn volume(text: &str) -> (Image, Volume) {
    let (image, volume) = Image::make();
    volume.close().unwrap();
    let volume = open(&image, text);
    (image, volume)
}

/// Lines that differ and compress well.
fn text(len: usize) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|n| format!("{n}: a tree of {} leaves\n", n * 7919 % 100_003).into_bytes());
    lines.take(len).collect()
}

/// Bytes that nothing compresses.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 9_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The compressions of a file's extents, without repetitions.
fn kinds(volume: &Volume, path: &str) -> Vec<Option<&'static str>> {
    let extents = File::open(volume, path).unwrap().extents().unwrap();
    let mut kinds: Vec<_> = extents.iter().map(|extent| extent.compression).collect();
    kinds.dedup();
    kinds
}

/// Each algorithm and class of levels; one file has compressible and incompressible data, and a hole.
#[test]
fn files_are_compressed_and_read_back() {
    for (option, name) in [
        ("zlib", "zlib"),
        ("zlib:1", "zlib"),
        ("zlib:9", "zlib"),
        ("lzo", "lzo"),
        ("zstd", "zstd"),
        ("zstd:15", "zstd"),
        ("zstd:-10", "zstd"),
    ] {
        let (image, volume) = volume(option);
        let mut mixed = text(700_000);
        mixed.extend(noise(500_000));
        mixed.extend(text(300_001));
        volume.write("/mixed", &mixed).unwrap();
        volume.write("/small", text(1500)).unwrap();
        volume.write("/sector", text(4000)).unwrap();
        volume.write("/noise", noise(200_000)).unwrap();
        let sparse = FileOptions::new().write(true).create(true).open(&volume, "/sparse").unwrap();
        sparse.write_at(&text(100_000), 1 << 20).unwrap();
        drop(sparse);
        let volume = image.reopen(volume);
        assert_eq!(volume.read("/mixed").unwrap(), mixed, "{option}");
        assert_eq!(volume.read("/small").unwrap(), text(1500), "{option}");
        assert_eq!(volume.read("/sector").unwrap(), text(4000), "{option}");
        assert_eq!(volume.read("/noise").unwrap(), noise(200_000), "{option}");
        let sparse = volume.read("/sparse").unwrap();
        assert!(sparse[..1 << 20].iter().all(|byte| *byte == 0) && sparse[1 << 20..] == text(100_000), "{option}");
        assert_eq!(kinds(&volume, "/mixed"), [Some(name), None, Some(name)], "{option}");
        if option != "zstd:-10" {
            assert_eq!(kinds(&volume, "/sector"), [Some(name)], "{option}: it fits its item");
        }
        assert_eq!(kinds(&volume, "/noise"), [None], "{option}");
        assert_eq!(kinds(&volume, "/sparse"), [Some(name)], "{option}");
        volume.close().unwrap();
    }
}

/// Every kind of change that cuts a compressed extent.
#[test]
fn compressed_extents_are_cut_and_shared() {
    let (image, volume) = volume("zstd:3");
    let mut expected = text(1_000_000);
    volume.write("/file", &expected).unwrap();
    volume.sync().unwrap();
    volume.snapshot("/", "/before", SnapshotMode::ReadOnly).unwrap();
    let before = expected.clone();
    let file = FileOptions::new().read(true).write(true).open(&volume, "/file").unwrap();
    for (at, bytes) in [(5_000, text(10)), (300_000, noise(150_000)), (131_072, text(131_072)), (999_990, text(5_000))]
    {
        file.write_at(&bytes, at).unwrap();
        volume.sync().unwrap();
        let at = usize::try_from(at).unwrap();
        expected.resize(expected.len().max(at + bytes.len()), 0);
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    file.allocate(AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE, 600_000, 50_000).unwrap();
    expected[600_000..650_000].fill(0);
    file.set_len(900_001).unwrap();
    expected.truncate(900_001);
    file.set_len(950_000).unwrap();
    expected.resize(950_000, 0);
    let copy = FileOptions::new().read(true).write(true).create(true).open(&volume, "/copy").unwrap();
    copy.reflink(&file, 0, 0, 0).unwrap();
    copy.write_at(b"only here", 70_000).unwrap();
    let mut copied = expected.clone();
    copied[70_000..70_009].copy_from_slice(b"only here");
    drop((file, copy));
    let volume = image.reopen(volume);
    for (path, expected) in [("/file", &expected), ("/copy", &copied), ("/before/file", &before)] {
        assert!(volume.read(path).unwrap() == *expected, "{path}");
    }
    volume.remove_file("/file").unwrap();
    volume.remove_file("/copy").unwrap();
    volume.delete_subvolume("/before").unwrap();
    image.reopen(volume).close().unwrap();
}

/// A property decides on the algorithm, a flag on whether; data that may be overwritten in place stays as it is.
#[test]
fn flags_and_properties_decide() {
    let (image, volume) = Image::make();
    volume.create_dir("/lzo").unwrap();
    volume.set_xattr("/lzo", PROPERTY, b"lzo", XattrMode::Either).unwrap();
    volume.write("/lzo/file", text(100_000)).unwrap();
    volume.write("/flag", b"").unwrap();
    volume.set_flags("/flag", NodeFlags::COMPRESS).unwrap();
    FileOptions::new().write(true).open(&volume, "/flag").unwrap().write_at(&text(100_000), 0).unwrap();
    volume.write("/plain", text(100_000)).unwrap();
    volume.close().unwrap();

    let volume = open(&image, "zstd:9");
    for (path, flags) in [("/never", NodeFlags::NOCOMPRESS), ("/in-place", NodeFlags::NOCOW)] {
        volume.write(path, b"").unwrap();
        volume.set_flags(path, flags).unwrap();
        FileOptions::new().write(true).open(&volume, path).unwrap().write_at(&text(100_000), 0).unwrap();
    }
    volume.write("/lzo/later", text(100_000)).unwrap();
    volume.write("/general", text(100_000)).unwrap();
    let volume = image.reopen(volume);
    for (path, kind) in [
        ("/lzo/file", Some("lzo")),
        ("/lzo/later", Some("lzo")),
        ("/flag", Some("zlib")),
        ("/plain", None),
        ("/never", None),
        ("/in-place", None),
        ("/general", Some("zstd")),
    ] {
        assert_eq!(kinds(&volume, path), [kind], "{path}");
        assert_eq!(volume.read(path).unwrap(), text(100_000), "{path}");
    }
    volume.close().unwrap();
}

/// A synced file survives a crash: it is in the log, with the checksums of its bytes on disk.
#[test]
fn synced_data_survives_a_crash() {
    let (image, volume) = volume("zlib");
    volume.write("/file", text(400_000)).unwrap();
    volume.sync().unwrap();
    let file = FileOptions::new().write(true).open(&volume, "/file").unwrap();
    let mut expected = text(400_000);
    for (turn, at) in (0_usize..).zip([0, 150_000, 399_000, 100_000]) {
        let part = text(30_000 + turn);
        file.write_at(&part, u64::try_from(at).unwrap()).unwrap();
        expected.resize(expected.len().max(at + part.len()), 0);
        expected[at..at + part.len()].copy_from_slice(&part);
        file.sync_all().unwrap();
        let crashed = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(image.file.path(), crashed.path()).unwrap();
        let found = Volume::open(crashed.path()).unwrap();
        assert!(found.read("/file").unwrap() == expected, "{at}");
        found.close().unwrap();
        check(crashed.path());
    }
    drop(file);
    volume.close().unwrap();
}

/// Separate extents become one; compressed ones stay, unless another compression is asked for.
#[test]
fn files_are_laid_out_anew() {
    let (image, volume) = Image::make();
    let mut expected = text(1_500_000);
    for path in ["/apart", "/between"] {
        volume.write(path, b"").unwrap();
    }
    let [apart, between] =
        ["/apart", "/between"].map(|path| FileOptions::new().read(true).write(true).open(&volume, path).unwrap());
    for (turn, part) in (0_u64..).zip(expected.chunks(50_000)) {
        apart.write_at(part, turn * 50_000).unwrap();
        apart.sync_all().unwrap();
        between.write_at(&noise(50_000), turn * 50_000).unwrap();
        between.sync_all().unwrap();
    }
    let hole = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
    apart.allocate(hole, 409_600, 204_800).unwrap();
    expected[409_600..614_400].fill(0);
    volume.snapshot("/", "/before", SnapshotMode::ReadOnly).unwrap();
    let was = volume.metadata("/apart").unwrap();
    let count = || apart.extents().unwrap().len();
    assert!(count() > 10);

    assert!(volume.defragment("/apart", &Layout::default()).unwrap() > 1_200_000);
    assert_eq!(count(), 2, "on both sides of the hole");
    assert_eq!(volume.defragment("/apart", &Layout::default()).unwrap(), 0);
    let now = volume.metadata("/apart").unwrap();
    assert_eq!((now.mtime, now.size, now.blocks), (was.mtime, was.size, was.blocks));

    let zstd = Layout { compression: Some("zstd:5"), ..Layout::default() };
    assert!(volume.defragment("/apart", &zstd).unwrap() > 1_200_000);
    assert_eq!(kinds(&volume, "/apart"), [Some("zstd")]);
    assert_eq!(volume.defragment("/apart", &zstd).unwrap(), 0);
    assert_eq!(volume.defragment("/apart", &Layout::default()).unwrap(), 0, "compressed extents stay");
    let part = Layout { compression: Some("lzo"), range: 0..131_072, ..Layout::default() };
    assert_eq!(volume.defragment("/apart", &part).unwrap(), 131_072);
    assert_eq!(kinds(&volume, "/apart"), [Some("lzo"), Some("zstd")]);
    // Data that does not become smaller stays uncompressed.
    volume.defragment("/between", &zstd).unwrap();
    assert_eq!(kinds(&volume, "/between"), [None]);

    assert_eq!(what(volume.defragment("/before/apart", &zstd)), Errno::EROFS);
    assert_eq!(what(volume.defragment("/", &zstd)), Errno::EISDIR);
    let wrong = Layout { compression: Some("zip"), ..Layout::default() };
    assert_eq!(what(volume.defragment("/apart", &wrong)), Errno::EINVAL);
    drop((apart, between));
    let volume = image.reopen(volume);
    for path in ["/apart", "/before/apart"] {
        assert!(volume.read(path).unwrap() == expected, "{path}");
    }
    volume.close().unwrap();
}

/// Pages are whole sectors: a range that begins in the middle of one is extended to its beginning.
#[test]
fn a_range_that_begins_and_ends_anywhere_is_laid_out_in_whole_sectors() {
    let (image, volume) = Image::make();
    let ranges =
        [1..4097, 1..u64::MAX, 5000..25_000, 0..4097, 100..101, 4095..4097, 131_071..131_072, 200_000..u64::MAX];
    for (number, range) in (0..).zip(ranges.iter().cycle().take(2 * ranges.len())) {
        let contents = if number < ranges.len() { noise(131_072) } else { text(131_072) };
        let path = format!("/{number}");
        let file = FileOptions::new().read(true).write(true).create(true).open(&volume, &path).unwrap();
        // In pieces that lie apart, the later ones first.
        for start in (0..contents.len()).step_by(8192).rev() {
            file.write_at(&contents[start..start + 8192], u64::try_from(start).unwrap()).unwrap();
            file.sync_all().unwrap();
        }
        drop(file);
        for compression in [None, Some("zlib")] {
            let wanted = Layout { range: range.clone(), compression, ..Layout::default() };
            volume.defragment(&path, &wanted).unwrap();
            assert!(volume.read(&path).unwrap() == contents, "{range:?} {compression:?}");
        }
    }
    volume.close().unwrap();
    check(image.file.path());
}

/// Files that are overwritten in place stay; concurrent writers lose nothing.
#[test]
fn writers_go_on_while_a_file_is_laid_out_anew() {
    let (image, volume) = Image::make();
    volume.write("/in-place", b"").unwrap();
    volume.set_flags("/in-place", NodeFlags::NOCOW).unwrap();
    FileOptions::new().write(true).open(&volume, "/in-place").unwrap().write_at(&text(300_000), 0).unwrap();
    let zlib = Layout { compression: Some("zlib"), ..Layout::default() };
    assert_eq!(volume.defragment("/in-place", &zlib).unwrap(), 0);

    volume.write("/busy", text(2_000_000)).unwrap();
    volume.sync().unwrap();
    let mut expected = text(2_000_000);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            (0..20).for_each(|turn| {
                let compression = ["zlib:1", "zstd:1"].get(turn % 2).copied();
                volume.defragment("/busy", &Layout { compression, ..Layout::default() }).unwrap();
            });
        });
        let file = FileOptions::new().write(true).open(&volume, "/busy").unwrap();
        let mut turn = 0;
        while !mover.is_finished() {
            let at = turn * 7919 % 1_990_000;
            let part = noise(100 + turn % 9000);
            let end = at + part.len().min(expected.len() - at);
            file.write_at(&part[..end - at], u64::try_from(at).unwrap()).unwrap();
            expected[at..end].copy_from_slice(&part[..end - at]);
            turn += 1;
        }
    });
    let volume = image.reopen(volume);
    assert!(volume.read("/busy").unwrap() == expected);
    volume.close().unwrap();
}

/// Space of data that is replaced before a commit is not reused in that transaction: the cached contents of the old
/// extent would be taken for the new one's.
#[test]
fn data_replaced_again_and_again_is_read_correctly() {
    let (image, volume) = volume("zlib:1");
    let all = text(400_000);
    volume.write("/file", b"").unwrap();
    let file = FileOptions::new().write(true).open(&volume, "/file").unwrap();
    for turn in 0..600 {
        let contents = &all[turn % 300 * 1000..][..100_000];
        file.write_at(contents, 0).unwrap();
        // On disk, without a commit.
        assert_eq!(kinds(&volume, "/file"), [Some("zlib")]);
        assert!(volume.read("/file").unwrap() == contents, "turn {turn}");
    }
    volume.close().unwrap();
    check(image.file.path());
}
