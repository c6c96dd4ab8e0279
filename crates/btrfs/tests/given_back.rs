//! Tests that empty block groups are removed, and that groups of the other kind (data, metadata) can use their space.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use btrfs::{FsOptions, MakeOptions, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use common::{check, empty, fill};

const MIB: u64 = 1 << 20;
const IMAGE_BYTES: u64 = 300 * MIB;
/// Contents so small that the tree stores them inline.
const INLINE_BYTES: usize = 1500;
/// Contents that a data extent stores.
const LARGE_BYTES: usize = 1 << 20;
/// At least this part, in hundredths, of the files that a fresh volume takes. Without the removal of groups only the
/// first data chunk would serve, a seventh.
const LEAST: usize = 95;

fn make() -> (tempfile::NamedTempFile, Volume) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::make(file.path(), &options).unwrap();
    (file, volume)
}

/// Bytes of chunks for tree blocks, and of those for data.
fn chunk_bytes(volume: &Volume) -> (u64, u64) {
    let of = |flags| volume.chunks().iter().filter(|chunk| chunk.flags.contains(flags)).map(|chunk| chunk.bytes).sum();
    (of(BlockGroupFlags::METADATA), of(BlockGroupFlags::DATA))
}

fn check_count(found: usize, fresh: usize, what: &str) {
    assert!(found * 100 >= fresh * LEAST, "{found} {what} instead of {fresh}");
}

/// Fills the volume with small files, then with large ones, three times; opens it again in between if `opens_again`.
fn each_kind_after_the_other(opens_again: bool) {
    let large_when_fresh = fill(&make().1, LARGE_BYTES);
    let small_when_fresh = fill(&make().1, INLINE_BYTES);
    let (file, mut volume) = make();
    let again = |volume: Volume| {
        volume.close().unwrap();
        check(file.path());
        Volume::open(file.path()).unwrap()
    };
    for round in 0..3 {
        check_count(fill(&volume, INLINE_BYTES), small_when_fresh, "small files");
        let before = chunk_bytes(&volume);
        empty(&volume);
        if opens_again {
            volume = again(volume);
        }
        check_count(fill(&volume, LARGE_BYTES), large_when_fresh, "large files");
        let after = chunk_bytes(&volume);
        assert!(after.0 < before.0 && after.1 > before.1, "round {round}: {before:?}, then {after:?}");
        empty(&volume);
        if opens_again {
            volume = again(volume);
        }
    }
    drop(again(volume));
}

#[test]
fn what_names_had_is_there_for_data_and_the_other_way_round() {
    each_kind_after_the_other(false);
}

#[test]
fn groups_that_were_not_loaded_are_given_back_as_well() {
    each_kind_after_the_other(true);
}

/// After a crash the last commit is intact, even if the space of groups removed since then was reused.
#[test]
fn a_crash_after_groups_went_leaves_the_last_commit() {
    let (file, volume) = make();
    volume.write("/kept", vec![3; 5 * LARGE_BYTES]).unwrap();
    fill(&volume, INLINE_BYTES);
    let before = chunk_bytes(&volume);
    for entry in volume.read_dir("/").unwrap() {
        let name = entry.unwrap().file_name().to_owned();
        if name != "kept" {
            volume.remove_file(&name).unwrap();
        }
    }
    volume.sync().unwrap();
    // No commit follows this write: its data lies where the small files were, and the last commit does not refer to it.
    let large = vec![9; usize::try_from(IMAGE_BYTES / 3).unwrap()];
    let written = volume.write("/large", large);
    assert!(written.is_ok(), "{before:?}, then {:?}: {written:?}", chunk_bytes(&volume));
    assert!(chunk_bytes(&volume).0 < before.0, "no metadata group was removed");
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(file.path(), copy.path()).unwrap();
    check(copy.path());
    let crashed = Volume::open(copy.path()).unwrap();
    assert_eq!(crashed.read("/kept").unwrap(), vec![3; 5 * LARGE_BYTES]);
    assert!(crashed.read("/large").is_err());
    drop(crashed);
    volume.sync().unwrap();
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn groups_that_have_become_less_full_than_asked_for_are_emptied_and_given_back() {
    let (file, volume) = common::whole::make(800 << 20);
    let contents = |number: usize| common::whole::contents(number, 1 << 20);
    let options = FsOptions { bg_reclaim_threshold: 40, commit_interval: Duration::ZERO, ..FsOptions::default() };
    let server = volume.serve(options).unwrap();
    let count = || {
        let chunks = volume.chunks();
        chunks.iter().filter(|chunk| chunk.flags.contains(BlockGroupFlags::DATA)).count()
    };
    for number in 0..500 {
        volume.write(format!("/{number}"), contents(number)).unwrap();
    }
    volume.sync().unwrap();
    server.step();
    let full = count();
    assert!(full >= 4, "{full} groups of data");
    for number in (0..500).filter(|number| number % 8 != 0) {
        volume.remove_file(format!("/{number}")).unwrap();
    }
    volume.sync().unwrap();
    for _ in 0..200 {
        server.step();
    }
    let left = count();
    assert!(left <= full / 2, "{left} of {full} groups of data are left");
    for number in (0..500).step_by(8) {
        assert!(volume.read(format!("/{number}")).unwrap() == contents(number), "{number}");
    }
    drop(server);
    volume.close().unwrap();
    common::check(file.path());
}
