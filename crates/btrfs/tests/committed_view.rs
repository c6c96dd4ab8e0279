//! One committed state is read while everything changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use btrfs::{BalanceSpec, Volume};
use common::check;
use common::whole::{all, contents, make, populate};
use vfs::FileOptions;

const MIB: u64 = 1 << 20;

const FILE_BYTES: usize = 9 << 20;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Rewrites or removes everything.
fn change_all(volume: &Volume, round: usize) {
    for (number, path) in all(volume).keys().enumerate() {
        match (number + round) % 3 {
            // The contents of the read-only snapshot stay.
            _ if path.starts_with("/snap-2") => {}
            0 => volume.remove_file(path).unwrap(),
            1 => volume.write(path, contents(number + round, 20_000)).unwrap(),
            _ => {
                let file = FileOptions::new().write(true).open(volume, path).unwrap();
                file.write_at(&contents(number, 9000), 100).unwrap();
                file.sync_all().unwrap();
            }
        }
    }
    for number in 0..200 {
        volume.write(format!("/sub/later-{number}"), contents(number + round, 5000)).unwrap();
    }
    volume.sync().unwrap();
}

#[test]
fn a_view_stays_what_it_was_while_everything_changes() {
    let (file, volume) = make(600 * MIB);
    volume.close().unwrap();
    let volume = Volume::options().discard(true).open(file.path()).unwrap();
    populate(&volume);
    let before = all(&volume);
    // Nothing of this one is read, so nothing of it is in memory, before the end.
    let view = volume.committed_view().unwrap();
    volume.write("/sub/of-the-next-transaction", b"new").unwrap();
    for round in 0..3 {
        change_all(&volume, round);
    }
    assert!(volume.usage().held_bytes > 5 * MIB, "{:?}", volume.usage());
    volume.delete_subvolume("/snap-1").unwrap();
    volume.balance(BalanceSpec::all(), &mut |_| ControlFlow::Continue(())).unwrap();
    volume.sync().unwrap();
    let later = volume.committed_view().unwrap();
    change_all(&volume, 3);
    assert!(all(&view) == before, "the view changed");
    let held_for_both = volume.usage().held_bytes;
    drop(view);
    let held_for_one = volume.usage().held_bytes;
    assert!(0 < held_for_one && held_for_one < held_for_both / 2, "{held_for_both}, then {held_for_one}");
    assert!(all(&later) != before);
    assert!(later.exists("/snap-2").unwrap() && !later.exists("/snap-1").unwrap());
    drop(later);
    assert_eq!(volume.usage().held_bytes, 0);
    let names: Vec<_> = all(&volume).into_keys().filter(|path| !path.starts_with("/snap-2")).collect();
    names.iter().for_each(|path| volume.remove_file(path).unwrap());
    volume.sync().unwrap();
    let pinned: u64 = volume.info().unwrap().space.profiles.iter().map(|profile| profile.pinned).sum();
    assert_eq!(pinned, 0);
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn writers_take_turns_with_readers_of_an_earlier_state() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (volume, is_over) = (volume.clone(), &is_over);
            scope.spawn(move || {
                let mut round = 0;
                while !is_over.load(Ordering::Relaxed) {
                    round += 1;
                    let path = format!("/sub/of-writer-{writer}-{}", round % 20);
                    volume.write(&path, contents(round, 150_000)).unwrap();
                    if round % 5 == 0 {
                        volume.sync().unwrap();
                    }
                }
            });
        }
        for _ in 0..8 {
            let view = volume.committed_view().unwrap();
            let first: Files = all(&view);
            let again = volume.committed_view().unwrap();
            drop(view);
            for (path, bytes) in &first {
                if !path.to_string_lossy().contains("of-writer") {
                    assert!(again.read(path).unwrap() == *bytes, "{}", path.display());
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(volume.usage().held_bytes, 0);
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn a_view_gives_way_to_who_needs_the_space() {
    let (file, volume) = make(200 * MIB);
    for number in 0..10 {
        volume.write(format!("/{number}"), contents(number, FILE_BYTES)).unwrap();
    }
    volume.sync().unwrap();
    let view = volume.committed_view().unwrap();
    assert!(view.read("/9").unwrap() == contents(9, FILE_BYTES));
    for round in 0..6 {
        for number in 0..10 {
            volume.write(format!("/{number}"), contents(number + round, FILE_BYTES)).unwrap();
        }
        volume.sync().unwrap();
    }
    assert_eq!(volume.usage().held_bytes, 0, "it was given up");
    let error = view.read("/3").unwrap_err();
    assert!(error.to_string().contains("given up"), "{error}");
    assert!(volume.read("/3").unwrap() == contents(8, FILE_BYTES));
    drop(view);
    volume.close().unwrap();
    check(file.path());
}
