//! Forks: handles whose paths begin at a snapshot, and earlier states beside the running volume.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use btrfs::Volume;
use common::check;
use common::whole::{all, contents, make, populate};
use vfs::{Errno, File};

const MIB: u64 = 1 << 20;

#[test]
fn a_fork_begins_as_its_source_and_goes_its_own_way() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let fork = volume.fork("/sub", "/trial").unwrap();
    let before = all(&volume.open_subvolume("/sub").unwrap());
    assert!(!before.is_empty() && all(&fork) == before);
    let path = before.keys().find(|path| before[*path].len() > 10_000).unwrap();
    fork.write(path, b"changed").unwrap();
    fork.write("/only-here", b"new").unwrap();
    assert!(all(&volume.open_subvolume("/sub").unwrap()) == before);
    assert_eq!(volume.read("/trial/only-here").unwrap(), b"new");
    // A fork of a fork, by paths of the fork.
    fork.create_subvolume("/inner").unwrap();
    fork.write("/inner/file", b"inner").unwrap();
    let inner = fork.fork("/inner", "/again").unwrap();
    assert_eq!(inner.read("/file").unwrap(), b"inner");
    assert_eq!(volume.read("/trial/again/file").unwrap(), b"inner");
    let refused = volume.fork("/trial/only-here", "/never").unwrap_err();
    assert_eq!(refused.errno(), Errno::EINVAL);
    // Paths need no slash at their beginning.
    assert_eq!(volume.fork("trial/again", "plain").unwrap().read("file").unwrap(), b"inner");
    let refused = volume.fork("/sub", "/trial").unwrap_err();
    assert_eq!(refused.errno(), Errno::EEXIST);
    // The handle that lives longest closes the volume, whichever it is.
    drop((volume, fork));
    inner.write("/last", b"last").unwrap();
    drop(inner);
    let volume = Volume::open(file.path()).unwrap();
    assert_eq!(volume.read("/trial/again/last").unwrap(), b"last");
    volume.close().unwrap();
    check(file.path());
}

/// A fork does not wait for the devices; changes before and after it are written in their order.
#[test]
fn a_sync_after_a_fork_writes_what_the_fork_left() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    volume.close().unwrap();
    let generation = || {
        let mut bytes = [0; 8];
        fs::File::open(file.path()).unwrap().read_exact_at(&mut bytes, (64 << 10) + 0x48).unwrap();
        u64::from_le_bytes(bytes)
    };
    // No other thread works on it.
    let volume = Volume::options().workers(1).open(file.path()).unwrap();
    volume.write("/sub/before", b"before").unwrap();
    let committed = generation();
    let fork = volume.fork("/sub", "/fork").unwrap();
    assert_eq!(generation(), committed, "a fork makes nothing durable");
    let after = File::create(&volume, "/sub/after").unwrap();
    after.write_at(b"after", 0).unwrap();
    after.sync_all().unwrap();
    assert_eq!(generation(), committed + 2, "what was before the fork, and the fork with what came after");
    drop((after, fork, volume));
    check(file.path());
}

/// References of extents that a fork shares are counted when one side first changes them; and all of it can be deleted.
#[test]
fn forks_of_much_are_changed_and_given_up() {
    let (file, mut volume) = make(600 * MIB);
    volume.create_subvolume("/much").unwrap();
    for number in 0..4000 {
        volume.write(format!("/much/{number}"), contents(number, 3000)).unwrap();
    }
    volume.sync().unwrap();
    let used = |volume: &Volume| volume.info().unwrap().used_bytes;
    let before = used(&volume);
    for turn in 0..4 {
        let fork = format!("/fork{turn}");
        drop(volume.fork("/much", &fork).unwrap());
        // One side, the other, both, or none is changed before the next is made.
        for (side, name) in [("/much", turn & 1), (fork.as_str(), turn & 2)] {
            if name != 0 {
                volume.write(format!("{side}/{}", turn * 700), b"changed").unwrap();
            }
        }
        if turn == 2 {
            volume.close().unwrap();
            check(file.path());
            volume = Volume::open(file.path()).unwrap();
        }
        volume.snapshot(&fork, format!("/again{turn}"), vfs::SnapshotMode::ReadOnly).unwrap();
    }
    assert_eq!(volume.read("/fork2/1400").unwrap(), b"changed");
    assert_eq!(volume.read("/much/1400").unwrap(), contents(1400, 3000));
    for number in 0..3990 {
        volume.remove_file(format!("/much/{number}")).unwrap();
    }
    volume.close().unwrap();
    check(file.path());
    let volume = Volume::open(file.path()).unwrap();
    assert_eq!(volume.read_dir("/again3").unwrap().count(), 4000);
    for turn in 0..4 {
        volume.delete_subvolume(format!("/again{turn}")).unwrap();
        volume.delete_subvolume(format!("/fork{turn}")).unwrap();
    }
    volume.sync().unwrap();
    assert!(used(&volume) < before / 2, "{} of {before}", used(&volume));
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn a_fork_of_much_takes_no_more_than_one_of_little() {
    let (_file, volume) = make(600 * MIB);
    for (name, count) in [("/little", 1), ("/much", 4000)] {
        volume.create_subvolume(name).unwrap();
        for number in 0..count {
            volume.write(format!("{name}/{number}"), contents(number, 3000)).unwrap();
        }
    }
    volume.sync().unwrap();
    let used = || volume.info().unwrap().used_bytes;
    let taken = |source: &str| {
        let before = used();
        let fork = volume.fork(source, format!("{source}-fork")).unwrap();
        drop(fork);
        volume.sync().unwrap();
        used() - before
    };
    let (little, much) = (taken("/little"), taken("/much"));
    assert!(much <= little + 128 * 1024, "{little}, and {much} of much");
}

#[test]
fn what_was_deleted_is_gone_for_its_handle_too() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    let fork = volume.fork("/sub", "/trial").unwrap();
    fork.write("/kept-open", contents(1, 100_000)).unwrap();
    let mut open = File::open(&fork, "/kept-open").unwrap();
    volume.delete_subvolume("/trial").unwrap();
    assert!(!volume.exists("/trial").unwrap());
    assert!(fork.write("/late", b"late").is_err());
    assert!(fork.create_dir("/late").is_err());
    // An open file is readable as long as it is open.
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).unwrap();
    assert!(bytes == contents(1, 100_000));
    drop((open, fork));
    volume.sync().unwrap();
    assert!(volume.deleted_subvolumes().unwrap().is_empty());
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn a_handle_that_ends_takes_nothing_from_others() {
    let (file, volume) = make(600 * MIB);
    volume.create_subvolume("/sub").unwrap();
    volume.write("/sub/file", contents(1, 100_000)).unwrap();
    let fs = volume.serve(btrfs::FsOptions::default()).unwrap();
    // A server that knows a node without having it open, as a kernel does of a process's current directory.
    let node = fs.resolve(b"/sub/file", vfs::file_system::Follow::Last).unwrap().node;
    volume.remove_file("/sub/file").unwrap();
    drop(volume.fork("/sub", "/fork").unwrap());
    assert_eq!(fs.attr(node).unwrap().size, 100_000);
    fs.forget(node, 1);
    drop(fs);
    volume.close().unwrap();
    check(file.path());
}

#[test]
fn an_earlier_state_is_read_beside_the_volume() {
    let (file, volume) = make(600 * MIB);
    populate(&volume);
    volume.sync().unwrap();
    let (before, generation) = (all(&volume), volume.info().unwrap().generation);
    volume.write("/sub/later", b"later").unwrap();
    volume.sync().unwrap();
    assert!(volume.generations().contains(&generation));
    let earlier = volume.open_at(generation).unwrap();
    assert!(!earlier.exists("/sub/later").unwrap());
    assert!(all(&earlier) == before);
    assert!(earlier.write("/never", b"").is_err());
    // Shared blocks are held while all of them change.
    for path in before.keys().filter(|path| !path.starts_with("/snap-2")) {
        volume.remove_file(path).unwrap();
    }
    volume.sync().unwrap();
    for number in 0..50 {
        volume.write(format!("/sub/over-{number}"), contents(number, 500_000)).unwrap();
    }
    volume.sync().unwrap();
    let large = before.iter().max_by_key(|(_, bytes)| bytes.len()).unwrap();
    assert!(earlier.read(large.0).unwrap() == *large.1);
    drop(earlier);
    let unknown = volume.open_at(btrfs::Generation(1)).unwrap_err();
    assert!(unknown.to_string().contains("the superblock lists"), "{unknown}");
    volume.close().unwrap();
    check(file.path());
}
