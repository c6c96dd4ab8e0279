//! Receipts cut short at every command and by crashes, then resumed with the same stream or its rest.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{MakeOptions, SendOptions, Volume};
use btrfs_receive::{Left, Options, Receiver, Report};
use btrfs_stream::{Command, Decoder, Encoder, ResumePoint, Version};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use vfs::file_system::{NodeFlags, XattrMode};
use vfs::{SnapshotMode, Volume as Paths};

const SIZE: u64 = 128 << 20;

fn make(path: &Path) -> Volume {
    Volume::make(path, &MakeOptions { size: Some(SIZE), ..MakeOptions::default() }).unwrap()
}

/// A volume with a snapshot `one`, changes, and a snapshot `two`.
fn source(dir: &Path) -> Volume {
    let volume = make(&dir.join("source.img"));
    volume.create_subvolume("home").unwrap();
    volume.create_dir_all("home/dir/deep").unwrap();
    volume.write("home/dir/file", vec![1; 20_000]).unwrap();
    volume.write("home/other", "short").unwrap();
    volume.symlink("dir/file", "home/link").unwrap();
    volume.snapshot("home", "one", SnapshotMode::ReadOnly).unwrap();
    volume.rename("home/dir/file", "home/dir/deep/moved").unwrap();
    volume.write("home/dir/file", vec![2; 300_000]).unwrap();
    volume.set_xattr("home/other", "user.note", "value", XattrMode::Either).unwrap();
    volume.remove_file("home/link").unwrap();
    volume.set_permissions("home", 0o750).unwrap();
    volume.snapshot("home", "two", SnapshotMode::ReadOnly).unwrap();
    volume.sync().unwrap();
    volume
}

fn send(volume: &Volume, path: &str, parent: Option<&str>, rest_from: Option<ResumePoint>) -> Vec<u8> {
    let mut stream = Vec::new();
    let options = SendOptions { rest_from, ..SendOptions::default() };
    volume.send(path, parent.map(Path::new), &[], &options, &mut stream).unwrap();
    stream
}

fn resumable() -> Options {
    Options { resumable: true, ..Options::default() }
}

fn receive(volume: &Volume, stream: impl Read, options: Options) -> (Result<(), String>, Report) {
    let mut receiver = Receiver::new(volume, Path::new("/"), options).unwrap();
    let result = receiver.receive(stream, &(), &mut ()).map_err(|error| error.to_string());
    (result, receiver.report().clone())
}

/// The bytes of a stream at which its commands begin, and its end.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let mut decoder = Decoder::open(stream).unwrap().unwrap();
    let mut found = vec![decoder.position()];
    while decoder.command().unwrap().is_some() {
        found.push(decoder.position());
    }
    found.into_iter().map(|at| usize::try_from(at).unwrap()).collect()
}

/// Modes, times, attributes and contents below a directory, by path.
fn contents(volume: &Paths, top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut paths = vec![PathBuf::new()];
    while let Some(path) = paths.pop() {
        let full = top.join(&path);
        let node = volume.symlink_metadata(&full).unwrap();
        let mut facts = format!("{:o} {} {:?}", node.mode(), node.size * u64::from(!node.is_dir()), node.mtime);
        for name in volume.list_xattrs(&full).unwrap() {
            let value = volume.get_xattr(&full, name.as_encoded_bytes()).unwrap();
            facts.push_str(&format!(" {name:?}={value:?}"));
        }
        if node.is_file() {
            let bytes = volume.read(&full).unwrap();
            facts.push_str(&format!(" {:?}", bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()));
        }
        if node.is_dir() {
            paths.extend(volume.read_dir(&full).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
        }
        found.insert(path, facts);
    }
    found
}

/// Only `one` looks complete, and the leftovers are listed.
fn assert_unfinished(volume: &Volume, left: Option<&Left>, case: &str) {
    let subvolumes = volume.subvolumes().unwrap();
    for found in &subvolumes {
        let is_one = found.path == "one";
        assert_eq!(found.read_only || found.received_uuid != [0; 16], is_one, "{case}: {found:?}");
    }
    let names: Vec<_> = subvolumes.iter().filter(|found| found.path != "one").map(|found| found.path.clone()).collect();
    let expected: Vec<_> =
        left.iter().map(|left| left.path.strip_prefix("/").unwrap().as_os_str().to_owned()).collect();
    assert_eq!(names, expected, "{case}");
    if let Some(left) = left {
        let note = volume.get_xattr(&left.path, "user.spinney.unfinished").unwrap().unwrap();
        assert!(String::from_utf8(note).unwrap().starts_with(&left.point.to_string()), "{case}");
    }
}

#[test]
fn a_receipt_that_was_cut_at_any_command_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let image = dir.path().join("to.img");
    let volume = make(&image);
    let expected = contents(&source, Path::new("/two"));
    receive(&volume, &send(&source, "one", None, None)[..], Options::default()).0.unwrap();
    let stream = send(&source, "two", Some("one"), None);
    assert_eq!(stream, send(&source, "two", Some("one"), None), "the encoder is a function of two trees");
    let boundaries = boundaries(&stream);
    assert!(boundaries.len() > 20, "{}", boundaries.len());
    for (index, at) in boundaries.iter().enumerate().take(boundaries.len() - 1) {
        for (cut, by_rest) in [(*at, false), (*at, true), (*at + 7, index % 2 == 0)] {
            let case = format!("command {index}, byte {cut}, by its rest: {by_rest}");
            let (result, report) = receive(&volume, &stream[..cut], resumable());
            result.expect_err(&case);
            assert_eq!(report.left.is_some(), index > 0, "{case}");
            assert_unfinished(&volume, report.left.as_ref(), &case);
            let stream = match report.left {
                Some(left) if by_rest => {
                    assert_eq!(left.point.prefix.commands, u64::try_from(index).unwrap(), "{case}");
                    let rest = send(&source, "two", Some("one"), Some(left.point));
                    assert_eq!(rest.len() - (stream.len() - at), boundaries[0] + 57, "{case}");
                    rest
                }
                _ => stream.clone(),
            };
            let (result, report) = receive(&volume, &stream[..], resumable());
            result.unwrap_or_else(|error| panic!("{case}: {error}"));
            assert_eq!(report.subvolumes.len(), 1, "{case}");
            assert_eq!(report.subvolumes[0].path, Path::new("/two"), "{case}");
            assert!(report.subvolumes[0].is_snapshot, "{case}");
            assert_eq!(contents(&volume, Path::new("/two")), expected, "{case}");
            // A repeated receipt finds it present.
            let (result, report) = receive(&volume, &stream[..], resumable());
            if by_rest && index > 0 {
                assert!(result.unwrap_err().contains("no unfinished subvolume"), "{case}");
            } else {
                result.unwrap();
                assert_eq!(report.present, [Path::new("/two")], "{case}");
            }
            volume.delete_subvolume("two").unwrap();
            assert_unfinished(&volume, None, &case);
        }
    }
    volume.close().unwrap();
    testkit::reference::check(&image).unwrap();
}

/// A crash may come after a subvolume is marked and before it has its final name.
#[test]
fn what_was_received_and_not_named_is_named_by_the_next_receipt() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let image = dir.path().join("to.img");
    let volume = make(&image);
    let stream = send(&source, "one", None, None);
    let boundaries = boundaries(&stream);
    let (result, report) = receive(&volume, &stream[..boundaries[boundaries.len() / 2]], resumable());
    result.unwrap_err();
    let kept = report.left.unwrap().path;
    volume.snapshot(&kept, "saved", SnapshotMode::ReadWrite).unwrap();
    receive(&volume, &stream[..], resumable()).0.unwrap();
    volume.rename("one", "one.receiving").unwrap();
    volume.rename("saved", &kept).unwrap();
    let (result, report) = receive(&volume, &stream[..], resumable());
    result.unwrap();
    assert_eq!(report.present, [Path::new("/one")]);
    assert_unfinished(&volume, None, "after the second receipt");
    assert_eq!(contents(&volume, Path::new("/one")), contents(&source, Path::new("/one")));
    volume.close().unwrap();
    testkit::reference::check(&image).unwrap();
}

/// A reader that copies an image from time to time.
struct Copying<'a> {
    rest: &'a [u8],
    image: &'a Path,
    reads: usize,
    copies: Vec<PathBuf>,
}

impl Read for Copying<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reads += 1;
        if self.reads.is_multiple_of(7) {
            let copy = self.image.with_extension(format!("{}", self.reads));
            std::process::Command::new("cp").arg("--sparse=always").arg(self.image).arg(&copy).status()?;
            self.copies.push(copy);
        }
        self.rest.read(buffer)
    }
}

#[test]
fn a_receipt_goes_on_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let image = dir.path().join("to.img");
    let volume = make(&image);
    let expected = contents(&source, Path::new("/two"));
    receive(&volume, &send(&source, "one", None, None)[..], Options::default()).0.unwrap();
    let stream = send(&source, "two", Some("one"), None);
    let mut input = Copying { rest: &stream, image: &image, reads: 0, copies: Vec::new() };
    let often = Options { keep_interval_bytes: 300, ..resumable() };
    receive(&volume, &mut input, often).0.unwrap();
    assert_eq!(contents(&volume, Path::new("/two")), expected);
    drop(volume);
    assert!(input.copies.len() > 5, "{}", input.copies.len());
    let mut skipped = 0;
    for copy in &input.copies {
        let volume = Volume::open(copy).unwrap();
        let case = copy.display().to_string();
        // Only a complete subvolume looks complete: the last copies are from after its end.
        for found in volume.subvolumes().unwrap() {
            if found.path != "one" && (found.read_only || found.received_uuid != [0; 16]) {
                assert_eq!(contents(&volume, &Path::new("/").join(&found.path)), expected, "{case}: {found:?}");
            }
        }
        let (result, report) = receive(&volume, &stream[..], resumable());
        result.unwrap_or_else(|error| panic!("{case}: {error}"));
        let all = u64::try_from(boundaries(&stream).len() - 1).unwrap();
        skipped += usize::from(report.commands < all);
        assert_eq!(contents(&volume, Path::new("/two")), expected, "{case}");
        let mut names: Vec<_> = volume.subvolumes().unwrap().into_iter().map(|found| found.path).collect();
        names.sort();
        assert_eq!(names, ["one", "two"], "{case}");
        volume.close().unwrap();
        testkit::reference::check(copy).unwrap();
        std::fs::remove_file(copy).unwrap();
    }
    assert!(skipped > 3, "{skipped} of {} went on", input.copies.len());
}

#[test]
fn what_does_not_fit_together_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = source(dir.path());
    let volume = make(&dir.path().join("to.img"));
    let one = send(&source, "one", None, None);
    receive(&volume, &one[..], Options::default()).0.unwrap();
    let stream = send(&source, "two", Some("one"), None);
    let whole = send(&source, "two", None, None);
    let middle = boundaries(&stream)[8];
    let left = receive(&volume, &stream[..middle], resumable()).1.left.unwrap();
    let before = contents(&volume, &left.path);
    let refused = |stream: &[u8], options: Options, expected: &str| {
        let (result, _) = receive(&volume, stream, options);
        let error = result.unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
        assert_unfinished(&volume, Some(&left), expected);
        assert_eq!(contents(&volume, &left.path), before, "{expected}");
    };
    // The same subvolume in another stream.
    refused(&whole, resumable(), "not the stream that was cut short");
    let rest = send(&source, "two", Some("one"), Some(left.point));
    refused(&rest, Options::default(), "--resume");
    // Points of other streams.
    let mut other = left.point;
    other.prefix.digest ^= 1;
    let mut forged = rest.clone();
    forged[13 + 36] ^= 1;
    refused(&forged, resumable(), &format!("no unfinished subvolume with the token {other}"));
    let send_refused = |point, expected: &str| {
        let options = SendOptions { rest_from: Some(point), ..SendOptions::default() };
        let mut output = Vec::new();
        let error = source.send("two", Some(Path::new("one")), &[], &options, &mut output).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(output.is_empty());
    };
    send_refused(other, "not the stream that was cut short");
    let mut beyond = left.point;
    beyond.prefix.commands = 1 << 40;
    send_refused(beyond, "not the stream that was cut short");
    send_refused(ResumePoint { uuid: [1; 16], ..left.point }, "the token is of subvolume 01010101");
    send_refused(ResumePoint { version: Version::V2, ..left.point }, "version 2");
    // The name is taken.
    volume.create_dir("two").unwrap();
    refused(&stream, resumable(), "already exists");
    volume.remove_dir("two").unwrap();
    // The snapshot was changed.
    volume.write(left.path.join("mine"), "x").unwrap();
    volume.sync().unwrap();
    let (result, _) = receive(&volume, &stream[..], resumable());
    let error = result.unwrap_err();
    assert!(error.contains("was changed since its receipt was cut short"), "{error}");
    assert_eq!(volume.read(left.path.join("mine")).unwrap(), b"x");
    volume.delete_subvolume(&left.path).unwrap();
    receive(&volume, &stream[..], resumable()).0.unwrap();
    assert_eq!(contents(&volume, Path::new("/two")), contents(&source, Path::new("/two")));
}

#[test]
fn flags_that_are_set_last_are_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let volume = make(&dir.path().join("to.img"));
    let mut encoder = Encoder::new(Vec::new(), Version::V2).unwrap();
    for command in [
        Command::Subvol { path: b"sub", uuid: [7; 16], ctransid: 5 },
        Command::Mkfile { path: b"a", ino: None },
        // Immutable.
        Command::Fileattr { path: b"a", flags: 1 << 6 },
        Command::Mkfile { path: b"b", ino: None },
        Command::Write { path: b"a", offset: 0, data: b"later" },
        Command::Mkfile { path: b"c", ino: None },
        Command::End,
    ] {
        encoder.command(&command).unwrap();
    }
    let stream = encoder.into_inner();
    let mut at = boundaries(&stream);
    at.pop();
    for cut in &at[1..] {
        receive(&volume, &stream[..*cut], resumable()).0.unwrap_err();
        receive(&volume, &stream[..], resumable()).0.unwrap();
        assert_eq!(volume.read("sub/a").unwrap(), b"later");
        let flags = volume.metadata("sub/a").unwrap().flags;
        assert!(flags.contains(NodeFlags::IMMUTABLE), "{flags:?}");
        volume.delete_subvolume("sub").unwrap();
    }
}

/// `send -e` leaves out the end command between two subvolumes.
#[test]
fn subvolumes_without_an_end_between_them_are_all_received() {
    let dir = tempfile::tempdir().unwrap();
    let volume = source(dir.path());
    let (one, two) = (send(&volume, "one", None, None), send(&volume, "two", Some("one"), None));
    let (first, second) = (boundaries(&one), boundaries(&two));
    let joint = first[first.len() - 2];
    let stream = [&one[..joint], &two[second[0]..]].concat();
    for cut in [0, 1, 4, second.len() - 2] {
        let path = dir.path().join(format!("target-{cut}.img"));
        let target = make(&path);
        let end = joint + second[cut] - second[0];
        receive(&target, &stream[..end], resumable()).0.unwrap_err();
        let (result, report) = receive(&target, &stream[..], resumable());
        result.unwrap();
        assert_eq!(report.subvolumes.len() + report.present.len(), 2, "{report:?}");
        let whole = target.subvolumes().unwrap();
        assert!(whole.iter().all(|found| found.read_only && found.received_uuid != [0; 16]), "{whole:?}");
        let source = contents(volume.by_paths(), Path::new("two"));
        assert_eq!(contents(target.by_paths(), Path::new("two")), source, "cut {cut}");
        target.close().unwrap();
    }
}
