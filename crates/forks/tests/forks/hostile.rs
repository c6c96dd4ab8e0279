//! The attacker's view: paths that lead out, links in the place of directories, forged names, merges at once, and what
//! a crash between two steps leaves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use forks::{Error, ForkOptions, Forks, Merge, Strategy};
use vfs::SnapshotMode;

use crate::sample::Sample;

const THEIRS: Strategy = Strategy::Theirs;

#[test]
fn paths_do_not_lead_out() {
    let sample = Sample::new();
    let fork = |base: &str, name: &str| {
        sample.forks.fork(Path::new(base), Path::new(name), &ForkOptions::default()).unwrap_err()
    };
    assert!(matches!(fork("base/../base", "x"), Error::Dots(_)));
    assert!(matches!(fork("base", "x/../y"), Error::Dots(_)));
    assert!(matches!(fork("base", ".spinney/forks/x"), Error::Reserved(_)));
    assert!(matches!(fork("base", "base"), Error::Volume(_)));
    assert!(matches!(fork("base", "/"), Error::Volume(_)));
    assert_eq!(sample.names("/"), ["base"]);
}

#[test]
fn a_merge_does_not_follow_links_of_the_target_or_the_fork() {
    let sample = Sample::new();
    sample.volume.create_subvolume("outside").unwrap();
    sample.write("outside/x", "precious");
    for dir in ["base/dir", "base/other"] {
        sample.volume.create_dir(dir).unwrap();
        sample.write(&format!("{dir}/x"), "x");
    }
    sample.fork("base", "trial");
    // The target has a link where the fork changes something below.
    sample.write("trial/dir/x", "changed");
    sample.volume.remove_dir_all("base/dir").unwrap();
    sample.volume.symlink("/outside", "base/dir").unwrap();
    // The fork has a link where the base has a directory, and the target changes something below.
    sample.volume.remove_dir_all("trial/other").unwrap();
    sample.volume.symlink("/outside", "trial/other").unwrap();
    sample.write("base/other/x", "changed");
    let merged = sample.forks.merge(Path::new("trial"), &Merge { into: None, strategy: THEIRS }).unwrap();
    assert!(!merged.conflicts.is_empty());
    assert_eq!(sample.read("outside/x"), "precious");
    assert_eq!(sample.names("outside"), ["x"]);
    assert_eq!(sample.read("base/dir/x"), "changed");
    assert!(sample.volume.symlink_metadata("base/dir.ours").unwrap().is_symlink());
    sample.check();
}

#[test]
fn a_link_in_the_place_of_the_hidden_directory_is_refused() {
    let sample = Sample::new();
    sample.volume.create_dir("elsewhere").unwrap();
    sample.volume.symlink("/elsewhere", ".spinney").unwrap();
    let refused = sample.forks.fork(Path::new("base"), Path::new("x"), &ForkOptions::default());
    assert!(refused.is_err());
    assert_eq!(sample.names("elsewhere"), [""; 0]);
    assert_eq!(sample.names("/"), [".spinney", "base", "elsewhere"]);
}

/// Only the owner of the volume gets at ancestors and records.
#[test]
fn the_hidden_directory_is_closed() {
    let sample = Sample::new();
    sample.fork("base", "trial");
    for dir in [".spinney", ".spinney/forks"] {
        assert_eq!(sample.volume.metadata(dir).unwrap().permissions, 0o700);
    }
}

/// A user who may write to the root could make it first.
#[test]
fn a_hidden_directory_of_somebody_else_is_refused() {
    let sample = Sample::new();
    sample.fork("base", "trial");
    sample.volume.set_owner(".spinney", Some(1001), None).unwrap();
    assert!(matches!(sample.forks.list(), Err(Error::Untrusted { uid: 1001, .. })));
    assert_eq!(sample.forks.clone().owner(1001).list().unwrap().len(), 1);
    sample.volume.set_owner(".spinney", Some(0), None).unwrap();
    sample.volume.set_permissions(".spinney/forks", 0o777).unwrap();
    assert!(matches!(sample.forks.merge(Path::new("trial"), &Merge::default()), Err(Error::Untrusted { .. })));
    let other = sample.forks.fork(Path::new("base"), Path::new("other"), &ForkOptions::default());
    assert!(matches!(other, Err(Error::Untrusted { .. })));
}

/// A name like that of a running merge is nothing special while no merge runs, and makes one fail.
#[test]
fn a_forged_successor_is_neither_used_nor_deleted() {
    let sample = Sample::new();
    sample.fork("base", "trial");
    sample.write("trial/a", "a");
    let uuid = sample.volume.subvolume_info(sample.volume.subvolume_at(Path::new("base")).unwrap()).unwrap().uuid;
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let forged = format!(".spinney-merge-{digits}");
    sample.volume.create_dir(&forged).unwrap();
    let refused = sample.forks.merge(Path::new("trial"), &Merge::default());
    assert!(refused.is_err());
    assert!(sample.volume.exists(&forged).unwrap());
    sample.volume.remove_dir(&forged).unwrap();
    assert!(sample.forks.merge(Path::new("trial"), &Merge::default()).unwrap().is_merged);
    sample.check();
}

#[test]
fn merges_at_once_lose_nothing() {
    let sample = Sample::new();
    for name in 0..8 {
        sample.fork("base", &format!("fork-{name}"));
        sample.write(&format!("fork-{name}/{name}"), "x");
    }
    std::thread::scope(|scope| {
        for name in 0..8 {
            // A value of its own, as two mounts of one server have.
            let forks = Forks::new(sample.volume.clone());
            scope.spawn(move || {
                let path = PathBuf::from(format!("fork-{name}"));
                assert!(forks.merge(&path, &Merge::default()).unwrap().is_merged);
                forks.drop_fork(&path).unwrap();
            });
        }
    });
    assert_eq!(sample.names("base"), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    sample.check();
}

/// Data that is written to the target during a merge is in it afterwards, or the writer was refused.
#[test]
fn a_writer_beside_a_merge_loses_nothing_silently() {
    let sample = Sample::new();
    sample.fork("base", "trial");
    for name in 0..200 {
        sample.write(&format!("trial/{name}"), "from the fork");
    }
    let is_done = AtomicBool::new(false);
    let (merged, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Vec::new();
            for number in 0.. {
                if is_done.load(Ordering::Relaxed) {
                    return written;
                }
                let path = format!("base/own-{number}");
                if sample.volume.write(&path, "own").is_ok() {
                    written.push(path);
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            written
        });
        let merged = sample.forks.merge(Path::new("trial"), &Merge::default());
        is_done.store(true, Ordering::Relaxed);
        (merged, writer.join().unwrap())
    });
    for path in written {
        assert_eq!(sample.read(&path), "own", "{path}");
    }
    match merged {
        Ok(_) => assert_eq!(sample.read("base/7"), "from the fork"),
        Err(error) => assert!(matches!(error, Error::Unsteady(_)), "{error}"),
    }
    let info = sample.volume.subvolume_info(sample.volume.subvolume_at(Path::new("base")).unwrap()).unwrap();
    assert!(!info.read_only);
    sample.check();
}

/// A new process finds the pieces that an interrupted fork or merge left, and removes them.
#[test]
fn leftovers_are_removed_by_the_next_merge() {
    let sample = Sample::new();
    sample.write("base/a", "a");
    sample.fork("base", "trial");
    sample.write("trial/b", "b");
    let hidden = PathBuf::from(".spinney/forks").join(&sample.names(".spinney/forks")[0]);
    // A fork that ended after its ancestor.
    sample.volume.create_dir(".spinney/forks/broken").unwrap();
    sample.volume.snapshot("base", ".spinney/forks/broken/ancestor", SnapshotMode::ReadOnly).unwrap();
    // A merge that ended before the exchange, with a read-only target.
    let id = sample.volume.subvolume_at(Path::new("base")).unwrap();
    let uuid = sample.volume.subvolume_info(id).unwrap().uuid;
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    sample.volume.set_xattr(&hidden, "user.spinney.merge", &digits, Default::default()).unwrap();
    sample.volume.snapshot("base", hidden.join("ours"), SnapshotMode::ReadOnly).unwrap();
    sample.volume.snapshot("trial", hidden.join("theirs"), SnapshotMode::ReadOnly).unwrap();
    let staging = format!(".spinney-merge-{digits}");
    sample.volume.snapshot("base", &staging, SnapshotMode::ReadWrite).unwrap();
    sample.volume.set_read_only_of(id, true).unwrap();
    let forks = Forks::new(sample.volume.clone());
    assert!(forks.merge(Path::new("trial"), &Merge::default()).unwrap().is_merged);
    assert_eq!(sample.names("base"), ["a", "b"]);
    assert_eq!(sample.names("/"), [".spinney", "base", "trial"]);
    assert_eq!(sample.names(".spinney/forks").len(), 1);
    assert_eq!(sample.names(hidden.to_str().unwrap()), ["ancestor"]);
    sample.check();
}
