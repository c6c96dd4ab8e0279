//! Hostile streams. Each fails with a matching error, changes nothing outside its subvolume, and leaves no subvolume
//! that looks complete.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{MakeOptions, Volume};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{CloneRange, Command, Compression, EncodedWrite, Encoder, Special, Time, Version};
use codec::checksum::crc32c_raw;
use std::path::Path;

const UUID: [u8; 16] = [7; 16];
const PARENT: [u8; 16] = [8; 16];

/// A stream under construction.
struct Stream {
    version: Version,
    bytes: Vec<u8>,
}

impl Stream {
    /// A stream with a header.
    fn new(version: Version) -> Self {
        Self { version, bytes: Encoder::new(Vec::new(), version).unwrap().into_inner() }
    }

    /// A stream that has begun a subvolume with a file, a directory with a file, and a symbolic link that leads out.
    fn begun(version: Version) -> Self {
        Self::new(version)
            .then(Command::Subvol { path: b"sub", uuid: UUID, ctransid: 5 })
            .then(Command::Mkfile { path: b"file", ino: None })
            .then(Command::Write { path: b"file", offset: 0, data: &[3; 9000] })
            .then(Command::Mkdir { path: b"dir", ino: None })
            .then(Command::Mkfile { path: b"dir/file", ino: None })
            .then(Command::Symlink { path: b"out", ino: None, target: b".." })
            .then(Command::Symlink { path: b"absolute", ino: None, target: b"/" })
            .then(Command::Symlink { path: b"leads-to-dir", ino: None, target: b"dir" })
    }

    fn then(mut self, command: Command<'_>) -> Self {
        let header = Encoder::new(Vec::new(), self.version).unwrap().into_inner().len();
        let mut encoder = Encoder::new(Vec::new(), self.version).unwrap();
        encoder.command(&command).unwrap();
        self.bytes.extend_from_slice(&encoder.into_inner()[header..]);
        self
    }

    /// A command that the encoder would refuse, with a correct checksum.
    fn raw(mut self, number: u16, attributes: &[(u16, &[u8])]) -> Self {
        let mut body = Vec::new();
        for (number, value) in attributes {
            body.extend_from_slice(&number.to_le_bytes());
            body.extend_from_slice(&u16::try_from(value.len()).unwrap().to_le_bytes());
            body.extend_from_slice(value);
        }
        self.bytes.extend_from_slice(&framed(number, &body));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn end(self) -> Vec<u8> {
        self.then(Command::End).bytes
    }
}

fn framed(number: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap().to_le_bytes();
    let zeroed = [&len[..], &number.to_le_bytes(), &[0; 4], body].concat();
    let sum = crc32c_raw(0, &zeroed).to_le_bytes();
    [&len[..], &number.to_le_bytes(), &sum, body].concat()
}

/// A stream that creates the subvolume and applies one command to it.
fn doing(command: Command<'_>) -> Vec<u8> {
    Stream::begun(Version::V2).then(command).end()
}

fn making(path: &[u8]) -> Vec<u8> {
    doing(Command::Mkfile { path, ino: None })
}

fn encoded(write: EncodedWrite<'_>) -> Vec<u8> {
    doing(Command::EncodedWrite(write))
}

fn cloning(change: impl FnOnce(&mut CloneRange<'static>)) -> Vec<u8> {
    let mut range = CloneRange {
        path: b"file",
        offset: 0,
        len: 4096,
        from_uuid: UUID,
        from_ctransid: 5,
        from_path: b"file",
        from_offset: 4096,
    };
    change(&mut range);
    doing(Command::Clone(range))
}

/// The rest of a stream from its second command on.
fn rest_of(stream: &[u8]) -> Vec<u8> {
    let mut decoder = btrfs_stream::Decoder::open(stream).unwrap().unwrap();
    assert!(decoder.command().unwrap().is_some());
    let prefix = decoder.taken();
    let point = btrfs_stream::ResumePoint { uuid: UUID, ctransid: 5, version: Version::V1, prefix };
    let mut encoder = Encoder::rest(Vec::new(), point);
    let mut decoder = btrfs_stream::Decoder::open(stream).unwrap().unwrap();
    while let Some(command) = decoder.command().unwrap() {
        encoder.command(&command).unwrap();
    }
    encoder.into_inner()
}

type Case = (&'static str, Vec<u8>, &'static str);

/// Streams with invalid framing.
fn framing() -> Vec<Case> {
    let stream = || Stream::begun(Version::V1);
    let header = Stream::new(Version::V1).bytes;
    let mut flipped = stream().end();
    let last = flipped.len() - 20;
    flipped[last] ^= 1;
    let version = |version: u32| [&header[..13], &version.to_le_bytes()].concat();
    let path: &[u8] = b"new";
    vec![
        ("nothing at all", Vec::new(), "empty"),
        ("another magic", b"btrfs-strEam\0\x01\0\0\0".to_vec(), "btrfs-stream"),
        ("text", b"Send this to somebody else, please.".to_vec(), "btrfs-stream"),
        ("half a header", header[..9].to_vec(), "cut short"),
        ("version 0", version(0), "version 0"),
        ("version 3", version(3), "version 3"),
        ("version 2^32 - 1", version(u32::MAX), "4294967295"),
        ("a header and no more", header.clone(), "cut short"),
        ("no end", stream().bytes, "without its end command"),
        ("half a command header", stream().bytes(&[1, 2, 3]).bytes, "cut short"),
        ("a flipped bit", flipped, "checksum"),
        ("a length of 4 GiB", stream().bytes(&[0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0]).bytes, "expected at most"),
        ("a length beyond the end", stream().bytes(&[0xff, 0x0f, 0, 0, 3, 0, 0, 0, 0, 0]).bytes, "cut short"),
        ("command 0", stream().raw(0, &[(15, path)]).end(), "unknown command 0"),
        ("command 99", stream().raw(99, &[(15, path)]).end(), "unknown command 99"),
        ("a command of version 3", stream().raw(26, &[(15, path)]).end(), "enable_verity"),
        ("a command of version 2 in version 1", stream().raw(24, &[(15, path)]).end(), "version 1"),
        ("garbage behind the end", [stream().end(), b"garbage".to_vec()].concat(), "btrfs-stream"),
        ("no path", stream().raw(3, &[]).end(), "has no path"),
        ("two paths", stream().raw(3, &[(15, path), (15, path)]).end(), "more than one path"),
        ("an unknown attribute", stream().raw(3, &[(15, path), (77, path)]).end(), "unknown attribute 77"),
        ("attribute 0", stream().raw(3, &[(0, path)]).end(), "unknown attribute 0"),
        ("a short number", stream().raw(17, &[(15, b"file"), (4, &[1, 2, 3])]).end(), "3 bytes long"),
        ("a long number", stream().raw(17, &[(15, b"file"), (4, &[1; 9])]).end(), "9 bytes long"),
        ("a short UUID", stream().raw(1, &[(15, path), (1, &[1; 15]), (2, &[0; 8])]).end(), "15 bytes long"),
        ("half an attribute", stream().bytes(&framed(3, &[15, 0, 9, 0, b'a'])).end(), "does not end inside"),
        ("a nanosecond too many", stream().raw(20, &times(1_000_000_000)).end(), "cannot be 1000000000"),
    ]
}

/// The attributes of a utimes command.
fn times(nanoseconds: u32) -> [(u16, &'static [u8]); 4] {
    let bytes = [&1_u64.to_le_bytes()[..], &nanoseconds.to_le_bytes()].concat();
    let bytes: &'static [u8] = Box::leak(bytes.into_boxed_slice());
    [(15, b"file"), (11, bytes), (10, bytes), (9, bytes)]
}

/// Streams with forbidden paths.
fn paths() -> Vec<Case> {
    let rename = |path, to| doing(Command::Rename { path, to });
    let (long, deep): (&'static [u8], Vec<u8>) = (&[b'n'; 256], b"a/".repeat(2000));
    let stream = || Stream::begun(Version::V1);
    vec![
        ("up", making(b"../escaped"), "`..`"),
        ("down and up", making(b"dir/../../escaped"), "`..`"),
        ("itself", making(b"./escaped"), "`.`"),
        ("absolute", making(b"/escaped"), "absolute"),
        ("an empty path", making(b""), "empty name"),
        ("an empty name", making(b"dir//escaped"), "empty name"),
        ("a slash at the end", making(b"escaped/"), "empty name"),
        ("a NUL", stream().raw(3, &[(15, b"a\0b")]).end(), "NUL"),
        ("a name too long", making(long), "255"),
        ("a path too long", stream().raw(3, &[(15, &[b'a'; 4096])]).end(), "4096 bytes long"),
        ("deeper than there are directories", making(&deep[..3999]), "no such file"),
        ("through a link that leads up", making(b"out/escaped"), "not a directory"),
        ("through a link to the top", making(b"absolute/escaped"), "not a directory"),
        ("through a link within", making(b"leads-to-dir/escaped"), "not a directory"),
        ("through a file", making(b"file/escaped"), "not a directory"),
        ("over what is there", making(b"file"), "already exists"),
        ("a rename that leaves", rename(b"file", b"../escaped"), "`..`"),
        ("a rename through a link", rename(b"file", b"out/escaped"), "not a directory"),
        ("a rename of what is outside", rename(b"../outside", b"mine"), "`..`"),
        ("a rename into itself", rename(b"dir", b"dir/below"), "nvalid"),
        ("a rename of the root", rename(b"", b"dir/root"), "empty name"),
        ("a rename over a full directory", rename(b"leads-to-dir", b"dir"), "directory"),
        ("a link to what is outside", doing(Command::Link { path: b"mine", existing: b"out/outside" }), "directory"),
        ("a link to a directory", doing(Command::Link { path: b"mine", existing: b"dir" }), "ermitted"),
        ("an unlink outside", doing(Command::Unlink { path: b"out/outside" }), "not a directory"),
        ("an unlink of a directory", doing(Command::Unlink { path: b"dir" }), "directory"),
        ("a full directory removed", doing(Command::Rmdir { path: b"dir" }), "not empty"),
        ("a file removed as a directory", doing(Command::Rmdir { path: b"file" }), "directory"),
        ("a write through a link", doing(Command::Write { path: b"out", offset: 0, data: b"x" }), "write out"),
        ("a write outside", doing(Command::Write { path: b"out/outside", offset: 0, data: b"x" }), "not a directory"),
        ("a mode of a link", doing(Command::Chmod { path: b"out", mode: 0o777 }), "chmod out"),
        ("a truncated directory", doing(Command::Truncate { path: b"dir", size: 0 }), "directory"),
    ]
}

/// Streams with numbers beyond all limits.
fn limits() -> Vec<Case> {
    let file: &[u8] = b"file";
    let write = |offset| doing(Command::Write { path: b"file", offset, data: &[1; 4096] });
    let special = |mode, rdev| Special { path: b"node", ino: None, mode, rdev };
    let plain = EncodedWrite {
        path: file,
        offset: 0,
        unencoded_file_len: 4096,
        unencoded_len: 4096,
        unencoded_offset: 0,
        compression: Compression::Zlib,
        data: &[0x55; 100],
    };
    let none = Compression::None;
    let huge: &'static [u8] = &[1; 60_000];
    vec![
        ("a write at 2^63 - 1", write((1 << 63) - 1), "too large"),
        ("a write at 2^63", write(1 << 63), "too large"),
        ("a write at 2^64 - 1", write(u64::MAX), "too large"),
        ("a length of 2^63", doing(Command::Truncate { path: file, size: 1 << 63 }), "too large"),
        ("a length of 2^64 - 1", doing(Command::Truncate { path: file, size: u64::MAX }), "too large"),
        ("a user of 2^32 - 1", doing(Command::Chown { path: file, uid: 0xffff_ffff, gid: 0 }), "4294967295"),
        ("a group of 2^40", doing(Command::Chown { path: file, uid: 0, gid: 1 << 40 }), "1099511627776"),
        ("a device of 64 bits", doing(Command::Mknod(special(0o20_666, 1 << 40))), "device"),
        ("a device node that is a file", doing(Command::Mknod(special(0o100_666, 0))), "type of a device"),
        ("a device node without a type", doing(Command::Mknod(special(0o666, 0))), "type of a device"),
        ("an empty link", doing(Command::Symlink { path: b"l", ino: None, target: b"" }), "symlink l"),
        ("an attribute too large", doing(Command::SetXattr { path: file, name: b"user.x", value: huge }), "set_xattr"),
        ("a nameless attribute", doing(Command::SetXattr { path: file, name: b"", value: b"" }), "set_xattr"),
        ("an attribute of no kind", doing(Command::SetXattr { path: file, name: b"what", value: b"" }), "set_xattr"),
        (
            "the note of the receiver",
            doing(Command::SetXattr { path: b"", name: b"user.spinney.unfinished", value: b"r1-1" }),
            "belongs to the receiver",
        ),
        (
            "the note of the receiver, removed",
            doing(Command::RemoveXattr { path: b"", name: b"user.spinney.unfinished" }),
            "belongs to the receiver",
        ),
        (
            "an attribute of the system",
            doing(Command::SetXattr { path: file, name: b"system.unknown", value: b"x" }),
            "set_xattr",
        ),
        (
            "a compression that there is none of",
            doing(Command::SetXattr { path: file, name: b"btrfs.compression", value: b"best" }),
            "set_xattr",
        ),
        (
            "an ACL of garbage",
            doing(Command::SetXattr { path: file, name: b"system.posix_acl_access", value: b"garbage" }),
            "set_xattr",
        ),
        ("no such attribute", doing(Command::RemoveXattr { path: file, name: b"user.x" }), "remove_xattr"),
        ("no mode of fallocate", doing(Command::Fallocate { path: file, mode: 0x100, offset: 0, size: 9 }), "mode"),
        ("a range too long", doing(Command::Fallocate { path: file, mode: 0, offset: 1 << 62, size: 1 << 63 }), ""),
        ("an extent of 2^64 - 1", encoded(EncodedWrite { unencoded_len: u64::MAX, ..plain }), "expected 131072"),
        ("an extent of 256 KiB", encoded(EncodedWrite { unencoded_len: 256 << 10, ..plain }), "expected 131072"),
        ("more than the extent", encoded(EncodedWrite { unencoded_offset: 1, ..plain }), "encoded write"),
        ("sums that overflow", encoded(EncodedWrite { unencoded_offset: u64::MAX, ..plain }), "encoded write"),
        ("garbage compressed", encoded(plain), "zlib"),
        ("too little data", encoded(EncodedWrite { compression: none, ..plain }), "expected 4096 bytes, found 100"),
    ]
}

/// Streams with missing origins, or commands in the wrong order.
fn origins() -> Vec<Case> {
    let snapshot = |path, parent_uuid| {
        let parent_ctransid = 1;
        Stream::new(Version::V1).then(Command::Snapshot { path, uuid: UUID, ctransid: 5, parent_uuid, parent_ctransid })
    };
    let subvol = |path, uuid| Stream::new(Version::V1).then(Command::Subvol { path, uuid, ctransid: 5 });
    let mkfile = || Command::Mkfile { path: b"file", ino: None };
    let first = |command| Stream::new(Version::V1).then(command).end();
    let utimes = Command::Utimes {
        path: b"",
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        otime: None,
    };
    vec![
        ("a file before the subvolume", first(mkfile()), "before the command that makes a subvolume"),
        ("times before the subvolume", first(utimes), "before the command that makes a subvolume"),
        ("an unknown parent", snapshot(b"sub", [9; 16]).end(), "09090909-0909"),
        ("a parent of zeros", snapshot(b"sub", [0; 16]).end(), "00000000-0000"),
        ("a UUID of zeros", subvol(b"sub", [0; 16]).end(), "UUID"),
        ("a nested subvolume", subvol(b"parent/sub", UUID).end(), "slash"),
        ("a subvolume above", subvol(b"..", UUID).end(), "`..`"),
        ("a subvolume at the top", subvol(b"/", UUID).end(), "absolute"),
        ("a subvolume without a name", subvol(b"", UUID).end(), "empty name"),
        ("a subvolume in place of another", subvol(b"parent", UUID).end(), "already exists"),
        ("a snapshot in place of a file", snapshot(b"outside", PARENT).end(), "already exists"),
        ("a clone from an unknown subvolume", cloning(|range| range.from_uuid = [9; 16]), "09090909-0909"),
        ("a clone of nothing", cloning(|range| range.len = 0), "length of a clone"),
        ("a clone beyond the end", cloning(|range| range.from_offset = 1 << 20), "clone"),
        ("a clone of 2^64 bytes", cloning(|range| range.len = u64::MAX), "clone"),
        ("a clone to 2^63", cloning(|range| range.offset = 1 << 63), "clone"),
        ("a clone of what is outside", cloning(|range| range.from_path = b"../outside"), "`..`"),
        ("a clone through a link", cloning(|range| range.from_path = b"out/outside"), "not a directory"),
        ("a clone of a directory", cloning(|range| range.from_path = b"dir"), "directory"),
        ("a clone of itself that overlaps", cloning(|range| (range.from_offset, range.len) = (0, 8192)), "clone"),
        (
            "a received UUID that is another's",
            Stream::new(Version::V1)
                .then(Command::Subvol { path: b"sub", uuid: PARENT, ctransid: 5 })
                .then(Command::Unlink { path: b"nothing" })
                .end(),
            "no such file",
        ),
        ("the rest of a stream", rest_of(&Stream::begun(Version::V1).end()), "--resume"),
        (
            "a clone out of the parent's parent",
            cloning(|range| (range.from_uuid, range.from_path) = (PARENT, b"../outside")),
            "`..`",
        ),
    ]
}

/// A volume with a file and a received subvolume.
fn volume(dir: &Path) -> Volume {
    let make = MakeOptions { size: Some(256 << 20), ..MakeOptions::default() };
    let volume = Volume::make(dir.join("disk.img"), &make).unwrap();
    volume.write("outside", "untouched").unwrap();
    let stream = Stream::new(Version::V1)
        .then(Command::Subvol { path: b"parent", uuid: PARENT, ctransid: 1 })
        .then(Command::Mkfile { path: b"inherited", ino: None })
        .end();
    let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).unwrap();
    receiver.receive(&stream[..], &(), &mut ()).unwrap();
    assert!(receiver.unfinished().is_none());
    drop(receiver);
    assert_untouched(&volume, "at the beginning");
    volume
}

/// Earlier contents are unchanged, and the earlier subvolume is the only one that looks complete.
fn assert_untouched(volume: &Volume, case: &str) {
    assert_eq!(volume.read("outside").unwrap(), b"untouched", "{case}");
    assert_eq!(volume.symlink_metadata("outside").unwrap().nlink, 1, "{case}");
    let names = |path: &str| {
        let names = volume.read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().to_owned());
        let mut names: Vec<_> = names.filter(|name| name != "sub").collect();
        names.sort();
        names
    };
    assert_eq!(names("/"), ["outside", "parent"], "{case}");
    assert_eq!(names("/parent"), ["inherited"], "{case}");
    for subvolume in volume.subvolumes().unwrap() {
        let is_parent = subvolume.path == "parent";
        assert_eq!(subvolume.received_uuid == PARENT, is_parent, "{case}: {subvolume:?}");
        assert_eq!(subvolume.received_uuid != [0; 16], is_parent, "{case}: {subvolume:?}");
        assert_eq!(subvolume.read_only, is_parent, "{case}: {subvolume:?}");
    }
}

#[test]
fn hostile_streams_fail_and_change_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume(dir.path());
    let cases = [framing(), paths(), limits(), origins()].concat();
    assert!(cases.len() >= 40);
    let mut wrong = Vec::new();
    for (case, stream, expected) in &cases {
        for options in [Options::default(), Options { errors_max: 0, ..Options::default() }] {
            let mut receiver = Receiver::new(&volume, Path::new("/"), options).unwrap();
            let mut failures = Failures::default();
            let result = receiver.receive(&stream[..], &(), &mut failures);
            // Garbage after a complete stream comes too late to affect its subvolume.
            let is_late = *case == "garbage behind the end";
            let error = result.expect_err(case).to_string();
            failures.0.push(error);
            if !failures.0.iter().any(|error| error.contains(expected)) {
                wrong.push(format!("{case}: expected {expected:?} in {:?}", failures.0));
            }
            receiver.discard().unwrap();
            drop(receiver);
            if is_late {
                volume.set_subvolume_read_only("sub", false).unwrap();
            } else {
                assert_untouched(&volume, case);
            }
            if volume.exists("sub").unwrap() {
                volume.delete_subvolume("sub").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    volume.close().unwrap();
    let checked = testkit::reference::check(&dir.path().join("disk.img")).unwrap();
    println!("{} streams, {checked:?}", cases.len());
}

/// Collects failures.
#[derive(Default)]
struct Failures(Vec<String>);

impl btrfs_receive::Notices for Failures {
    fn failed(&mut self, error: &btrfs_receive::Error) {
        self.0.push(error.to_string());
    }
}

#[test]
fn a_stream_that_was_cut_anywhere_leaves_nothing_that_looks_whole() {
    let dir = tempfile::tempdir().unwrap();
    let volume = volume(dir.path());
    let stream = Stream::begun(Version::V2)
        .then(Command::Truncate { path: b"file", size: 5 })
        .then(Command::Clone(CloneRange {
            path: b"dir/file",
            offset: 0,
            len: 5,
            from_uuid: UUID,
            from_ctransid: 5,
            from_path: b"file",
            from_offset: 0,
        }))
        .then(Command::Chown { path: b"file", uid: 1, gid: 2 })
        .end();
    let skips = |len: usize| (400..9000).contains(&len) && !len.is_multiple_of(512);
    for len in (0..stream.len()).filter(|len| !skips(*len)) {
        let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).unwrap();
        receiver.receive(&stream[..len], &(), &mut ()).expect_err("a part of a stream");
        assert_untouched(&volume, &format!("{len} bytes"));
        receiver.discard().unwrap();
        drop(receiver);
        assert!(!volume.exists("sub").unwrap(), "{len} bytes");
    }
    let mut receiver = Receiver::new(&volume, Path::new("/"), Options::default()).unwrap();
    receiver.receive(&stream[..], &(), &mut ()).unwrap();
    drop(receiver);
    assert_eq!(volume.read("sub/dir/file").unwrap(), [3; 5]);
    assert!(volume.subvolumes().unwrap().iter().any(|found| found.received_uuid == UUID && found.read_only));
}
