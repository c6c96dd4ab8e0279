//! Limits of quota groups: writes beyond one are refused, deletions are not, and freed room can be used.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use btrfs::{MakeOptions, QgroupId, QgroupReport, QuotaChange, QuotaKind, Volume};
use vfs::file_system::{AllocateFlags, NodeFlags, XattrMode};
use vfs::{Errno, File, FileOptions, SnapshotMode};

const MIB: u64 = 1 << 20;
/// Bytes of tree blocks beyond a limit of data: a path of them is copied before it is counted.
const SLACK: u64 = 8 * 16_384;

fn make() -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let volume = Volume::make(file.path(), &MakeOptions { size: Some(512 * MIB), ..MakeOptions::default() }).unwrap();
    volume.enable_quotas(QuotaKind::Shared).unwrap();
    volume.create_subvolume("/home").unwrap();
    volume.sync().unwrap();
    (file, volume)
}

fn group(volume: &Volume, path: &str) -> QgroupId {
    QgroupId::of(volume.subvolume_at(Path::new(path)).unwrap())
}

fn limit(volume: &Volume, group: QgroupId, is_excl: bool, bytes: u64) {
    volume.change_quotas(QuotaChange::Limit { group, is_excl, bytes: Some(bytes) }).unwrap();
}

fn counted(volume: &Volume, id: QgroupId) -> QgroupReport {
    volume.sync().unwrap();
    let report = volume.quotas().unwrap().unwrap();
    assert!(!report.is_inconsistent());
    report.groups.into_iter().find(|group| group.id == id).unwrap()
}

/// Writes pieces until that fails, of which the last may be written in part; returns the bytes before.
fn fill(volume: &Volume, path: &str, piece: usize) -> (u64, Errno) {
    let file = FileOptions::new().write(true).create(true).open(volume, path).unwrap();
    let data: Vec<u8> = (0..piece).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect();
    let mut at = 0;
    loop {
        match file.write_at(&data, at) {
            Ok(()) => at += u64::try_from(piece).unwrap(),
            Err(error) => return (at, error.errno()),
        }
        assert!(at < 256 * MIB, "nothing stops the writer");
    }
}

#[test]
fn a_writer_is_stopped_at_the_limit_and_goes_on_when_there_is_room() {
    for piece in [1000, 4096, 65_536, 1 << 20] {
        let (_file, volume) = make();
        let id = group(&volume, "/home");
        limit(&volume, id, false, 10 * MIB);
        let (written, errno) = fill(&volume, "/home/big", piece);
        assert_eq!(errno, Errno::EDQUOT, "pieces of {piece}");
        let used = counted(&volume, id).rfer;
        assert!(used <= 10 * MIB, "pieces of {piece}: {used} of 10 MiB");
        assert!(written > 8 * MIB, "pieces of {piece}: stopped at {written} of 10 MiB");
        // Other subvolumes are not limited.
        volume.write("/elsewhere", vec![1; 12 << 20]).unwrap();
        volume.remove_file("/home/big").unwrap();
        volume.write("/home/again", vec![1; 5 << 20]).unwrap();
        assert!(counted(&volume, id).rfer < 6 * MIB);
    }
}

#[test]
fn what_is_overwritten_needs_no_more_room() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    limit(&volume, id, false, 10 * MIB);
    for round in 0..8u8 {
        volume.write("/home/file", vec![round; 6 << 20]).unwrap();
        let file = FileOptions::new().write(true).open(&volume, "/home/file").unwrap();
        for at in 0..60 {
            file.write_at(&[round; 50_000], at * 100_000).unwrap();
        }
    }
    assert!(counted(&volume, id).rfer <= 10 * MIB);
}

#[test]
fn names_and_attributes_stop_at_the_limit_and_can_be_removed() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    limit(&volume, id, false, MIB);
    let mut count = 0;
    let errno = loop {
        match volume.write(format!("/home/{count}"), [7; 1500]) {
            Ok(()) => count += 1,
            Err(error) => break error.errno(),
        }
        assert!(count < 10_000, "nothing stops the writer");
    };
    assert_eq!(errno, Errno::EDQUOT);
    assert!(count > 100, "{count} files");
    let used = counted(&volume, id).rfer;
    assert!(used <= MIB + SLACK, "{used} of a MiB");
    let refused = [
        volume.create_dir("/home/dir").unwrap_err(),
        volume.symlink("target", "/home/link").unwrap_err(),
        volume.hard_link("/home/1", "/home/one").unwrap_err(),
        volume.set_xattr("/home/1", "user.x", [1; 100], XattrMode::Either).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.errno() == Errno::EDQUOT), "{refused:?}");
    for number in 0..count {
        volume.remove_file(format!("/home/{number}")).unwrap();
    }
    volume.create_dir("/home/dir").unwrap();
}

#[test]
fn a_group_limits_its_members_together() {
    let (_file, volume) = make();
    volume.create_subvolume("/work").unwrap();
    let parent: QgroupId = "1/7".parse().unwrap();
    volume.change_quotas(QuotaChange::Create(parent)).unwrap();
    for path in ["/home", "/work"] {
        volume.change_quotas(QuotaChange::Assign { member: group(&volume, path), parent }).unwrap();
    }
    limit(&volume, parent, false, 10 * MIB);
    volume.write("/home/file", vec![1; 6 << 20]).unwrap();
    let (written, errno) = fill(&volume, "/work/file", 65_536);
    assert_eq!(errno, Errno::EDQUOT);
    assert!((2 * MIB..4 * MIB).contains(&written), "{written}");
    assert!(counted(&volume, parent).rfer <= 10 * MIB);
}

#[test]
fn what_a_snapshot_shares_is_not_held_alone() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    volume.write("/home/file", vec![1; 8 << 20]).unwrap();
    volume.snapshot("/home", "/copy", SnapshotMode::ReadOnly).unwrap();
    limit(&volume, id, true, 5 * MIB);
    let (written, errno) = fill(&volume, "/home/new", 65_536);
    assert_eq!(errno, Errno::EDQUOT);
    assert!((3 * MIB..=5 * MIB).contains(&written), "{written}");
    let used = counted(&volume, id);
    assert!(used.excl <= 5 * MIB && used.rfer > 11 * MIB, "{used:?}");
}

#[test]
fn space_that_was_set_aside_can_be_written_to_at_the_limit() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    limit(&volume, id, false, 10 * MIB);
    let file = FileOptions::new().read(true).write(true).create(true).open(&volume, "/home/set-aside").unwrap();
    file.allocate(AllocateFlags::default(), 0, 8 * MIB).unwrap();
    let refused = file.allocate(AllocateFlags::default(), 8 * MIB, 8 * MIB).unwrap_err();
    assert_eq!(refused.errno(), Errno::EDQUOT);
    let (_, errno) = fill(&volume, "/home/rest", 4096);
    assert_eq!(errno, Errno::EDQUOT);
    for at in 0..64 {
        file.write_at(&[9; 4096], at * 65_536).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let mut whole = [0; 4096];
    File::open(&volume, "/home/set-aside").unwrap().read_at(&mut whole, 63 * 65_536).unwrap();
    assert_eq!(whole, [9; 4096]);
    assert!(counted(&volume, id).rfer <= 10 * MIB + SLACK);
}

#[test]
fn a_limit_is_lifted_and_a_group_destroyed() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    limit(&volume, id, false, MIB);
    assert_eq!(fill(&volume, "/home/file", 100_000).1, Errno::EDQUOT);
    volume.change_quotas(QuotaChange::Limit { group: id, is_excl: false, bytes: None }).unwrap();
    volume.write("/home/file", vec![1; 5 << 20]).unwrap();
    assert!(volume.change_quotas(QuotaChange::Destroy(id)).is_err(), "its subvolume is there");
    volume.delete_subvolume("/home").unwrap();
    volume.sync().unwrap();
    let left = volume.quotas().unwrap().unwrap();
    assert!(left.groups.iter().all(|group| group.id != id), "it goes with its subvolume: {left:?}");
}

#[test]
fn data_written_in_place_needs_no_more_room() {
    let (_file, volume) = make();
    let id = group(&volume, "/home");
    volume.write("/home/disk", []).unwrap();
    volume.set_flags("/home/disk", NodeFlags::NOCOW).unwrap();
    let file = FileOptions::new().write(true).open(&volume, "/home/disk").unwrap();
    file.write_at(&vec![1; 8 << 20], 0).unwrap();
    volume.sync().unwrap();
    limit(&volume, id, false, 8 * MIB + 65_536);
    for at in 0..100 {
        file.write_at(&[3; 8192], at * 65_536).unwrap();
    }
    file.sync_all().unwrap();
    assert!(counted(&volume, id).rfer <= 8 * MIB + 65_536 + SLACK);
}
