//! Tests sending a received subvolume, with changes, back to its origin. There its parent has no received UUID, and
//! `btrfs receive` before 6.10 looks up clone sources by received UUID only. So the stream clones from the new
//! subvolume itself, which every receiver finds.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{MakeOptions, SendOptions, Volume};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{Command, Decoder, Uuid};
use std::path::Path;
use vfs::{FileOptions, SnapshotMode};

const LEN: u64 = 128 << 10;

fn contents(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u8::try_from(state >> 56).unwrap()
    };
    (0..len).map(|_| next()).collect()
}

fn volume(path: &Path) -> Volume {
    Volume::make(path, &MakeOptions { size: Some(256 << 20), ..MakeOptions::default() }).unwrap()
}

fn sent(volume: &Volume, name: &str, parent: Option<&str>) -> Vec<u8> {
    let mut stream = Vec::new();
    volume.send(name, parent.map(Path::new), &[], &SendOptions::default(), &mut stream).unwrap();
    stream
}

fn receive(volume: &Volume, stream: &[u8]) {
    let mut receiver = Receiver::new(volume, Path::new("/"), Options::default()).unwrap();
    receiver.receive(stream, &(), &mut ()).unwrap();
}

/// Shares a range of a file with another, or with another part of itself.
fn share(volume: &Volume, (from, from_offset): (&str, u64), (to, offset): (&str, u64), len: u64) {
    let open = |path: &str| FileOptions::new().read(true).write(true).create(true).open(volume, path).unwrap();
    open(to).reflink(&open(from), from_offset, offset, len).unwrap();
}

/// The UUID of a stream's subvolume, and its clone commands: UUID and path of the source, and the file that is written.
fn clones(stream: &[u8]) -> (Uuid, Vec<(Uuid, String, String)>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut decoder = Decoder::open(stream).unwrap().unwrap();
    let (mut own, mut found) = (None, Vec::new());
    while let Some(command) = decoder.command().unwrap() {
        match command {
            Command::Snapshot { uuid, .. } | Command::Subvol { uuid, .. } => own = Some(uuid),
            Command::Clone(range) => found.push((range.from_uuid, text(range.from_path), text(range.path))),
            _ => {}
        }
    }
    (own.unwrap(), found)
}

/// Changes the received subvolume with `change` and sends it back. Returns the clones, each with whether its source is
/// the new subvolume, and checks that the origin has every file.
fn gone_back(change: impl Fn(&Volume)) -> Vec<(bool, String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a.img", "b.img"].map(|name| volume(&dir.path().join(name)));
    a.create_subvolume("/v").unwrap();
    for (number, name) in (1..).zip(["first", "second", "third"]) {
        a.write(format!("/v/{name}"), contents(number, LEN)).unwrap();
    }
    a.snapshot("/v", "/s", SnapshotMode::ReadOnly).unwrap();
    receive(&b, &sent(&a, "/s", None));
    b.snapshot("/s", "/w", SnapshotMode::ReadWrite).unwrap();
    change(&b);
    b.snapshot("/w", "/back", SnapshotMode::ReadOnly).unwrap();
    let stream = sent(&b, "/back", Some("/s"));
    receive(&a, &stream);
    let names = |volume: &Volume| {
        let entries = volume.read_dir("/back").unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&a), names(&b));
    for name in names(&b) {
        let path = Path::new("/back").join(name);
        assert!(a.read(&path).unwrap() == b.read(&path).unwrap(), "{}", path.display());
    }
    let (own, clones) = clones(&stream);
    clones.into_iter().map(|(uuid, from, to)| (uuid == own, from, to)).collect()
}

fn own(from: &str, to: &str) -> (bool, String, String) {
    (true, from.to_owned(), to.to_owned())
}

#[test]
fn what_the_new_subvolume_has_is_cloned_from_it() {
    let found = gone_back(|volume| share(volume, ("/w/first", 0), ("/w/copy", 0), LEN));
    assert_eq!(found, [own("first", "copy")]);
}

#[test]
fn so_is_what_gets_its_turn_later() {
    let found = gone_back(|volume| {
        share(volume, ("/w/third", 0), ("/w/first", 0), LEN);
        volume.rename("/w/third", "/w/moved").unwrap();
    });
    assert!(found.len() == 1 && found[0].0 && found[0].2 == "first", "{found:?}");
    // A later range of the same file. The file is written from start to end.
    let found = gone_back(|volume| share(volume, ("/w/first", LEN / 2), ("/w/first", 0), LEN / 2));
    assert_eq!(found, [own("first", "first")]);
}

#[test]
fn what_the_parent_alone_has_is_written() {
    let found = gone_back(|volume| {
        share(volume, ("/w/first", 0), ("/w/copy", 0), LEN);
        volume.remove_file("/w/first").unwrap();
    });
    assert_eq!(found, []);
    // A range that is overwritten before it is needed as a source.
    let found = gone_back(|volume| {
        share(volume, ("/w/first", 0), ("/w/second", 0), LEN);
        volume.write("/w/first", contents(9, LEN)).unwrap();
    });
    assert_eq!(found, []);
}

#[test]
fn a_parent_that_was_not_received_is_cloned_from() {
    let dir = tempfile::tempdir().unwrap();
    let a = volume(&dir.path().join("a.img"));
    a.create_subvolume("/v").unwrap();
    a.write("/v/first", contents(1, LEN)).unwrap();
    a.snapshot("/v", "/s", SnapshotMode::ReadOnly).unwrap();
    share(&a, ("/v/first", 0), ("/v/copy", 0), LEN);
    a.remove_file("/v/first").unwrap();
    a.snapshot("/v", "/t", SnapshotMode::ReadOnly).unwrap();
    let (own, found) = clones(&sent(&a, "/t", Some("/s")));
    assert!(found.len() == 1 && found[0].0 != own, "{found:?}");
}
