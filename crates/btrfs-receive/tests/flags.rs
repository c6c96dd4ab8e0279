//! File flags that forbid changes: they are set at the end, and do not block earlier commands.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{InodeFlags, MakeOptions, Volume};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{Command, Encoder, Time, Version};
use std::path::Path;

fn receive(volume: &Volume, first: Command<'_>, commands: &[Command<'_>]) {
    let mut encoder = Encoder::new(Vec::new(), Version::V2).unwrap();
    for command in [first].iter().chain(commands).chain([&Command::End]) {
        encoder.command(command).unwrap();
    }
    let stream = encoder.into_inner();
    let mut receiver = Receiver::new(volume, Path::new("/"), Options::default()).unwrap();
    receiver.receive(&stream[..], &(), &mut ()).unwrap();
}

fn utimes(path: &[u8]) -> Command<'_> {
    let time = Time { seconds: 1_000_000, nanoseconds: 7 };
    Command::Utimes { path, atime: time, mtime: time, ctime: time, otime: Some(time) }
}

#[test]
fn what_cannot_be_changed_is_made_so_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let volume = Volume::make(&image, &MakeOptions { size: Some(256 << 20), ..MakeOptions::default() }).unwrap();
    let flags = (InodeFlags::IMMUTABLE | InodeFlags::NOATIME).bits();
    let commands = [
        Command::Mkdir { path: b"d", ino: None },
        Command::Fileattr { path: b"d", flags: InodeFlags::IMMUTABLE.bits() },
        Command::Mkfile { path: b"d/f", ino: None },
        Command::Fileattr { path: b"d/f", flags },
        Command::Write { path: b"d/f", offset: 0, data: b"before" },
        Command::Rename { path: b"d/f", to: b"d/g" },
        utimes(b"d/g"),
        Command::Mkfile { path: b"log", ino: None },
        Command::Fileattr { path: b"log", flags: InodeFlags::APPEND.bits() },
        Command::Mkfile { path: b"gone", ino: None },
        Command::Fileattr { path: b"gone", flags: InodeFlags::APPEND.bits() },
        Command::Unlink { path: b"gone" },
    ];
    receive(&volume, Command::Subvol { path: b"one", uuid: [1; 16], ctransid: 1 }, &commands);
    let names = |path: &str| volume.flag_names(path).unwrap();
    assert_eq!((names("one/d/g"), names("one/d")), ("immutable, noatime".to_owned(), "immutable".to_owned()));
    assert_eq!(names("one/log"), "append");
    let found = volume.metadata("one/d/g").unwrap();
    assert_eq!([found.mtime.sec, found.ctime.sec, found.btime.sec], [1_000_000; 3]);

    // The difference changes immutable files, and does not mention the flags of some.
    let first =
        Command::Snapshot { path: b"two", uuid: [2; 16], ctransid: 2, parent_uuid: [1; 16], parent_ctransid: 1 };
    let commands = [
        Command::Write { path: b"d/g", offset: 0, data: b"after!" },
        Command::Rename { path: b"d/g", to: b"d/h" },
        Command::Truncate { path: b"log", size: 0 },
        Command::Link { path: b"d/log", existing: b"log" },
        Command::Fileattr { path: b"log", flags: 0 },
    ];
    receive(&volume, first, &commands);
    assert_eq!(volume.read("two/d/h").unwrap(), b"after!");
    assert_eq!(volume.read("one/d/g").unwrap(), b"before");
    assert_eq!((names("two/d/h"), names("two/d")), ("immutable, noatime".to_owned(), "immutable".to_owned()));
    assert_eq!(names("two/log"), "none");
    assert_eq!(volume.metadata("two/log").unwrap().nlink, 2);
    volume.close().unwrap();
    println!("{:?}", testkit::reference::check(&image).unwrap());
}
