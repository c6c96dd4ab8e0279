//! Linux's rules for file systems beside names and contents: whiteouts, allocated space,
//! flags that forbid.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::Volume;
use common::{Image, what};
use vfs::file_system::{AllocateFlags, NodeFlags, NodeKind, RenameFlags, Time, XattrMode};
use vfs::{Errno, Error, File, FileOptions, Times};

#[test]
fn a_whiteout_takes_the_place_of_what_moved() {
    let (image, volume) = Image::make();
    volume.create_dir("d").unwrap();
    volume.write("d/a", b"contents").unwrap();
    volume.write("b", b"other").unwrap();
    let refused = volume.rename_with("d/a", "b", RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT);
    assert_eq!(what(refused), Errno::EEXIST);
    volume.rename_with("d/a", "b", RenameFlags::WHITEOUT).unwrap();
    volume.rename_with("b", "d/c", RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT).unwrap();
    volume.rename_with("d/c", "d/e", RenameFlags::WHITEOUT).unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("d/e").unwrap(), b"contents");
    for name in ["d/a", "b", "d/c"] {
        let whiteout = volume.symlink_metadata(name).unwrap();
        assert_eq!((whiteout.kind, whiteout.permissions, whiteout.rdev), (NodeKind::CharDevice, 0, 0), "{name}");
        assert_eq!((whiteout.nlink, whiteout.size, whiteout.blocks), (1, 0, 0));
    }
    // Three names of one byte each.
    assert_eq!(volume.metadata("d").unwrap().size, 6);
    // The other way round: the moved name replaces a whiteout.
    volume.rename_with("d/e", "b", RenameFlags::empty()).unwrap();
    volume.remove_dir_all("d").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("b").unwrap(), b"contents");
}

#[test]
fn a_fifo_has_no_device_number() {
    let (image, volume) = Image::make();
    for (name, kind) in [
        ("fifo", NodeKind::Fifo),
        ("socket", NodeKind::Socket),
        ("file", NodeKind::File),
        ("char", NodeKind::CharDevice),
        ("block", NodeKind::BlockDevice),
    ] {
        volume.mknod(name, kind, 0o600, 0x0801).unwrap();
    }
    let volume = image.reopen(volume);
    for (name, rdev) in [("fifo", 0), ("socket", 0), ("file", 0), ("char", 0x0801), ("block", 0x0801)] {
        assert_eq!(volume.metadata(name).unwrap().rdev, rdev, "{name}");
    }
}

fn blocks(volume: &Volume, path: &str) -> u64 {
    volume.metadata(path).unwrap().blocks
}

/// The same number before the data is written as after it.
#[test]
fn dirty_bytes_count_as_allocated() {
    let (_image, volume) = Image::make();
    let file = FileOptions::new().read(true).write(true).create(true);
    let file = file.open(&volume, "f").unwrap();
    file.write_at(&[1; 5000], 0).unwrap();
    assert_eq!(blocks(&volume, "f"), 16);
    file.write_at(&[1; 100], 1 << 20).unwrap();
    assert_eq!(blocks(&volume, "f"), 24);
    file.sync_all().unwrap();
    assert_eq!(blocks(&volume, "f"), 24);
    // Over existing data, and over half of it.
    file.write_at(&[2; 100], 10).unwrap();
    assert_eq!(blocks(&volume, "f"), 24);
    file.write_at(&[2; 8192], 4096).unwrap();
    assert_eq!(blocks(&volume, "f"), 32);
    // A large write goes to disk at once, and into the tree later.
    file.write_at(&vec![3; 1 << 20], 0).unwrap();
    assert_eq!(blocks(&volume, "f"), 2056);
    file.write_at(&[3; 4096], 4096).unwrap();
    assert_eq!(blocks(&volume, "f"), 2056);
    volume.sync().unwrap();
    assert_eq!(blocks(&volume, "f"), 2056);
    // Preallocated space counts once.
    let file = File::create(&volume, "p").unwrap();
    file.allocate(AllocateFlags::empty(), 0, 64 << 10).unwrap();
    assert_eq!(blocks(&volume, "p"), 128);
    file.write_at(&[1; 8192], 8192).unwrap();
    assert_eq!(blocks(&volume, "p"), 128);
    volume.write("inline", b"small").unwrap();
    assert_eq!(blocks(&volume, "inline"), 8);
    volume.sync().unwrap();
    assert_eq!((blocks(&volume, "inline"), blocks(&volume, "p")), (8, 128));
}

fn set_flags(volume: &Volume, path: &str, flags: NodeFlags) {
    volume.set_flags(path, flags).unwrap();
}

/// All operations that may change a file, with their names.
fn attempts(volume: &Volume, file: &File, other: &File) -> Vec<(&'static str, Result<(), Error>)> {
    let now = Times { mtime: Some(Time::new(1, 0)), ..Times::default() };
    vec![
        ("append", file.write_at(b"x", file.metadata().unwrap().size)),
        ("allocate", file.allocate(AllocateFlags::KEEP_SIZE, 1 << 20, 4096)),
        ("write", file.write_at(b"x", 0)),
        ("cut", file.set_len(1)),
        ("extend", file.set_len(1 << 20)),
        ("punch", file.allocate(AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE, 0, 4096)),
        ("zero", file.allocate(AllocateFlags::ZERO_RANGE, 0, 4096)),
        ("reflink", file.reflink(other, 0, 0, 0)),
        ("xattr", volume.set_xattr("f", "user.a", "b", XattrMode::Either)),
        ("no xattr", volume.remove_xattr("f", "user.old")),
        ("mode", volume.set_permissions("f", 0o600)),
        ("owner", volume.set_owner("f", Some(5), None)),
        ("times", volume.set_times("f", &now)),
        ("link", volume.hard_link("f", "g")),
        ("rename", volume.rename("f", "g")),
        ("remove", volume.remove_file("f")),
        ("open", FileOptions::new().write(true).open(volume, "f").map(drop)),
        ("empty", File::create(volume, "f").map(drop)),
    ]
}

#[test]
fn flags_forbid_changes() {
    let (image, volume) = Image::make();
    volume.write("f", vec![1; 9000]).unwrap();
    volume.write("other", vec![2; 8192]).unwrap();
    volume.set_xattr("f", "user.old", "1", XattrMode::Either).unwrap();
    let open = |path: &str| {
        let options = FileOptions::new().read(true).write(true);
        options.open(&volume, path).unwrap()
    };
    let (file, other) = (open("f"), open("other"));
    set_flags(&volume, "f", NodeFlags::IMMUTABLE);
    for (name, result) in attempts(&volume, &file, &other) {
        assert_eq!(what(result), Errno::EPERM, "immutable: {name}");
    }
    set_flags(&volume, "f", NodeFlags::APPEND);
    for (name, result) in attempts(&volume, &file, &other) {
        match name {
            "append" | "allocate" => result.unwrap(),
            _ => assert_eq!(what(result), Errno::EPERM, "append-only: {name}"),
        }
    }
    let appender = FileOptions::new().append(true).open(&volume, "f").unwrap();
    appender.write_at(b"y", 0).unwrap();
    set_flags(&volume, "f", NodeFlags::empty());
    let expected = [vec![1; 9000], b"xy".to_vec()].concat();
    drop((file, other, appender));
    let volume = image.reopen(volume);
    assert_eq!(volume.read("f").unwrap(), expected);
    volume.set_permissions("f", 0o600).unwrap();
    volume.remove_file("f").unwrap();
}

/// Bytes that look random, the same for the same seed.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.push(state.to_be_bytes()[0]);
    }
    bytes
}

fn open(volume: &Volume, path: &str) -> File {
    let options = FileOptions::new().read(true).write(true).create(true);
    options.open(volume, path).unwrap()
}

/// Copies a range with as many calls as that takes, here and in `to`.
fn copy(from: (&File, &[u8]), to: (&File, &mut Vec<u8>), (at, target, len): (u64, u64, u64)) {
    let (mut done, wanted) = (0, len.min(u64::try_from(from.1.len()).unwrap().saturating_sub(at)));
    while done < wanted {
        let count = to.0.copy_range(from.0, at + done, target + done, len - done);
        let count = count.unwrap();
        assert!(count > 0 && done + count <= wanted, "{count} of {wanted}");
        done += count;
    }
    if wanted == 0 {
        assert_eq!(to.0.copy_range(from.0, at, target, len).unwrap(), 0);
        return;
    }
    let [first, start, count] = [at, target, wanted].map(|n| usize::try_from(n).unwrap());
    let bytes = from.1[first..first + count].to_vec();
    let end = (start + count).max(to.1.len());
    to.1.resize(end, 0);
    to.1[start..start + count].copy_from_slice(&bytes);
}

#[test]
fn ranges_are_copied_whatever_their_alignment() {
    let (image, volume) = Image::make();
    let contents = noise(3_000_001, 7);
    volume.write("source", &contents).unwrap();
    let (source, target) = (open(&volume, "source"), open(&volume, "target"));
    let mut expected = Vec::new();
    for range in [
        (0, 0, u64::MAX),
        (5, 4097, 100_000),
        (4096, 8192, 50_000),
        (100, 4196, 1 << 20),
        (8192, 4 << 20, 1 << 20),
        (2_999_000, 6 << 20, 1 << 20),
        (2_998_272, 6 << 20, 1 << 20),
        (1 << 20, (7 << 20) + 1, 1 << 20),
        (0, 0, 4095),
        (4_000_000, 0, 5),
    ] {
        copy((&source, &contents), (&target, &mut expected), range);
        assert!(volume.read("target").unwrap() == expected, "{range:?}");
    }
    let extents = target.extents().unwrap();
    let of_source = source.extents().unwrap();
    let is_shared = |e: &vfs::file_system::Extent| of_source.iter().any(|s| s.disk_len == e.disk_len && s.disk_len > 0);
    assert!(extents.iter().any(is_shared), "aligned ranges share extents");
    // Within one file.
    let before = volume.read("target").unwrap();
    copy((&target, &before), (&target, &mut expected), (0, 20 << 20, 300_000));
    copy((&target, &before), (&target, &mut expected), (4096, 300_000, 123_456));
    assert_eq!(what(target.copy_range(&target, 0, 4096, 8192)), Errno::EINVAL);
    drop((source, target));
    let volume = image.reopen(volume);
    assert!(volume.read("target").unwrap() == expected);
}

#[test]
fn files_without_checksums_are_copied_to_files_with_them() {
    let (image, volume) = Image::make();
    volume.close().unwrap();
    let volume = Volume::options().nodatasum(true).open(image.file.path()).unwrap();
    let contents = noise(100_000, 3);
    volume.write("bare", &contents).unwrap();
    volume.close().unwrap();
    let volume = Volume::open(image.file.path()).unwrap();
    assert_eq!(volume.flag_names("bare").unwrap(), "nodatasum");
    let (bare, full) = (open(&volume, "bare"), open(&volume, "full"));
    copy((&bare, &contents), (&full, &mut Vec::new()), (0, 0, 100_000));
    drop((bare, full));
    let volume = image.reopen(volume);
    assert!(volume.read("full").unwrap() == contents);
    assert_eq!(volume.flag_names("full").unwrap(), "none");
}

fn places(file: &File) -> Vec<Option<u64>> {
    let extents = file.extents().unwrap();
    extents.iter().map(|e| e.logical).collect()
}

#[test]
fn nodatacow_overwrites_in_place_what_nobody_shares() {
    let (image, volume) = Image::make();
    volume.write("plain", noise(1 << 20, 1)).unwrap();
    volume.close().unwrap();
    let volume = Volume::options().nodatacow(true).open(image.file.path()).unwrap();
    volume.create_subvolume("s").unwrap();
    let mut expected = noise(1 << 20, 9);
    volume.write("s/f", &expected).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.flag_names("s/f").unwrap(), "nodatasum, nodatacow");
    assert_eq!(volume.flag_names("s").unwrap(), "none");
    let file = open(&volume, "s/f");
    let before = places(&file);
    let mut write = |file: &File, at: usize, len: usize, fill: u8| {
        file.write_at(&vec![fill; len], u64::try_from(at).unwrap()).unwrap();
        expected[at..at + len].fill(fill);
        file.sync_all().unwrap();
    };
    write(&file, 8192, 4096, 1);
    write(&file, 300_000, 200_000, 2);
    assert_eq!(places(&file), before, "written in place");
    volume.snapshot("s", "t", vfs::SnapshotMode::ReadOnly).unwrap();
    // Data written by the transaction of the snapshot itself counts as shared.
    volume.sync().unwrap();
    let old = volume.read("t/f").unwrap();
    write(&file, 8192, 4096, 3);
    assert_ne!(places(&file), before, "the snapshot has the old place");
    let after = places(&file);
    write(&file, 8192, 4096, 4);
    assert_eq!(places(&file), after, "its own place is overwritten again");
    assert!(volume.read("t/f").unwrap() == old);
    // Older files keep their checksums, and their way of writing.
    let plain = open(&volume, "plain");
    let before = places(&plain);
    plain.write_at(&[5; 4096], 0).unwrap();
    plain.sync_all().unwrap();
    assert_ne!(places(&plain), before);
    drop((file, plain));
    let volume = image.reopen(volume);
    assert!(volume.read("s/f").unwrap() == expected);
}

/// The kernel says 129,592 and 108,288 of one that `mkfs.btrfs` made of this size.
#[test]
fn the_status_tells_what_fits() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = btrfs::MakeOptions { size: Some(512 << 20), ..btrfs::MakeOptions::default() };
    let volume = Volume::make(file.path(), &options).unwrap();
    let status = volume.status().unwrap();
    assert_eq!((status.block_bytes, status.blocks), (4096, 131_072));
    assert!(status.blocks_free.abs_diff(129_592) < 32, "{status:?}");
    assert!(status.blocks_available.abs_diff(108_288) <= 2048, "{status:?}");
    volume.write("f", vec![1; 40 << 20]).unwrap();
    let later = volume.status().unwrap();
    let mib = |before: u64, after: u64| (before - after) >> 8;
    assert_eq!(mib(status.blocks_free, later.blocks_free), 40);
    assert_eq!(mib(status.blocks_available, later.blocks_available), 40);
}
