//! Contents of forks, lists, statuses, patches, merges by example.

use std::path::{Path, PathBuf};

use btrfs::QuotaKind;
use forks::{ConflictKind, Error, ForkOptions, Merge, Strategy, write_patch};
use vfs::file_system::XattrMode;
use vfs::{File, FileOptions, SnapshotMode};

use crate::sample::Sample;

fn merge(sample: &Sample, fork: &str, strategy: Strategy) -> forks::Merged {
    sample.forks.merge(Path::new(fork), &Merge { into: None, strategy }).unwrap()
}

#[test]
fn a_fork_has_all_writes_before_it_and_no_nameless_files() {
    let sample = Sample::new();
    let volume = &sample.volume;
    // Open, not synced.
    let open = FileOptions::new().read(true).write(true).create(true).open(volume, "base/open").unwrap();
    open.write_at(&[7; 100_000], 0).unwrap();
    let gone = File::create(volume, "base/gone").unwrap();
    gone.write_at(b"gone", 0).unwrap();
    volume.remove_file("base/gone").unwrap();
    sample.fork("base", "trial");
    open.write_at(b"later", 0).unwrap();
    assert_eq!(volume.read("trial/open").unwrap(), vec![7; 100_000]);
    assert_eq!(sample.names("trial"), ["open"]);
    // The open file stays one of the base.
    assert!(volume.read("base/open").unwrap().starts_with(b"later"));
    drop((open, gone));
    sample.check();
}

#[test]
fn forks_are_listed_with_their_bases_and_dropped() {
    let sample = Sample::new();
    sample.write("base/a", "a");
    sample.fork("base", "one");
    let options = ForkOptions { read_only: true, expires: Some(1000), limit: None };
    sample.forks.fork(Path::new("/one"), Path::new("/two"), &options).unwrap();
    let forks = sample.forks.list().unwrap();
    let shown: Vec<(&Path, Option<&Path>)> = forks.iter().map(|fork| (&*fork.path, fork.base.as_deref())).collect();
    assert_eq!(shown, [(Path::new("one"), Some(Path::new("base"))), (Path::new("two"), Some(Path::new("one")))]);
    assert!(forks[1].read_only && forks[1].expires == Some(1000) && !forks[0].read_only);
    // A snapshot of a fork is none, and a fork may be renamed.
    sample.volume.snapshot("one", "plain", SnapshotMode::ReadWrite).unwrap();
    sample.volume.rename("one", "uno").unwrap();
    assert!(matches!(sample.forks.at(Path::new("plain")), Err(Error::NotFork(_))));
    assert_eq!(sample.forks.at(Path::new("two")).unwrap().base, Some(PathBuf::from("uno")));
    assert!(sample.forks.drop_expired(999).unwrap().is_empty());
    assert_eq!(sample.forks.drop_expired(1000).unwrap().len(), 1);
    sample.forks.drop_fork(Path::new("uno")).unwrap();
    assert!(matches!(sample.forks.drop_fork(Path::new("plain")), Err(Error::NotFork(_))));
    assert_eq!(sample.names("/"), ["base", "plain"]);
    sample.check();
}

#[test]
fn the_status_has_the_changes_since_the_fork_or_the_last_merge() {
    let sample = Sample::new();
    sample.write("base/a", "1\n2\n3\n");
    sample.fork("base", "trial");
    let changes = |path: &str| {
        let mut count = 0;
        sample.forks.status(Path::new(path), |_| count += 1).unwrap();
        count
    };
    assert_eq!(changes("trial"), 0);
    sample.write("trial/a", "1\n2\nthree\n");
    sample.write("trial/new", "new\n");
    // Of the directory and both files.
    assert!(changes("trial") >= 2);
    let mut patch = Vec::new();
    let ancestor = sample.forks.at(Path::new("trial")).unwrap().ancestor;
    write_patch(&sample.volume, &ancestor, Path::new("trial"), &mut patch).unwrap();
    let wanted = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n 2\n-3\n+three\n\
                  diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(String::from_utf8(patch).unwrap(), wanted);
    let merged = merge(&sample, "trial", Strategy::Fail);
    assert!(merged.is_merged && merged.changes == 2 && merged.conflicts.is_empty(), "{merged:?}");
    assert_eq!(changes("trial"), 0);
    assert_eq!(sample.read("base/a"), "1\n2\nthree\n");
    let again = merge(&sample, "trial", Strategy::Fail);
    assert!(!again.is_merged && again.changes == 0);
    sample.check();
}

#[test]
fn a_merge_follows_the_strategy_and_keeps_what_it_did_not_take() {
    let sample = Sample::new();
    for (path, text) in [("text", "1\n2\n3\n4\n5\n"), ("same", "a\n"), ("removed", "r\n")] {
        sample.write(&format!("base/{path}"), text);
    }
    for (fork, strategy) in [("fails", Strategy::Fail), ("ours", Strategy::Ours), ("theirs", Strategy::Theirs)] {
        sample.volume.snapshot("base", format!("{fork}-base"), SnapshotMode::ReadWrite).unwrap();
        let base = format!("{fork}-base");
        sample.fork(&base, fork);
        sample.write(&format!("{fork}/text"), "one\n2\n3\n4\n5\n");
        sample.write(&format!("{base}/text"), "1\n2\n3\n4\nfive\n");
        sample.write(&format!("{fork}/same"), "fork\n");
        sample.write(&format!("{base}/same"), "base\n");
        sample.volume.remove_file(format!("{fork}/removed")).unwrap();
        sample.write(&format!("{base}/removed"), "changed\n");
        let merged = merge(&sample, fork, strategy);
        let kinds: Vec<(&str, ConflictKind)> =
            merged.conflicts.iter().map(|one| (one.path.to_str().unwrap(), one.kind)).collect();
        assert_eq!(kinds, [("removed", ConflictKind::RemovedInFork), ("same", ConflictKind::Contents)]);
    }
    assert_eq!(sample.names("fails-base"), ["removed", "same", "text"]);
    assert_eq!(sample.read("fails-base/text"), "1\n2\n3\n4\nfive\n");
    assert_eq!(sample.names("ours-base"), ["removed", "same", "same.theirs", "text"]);
    assert_eq!(sample.read("ours-base/text"), "one\n2\n3\n4\nfive\n");
    assert_eq!(sample.read("ours-base/same.theirs"), "fork\n");
    assert_eq!(sample.names("theirs-base"), ["removed.ours", "same", "same.ours", "text"]);
    assert_eq!(sample.read("theirs-base/same"), "fork\n");
    assert_eq!(sample.read("theirs-base/removed.ours"), "changed\n");
    sample.check();
}

#[test]
fn a_base_that_is_a_fork_stays_one_after_a_merge() {
    let sample = Sample::new();
    sample.write("base/a", "a");
    sample.fork("base", "one");
    sample.fork("one", "two");
    sample.write("two/b", "b");
    assert!(merge(&sample, "two", Strategy::Fail).is_merged);
    assert_eq!(sample.read("one/b"), "b");
    sample.write("two/c", "c");
    assert!(merge(&sample, "two", Strategy::Fail).is_merged);
    let one = sample.forks.at(Path::new("one")).unwrap();
    assert_eq!(one.base, Some(PathBuf::from("base")));
    assert!(merge(&sample, "one", Strategy::Fail).is_merged);
    assert_eq!(sample.names("base"), ["a", "b", "c"]);
    // Into a sibling, which is not the base.
    sample.fork("base", "other");
    sample.write("two/d", "d");
    let into = Some(PathBuf::from("/other"));
    assert!(sample.forks.merge(Path::new("two"), &Merge { into, strategy: Strategy::Fail }).unwrap().is_merged);
    assert_eq!(sample.names("other"), ["a", "b", "c", "d"]);
    assert_eq!(sample.forks.list().unwrap().len(), 3);
    sample.check();
}

#[test]
fn targets_that_cannot_be_exchanged_are_refused() {
    let sample = Sample::new();
    sample.fork("base", "trial");
    sample.fork("/", "whole");
    let into = |fork: &str, into: &str| {
        let into = (!into.is_empty()).then(|| PathBuf::from(into));
        sample.forks.merge(Path::new(fork), &Merge { into, strategy: Strategy::Fail }).unwrap_err()
    };
    assert!(matches!(into("whole", ""), Error::TargetIsRoot(_)));
    assert!(matches!(into("trial", "trial"), Error::Itself(_)));
    sample.volume.create_dir("plain").unwrap();
    assert!(matches!(into("trial", "plain"), Error::NotSubvolume(_)));
    sample.volume.create_subvolume("base/inner").unwrap();
    assert!(matches!(into("trial", ""), Error::TargetHasSubvolumes { .. }));
    sample.volume.delete_subvolume("base/inner").unwrap();
    sample.volume.set_subvolume_read_only("base", true).unwrap();
    assert!(matches!(into("trial", ""), Error::TargetReadOnly(_)));
    sample.volume.set_subvolume_read_only("base", false).unwrap();
    sample.volume.set_default_subvolume("base").unwrap();
    assert!(matches!(into("trial", ""), Error::TargetIsRoot(_)));
    sample.volume.set_default_subvolume("/").unwrap();
    sample.volume.delete_subvolume("base").unwrap();
    assert!(matches!(into("trial", ""), Error::NoBase(_)));
    assert!(matches!(
        sample.forks.fork(Path::new("plain"), Path::new("x"), &ForkOptions::default()),
        Err(Error::NotSubvolume(_))
    ));
    sample.check();
}

#[test]
fn a_limit_needs_quotas_and_holds_for_the_fork_alone() {
    let sample = Sample::new();
    sample.volume.write("base/large", vec![1; 3 << 20]).unwrap();
    let limited = ForkOptions { limit: Some(2 << 20), ..ForkOptions::default() };
    let refused = sample.forks.fork(Path::new("base"), Path::new("trial"), &limited);
    assert!(matches!(refused, Err(Error::NoQuotas)));
    assert_eq!(sample.names("/"), ["base"]);
    sample.volume.enable_quotas(QuotaKind::Shared).unwrap();
    sample.forks.fork(Path::new("base"), Path::new("trial"), &limited).unwrap();
    let full = sample.volume.write("trial/own", vec![2; 8 << 20]).and_then(|()| sample.volume.sync()).unwrap_err();
    assert_eq!(full.errno(), vfs::Errno::EDQUOT);
    sample.volume.write("base/more", vec![2; 8 << 20]).unwrap();
    sample.volume.sync().unwrap();
    sample.check();
}

#[test]
fn attributes_and_contents_of_one_file_are_merged_from_both() {
    let sample = Sample::new();
    sample.write("base/a", "a");
    sample.volume.set_permissions("base/a", 0o4755).unwrap();
    sample.fork("base", "trial");
    sample.write("trial/a", "changed");
    sample.volume.set_permissions("trial/a", 0o4755).unwrap();
    sample.volume.set_owner("base/a", Some(1000), None).unwrap();
    sample.volume.set_permissions("base/a", 0o4755).unwrap();
    sample.volume.set_xattr("base/a", "user.x", "x", XattrMode::Either).unwrap();
    assert!(merge(&sample, "trial", Strategy::Fail).conflicts.is_empty());
    let attr = sample.volume.metadata("base/a").unwrap();
    assert_eq!((sample.read("base/a").as_str(), attr.uid, attr.permissions), ("changed", 1000, 0o4755));
    assert_eq!(sample.volume.get_xattr("base/a", "user.x").unwrap().unwrap(), b"x");
    sample.check();
}
