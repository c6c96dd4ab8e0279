//! What Linux expects of a file system beside names and contents: whiteouts, allocated space,
//! flags that forbid.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::{
    AllocateMode, CallerError, Error, File, FileOptions, FileType, InodeFlags, NodeKind,
    RenameFlags, SetAttr, Times, Timestamp, Volume, XattrMode,
};
use common::{Image, what};

#[test]
fn a_whiteout_takes_the_place_of_what_moved() {
    let (image, volume) = Image::make();
    volume.create_dir("d").unwrap();
    volume.write("d/a", b"contents").unwrap();
    volume.write("b", b"other").unwrap();
    let refused = volume.rename_with("d/a", "b", RenameFlags::NoReplaceWhiteout);
    assert_eq!(what(refused), CallerError::Exists);
    volume
        .rename_with("d/a", "b", RenameFlags::Whiteout)
        .unwrap();
    volume
        .rename_with("b", "d/c", RenameFlags::NoReplaceWhiteout)
        .unwrap();
    volume
        .rename_with("d/c", "d/e", RenameFlags::Whiteout)
        .unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("d/e").unwrap(), b"contents");
    for name in ["d/a", "b", "d/c"] {
        let whiteout = volume.symlink_metadata(name).unwrap();
        assert_eq!(
            (whiteout.kind, whiteout.permissions(), whiteout.rdev),
            (FileType::CharDevice, 0, 0),
            "{name}"
        );
        assert_eq!((whiteout.nlink, whiteout.size, whiteout.blocks), (1, 0, 0));
    }
    // Three names of one byte each.
    assert_eq!(volume.metadata("d").unwrap().size, 6);
    // The other way round: what moves replaces a whiteout.
    volume
        .rename_with("d/e", "b", RenameFlags::Replace)
        .unwrap();
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
    for (name, rdev) in [
        ("fifo", 0),
        ("socket", 0),
        ("file", 0),
        ("char", 0x0801),
        ("block", 0x0801),
    ] {
        assert_eq!(volume.metadata(name).unwrap().rdev, rdev, "{name}");
    }
}

fn blocks(volume: &Volume, path: &str) -> u64 {
    volume.metadata(path).unwrap().blocks
}

/// As many before the data is written as after it.
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
    // Over what is there, and over half of it.
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
    file.allocate(AllocateMode::Allocate, 0, 64 << 10).unwrap();
    assert_eq!(blocks(&volume, "p"), 128);
    file.write_at(&[1; 8192], 8192).unwrap();
    assert_eq!(blocks(&volume, "p"), 128);
    volume.write("inline", b"small").unwrap();
    assert_eq!(blocks(&volume, "inline"), 8);
    volume.sync().unwrap();
    assert_eq!((blocks(&volume, "inline"), blocks(&volume, "p")), (8, 128));
}

fn set_flags(volume: &Volume, path: &str, flags: InodeFlags) {
    let changes = SetAttr {
        flags: Some(flags),
        ..SetAttr::default()
    };
    volume.set_attributes(path, &changes).unwrap();
}

/// Everything that may change a file, with what it is called.
fn attempts(volume: &Volume, file: &File, other: &File) -> Vec<(&'static str, Result<(), Error>)> {
    let now = Times {
        mtime: Some(Timestamp::new(1, 0)),
        ..Times::default()
    };
    vec![
        ("append", file.write_at(b"x", file.metadata().unwrap().size)),
        (
            "allocate",
            file.allocate(AllocateMode::KeepSize, 1 << 20, 4096),
        ),
        ("write", file.write_at(b"x", 0)),
        ("cut", file.set_len(1)),
        ("extend", file.set_len(1 << 20)),
        ("punch", file.allocate(AllocateMode::PunchHole, 0, 4096)),
        ("zero", file.allocate(AllocateMode::ZeroRange, 0, 4096)),
        ("reflink", file.reflink(other, 0, 0, 0)),
        (
            "xattr",
            volume.set_xattr("f", "user.a", "b", XattrMode::Either),
        ),
        ("no xattr", volume.remove_xattr("f", "user.old")),
        ("mode", volume.set_permissions("f", 0o600)),
        ("owner", volume.set_owner("f", Some(5), None)),
        ("times", volume.set_times("f", &now)),
        ("link", volume.hard_link("f", "g")),
        ("rename", volume.rename("f", "g")),
        ("remove", volume.remove_file("f")),
        (
            "open",
            FileOptions::new().write(true).open(volume, "f").map(drop),
        ),
        ("empty", File::create(volume, "f").map(drop)),
    ]
}

#[test]
fn flags_forbid_changes() {
    let (image, volume) = Image::make();
    volume.write("f", vec![1; 9000]).unwrap();
    volume.write("other", vec![2; 8192]).unwrap();
    volume
        .set_xattr("f", "user.old", "1", XattrMode::Either)
        .unwrap();
    let open = |path: &str| {
        let options = FileOptions::new().read(true).write(true);
        options.open(&volume, path).unwrap()
    };
    let (file, other) = (open("f"), open("other"));
    set_flags(&volume, "f", InodeFlags::IMMUTABLE);
    for (name, result) in attempts(&volume, &file, &other) {
        assert_eq!(what(result), CallerError::NotPermitted, "immutable: {name}");
    }
    set_flags(&volume, "f", InodeFlags::APPEND);
    for (name, result) in attempts(&volume, &file, &other) {
        match name {
            "append" | "allocate" => result.unwrap(),
            _ => assert_eq!(
                what(result),
                CallerError::NotPermitted,
                "append-only: {name}"
            ),
        }
    }
    let appender = FileOptions::new().append(true).open(&volume, "f").unwrap();
    appender.write_at(b"y", 0).unwrap();
    set_flags(&volume, "f", InodeFlags::empty());
    let expected = [vec![1; 9000], b"xy".to_vec()].concat();
    drop((file, other, appender));
    let volume = image.reopen(volume);
    assert_eq!(volume.read("f").unwrap(), expected);
    volume.set_permissions("f", 0o600).unwrap();
    volume.remove_file("f").unwrap();
}
