//! A received subvolume that was changed keeps its received UUID: a stream that builds on it gave a result that was
//! neither the sender's state nor an error, even where an unchanged copy lay beside it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{MakeOptions, SendError, SendOptions, Volume};
use btrfs_receive::{Cause, Error, Notices, Options, Receiver};
use std::path::Path;
use vfs::SnapshotMode::{ReadOnly, ReadWrite};

struct Pair {
    dir: tempfile::TempDir,
    source: Volume,
    dest: Volume,
}

/// State of a received subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// Made writable, but unchanged.
    Opened,
    /// Made writable, and changed.
    Changed,
    /// Changed, then read-only again.
    ChangedAndClosed,
}

fn made(path: &Path) -> Volume {
    let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
    Volume::make(path, &make).unwrap()
}

/// A volume with the states `one` and `two` of a subvolume, and another that received `one` once for each fate.
fn pair(fates: &[Fate]) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let (source, dest) = (made(&dir.path().join("a")), made(&dir.path().join("b")));
    source.create_subvolume("v").unwrap();
    source.write("v/f", [b'f'; 9000]).unwrap();
    source.snapshot("v", "one", ReadOnly).unwrap();
    source.write("v/g", b"new").unwrap();
    source.snapshot("v", "two", ReadOnly).unwrap();
    let pair = Pair { dir, source, dest };
    for (number, fate) in fates.iter().enumerate() {
        let place = format!("{number}");
        pair.dest.create_dir(&place).unwrap();
        pair.receive(&pair.stream("one", None, &[]), &place, Options::default(), &mut ()).unwrap();
        let path = format!("{number}/one");
        if *fate != Fate::Kept {
            pair.dest.set_subvolume_read_only(&path, false).unwrap();
        }
        if matches!(fate, Fate::Changed | Fate::ChangedAndClosed) {
            pair.dest.write(format!("{path}/f"), b"changed").unwrap();
        }
        if *fate == Fate::ChangedAndClosed {
            pair.dest.set_subvolume_read_only(&path, true).unwrap();
        }
    }
    pair
}

impl Pair {
    fn stream(&self, path: &str, parent: Option<&str>, clones: &[&str]) -> Vec<u8> {
        sent(&self.source, path, parent, clones, false).unwrap()
    }

    fn receive(
        &self,
        stream: &[u8],
        place: &str,
        options: Options,
        notices: &mut dyn Notices,
    ) -> btrfs_receive::Result<()> {
        Receiver::new(&self.dest, Path::new(place), options).unwrap().receive(stream, &(), notices)
    }
}

fn sent(
    volume: &Volume,
    path: &str,
    parent: Option<&str>,
    clones: &[&str],
    takes_changed: bool,
) -> Result<Vec<u8>, SendError> {
    let clones: Vec<&Path> = clones.iter().map(Path::new).collect();
    let options = SendOptions { takes_changed, ..SendOptions::default() };
    let mut stream = Vec::new();
    volume.send(path, parent.map(Path::new), &clones, &options, &mut stream)?;
    Ok(stream)
}

#[derive(Default)]
struct Warnings(Vec<String>);

impl Notices for Warnings {
    fn warned(&mut self, cause: &Cause) {
        self.0.push(cause.to_string());
    }
}

#[test]
fn an_unchanged_one_is_preferred_wherever_it_lies() {
    use Fate::{Changed, ChangedAndClosed, Kept, Opened};
    for fates in
        [[Changed, Kept], [Kept, Changed], [ChangedAndClosed, Kept], [ChangedAndClosed, Opened], [Opened, Changed]]
    {
        let pair = pair(&fates);
        let stream = pair.stream("two", Some("one"), &[]);
        pair.receive(&stream, "/", Options::default(), &mut ()).unwrap();
        assert_eq!(pair.dest.read("two/f").unwrap(), [b'f'; 9000], "{fates:?}");
        assert_eq!(pair.dest.read("two/g").unwrap(), b"new", "{fates:?}");
    }
}

#[test]
fn a_changed_one_alone_is_refused_by_name_unless_the_caller_takes_it() {
    for fate in [Fate::Changed, Fate::ChangedAndClosed] {
        let pair = pair(&[fate]);
        for (stream, role) in [
            (pair.stream("two", Some("one"), &[]), "parent"),
            (pair.stream("two", None, &["one"]), "source of a clone"),
        ] {
            let error = pair.receive(&stream, "/", Options { errors_max: 1, ..Options::default() }, &mut ());
            let Err(Error::Command { cause: cause @ Cause::ChangedOrigin { .. }, .. }) = error else {
                panic!("{fate:?} {role}: {error:?}")
            };
            let text = cause.to_string();
            assert!(text.contains("/0/one") && text.contains(role) && text.contains("--force"), "{text}");
            if pair.dest.exists("two").unwrap() {
                pair.dest.delete_subvolume("two").unwrap();
            }
            let mut warnings = Warnings::default();
            let options = Options { takes_changed: true, ..Options::default() };
            let done = pair.receive(&stream, "/", options, &mut warnings);
            assert!(done.is_ok() || role != "parent", "{done:?}");
            assert!(warnings.0.len() == 1 && warnings.0[0].contains("/0/one"), "{:?}", warnings.0);
            pair.dest.delete_subvolume("two").unwrap();
        }
    }
}

#[test]
fn one_that_was_moved_or_shares_by_deduplication_counts_as_unchanged() {
    let pair = pair(&[Fate::Kept]);
    pair.dest.write("copy", [b'f'; 9000]).unwrap();
    let copy = vfs::File::open(pair.dest.by_paths(), "copy").unwrap();
    let file = vfs::File::open(pair.dest.by_paths(), "0/one/f").unwrap();
    pair.dest.sync().unwrap();
    assert!(file.dedupe(&copy, 0, 0, 8192).unwrap(), "a read-only subvolume shares");
    drop((copy, file));
    pair.dest.rename("0", "elsewhere").unwrap();
    pair.dest.sync().unwrap();
    pair.receive(&pair.stream("two", Some("one"), &[]), "/", Options::default(), &mut ()).unwrap();
    assert_eq!(pair.dest.read("two/f").unwrap(), [b'f'; 9000]);
}

#[test]
fn what_was_sent_from_here_and_changed_is_no_parent_either() {
    let pair = pair(&[Fate::Kept]);
    // The receiver changes the state and sends it back.
    pair.dest.snapshot("0/one", "work", ReadWrite).unwrap();
    pair.dest.write("work/h", b"back").unwrap();
    pair.dest.snapshot("work", "three", ReadOnly).unwrap();
    let stream = sent(&pair.dest, "three", Some("0/one"), &[], false).unwrap();
    let back = |volume: &Volume| {
        Receiver::new(volume, Path::new("/"), Options::default()).unwrap().receive(&stream[..], &(), &mut ())
    };
    back(&pair.source).unwrap();
    assert_eq!(pair.source.read("three/h").unwrap(), b"back");
    pair.source.delete_subvolume("three").unwrap();
    pair.source.set_subvolume_read_only("one", false).unwrap();
    pair.source.write("one/f", b"changed").unwrap();
    let error = back(&pair.source).unwrap_err().to_string();
    assert!(error.contains("/one, which the stream needs as its parent, was changed after it was sent"), "{error}");
    drop(pair.dir);
}

#[test]
fn a_changed_one_is_not_sent_under_its_received_uuid() {
    let pair = pair(&[Fate::ChangedAndClosed]);
    pair.dest.snapshot("0/one", "work", ReadWrite).unwrap();
    pair.dest.snapshot("work", "next", ReadOnly).unwrap();
    for (path, parent, clones) in [("0/one", None, &[][..]), ("next", Some("0/one"), &[]), ("next", None, &["0/one"])] {
        let error = sent(&pair.dest, path, parent, clones, false);
        assert!(matches!(&error, Err(SendError::Changed { path, .. }) if path == "0/one"), "{path} {error:?}");
        sent(&pair.dest, path, parent, clones, true).unwrap();
    }
}

#[test]
fn a_resumable_receipt_does_not_take_a_changed_one_for_what_it_would_make() {
    let pair = pair(&[Fate::ChangedAndClosed]);
    let options = Options { resumable: true, ..Options::default() };
    let error = pair.receive(&pair.stream("one", None, &[]), "0", options, &mut ()).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
}
