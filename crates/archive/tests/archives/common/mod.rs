//! Makes directories with one of everything, runs reference tools, and compares trees with directories. The tests of
//! this crate use it, each a part.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use archive::{Input, ReadOptions, read_into};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use transfer::{Tree, copy_data};
use vfs::file_system::{NodeKind, Time};

/// An access list of an owner, a user 69639, a group 69641 and a mask.
pub(crate) const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x07\x10\x01\0\x04\0\x05\0\xff\xff\xff\xff\
    \x08\0\x07\0\x09\x10\x01\0\x10\0\x07\0\xff\xff\xff\xff\x20\0\x00\0\xff\xff\xff\xff";

pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok();
    if !is_there {
        println!("skipped: no {program}");
    }
    is_there
}

/// Runs a command line of the shell in `dir`, and returns what it writes.
pub(crate) fn sh(dir: &Path, line: &str) -> Vec<u8> {
    let output = Command::new("sh").args(["-ec", line]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn set_time(path: &Path, sec: i64, nsec: i64) {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn node(path: &Path, kind: FileType, major: u32, minor: u32) {
    let device = rustix::fs::makedev(major, minor);
    rustix::fs::mknodat(CWD, path, kind, Mode::from(0o640), device).unwrap();
}

/// The extent of a tree of everything.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Only the things that every format keeps.
    Plain,
    /// Things that only PAX keeps, too.
    Pax,
}

/// A directory with one of everything. Its file system has to keep attributes and access lists.
pub(crate) fn everything(dir: &Path, extent: Extent) {
    let write = |name: &str, data: &[u8]| fs::write(dir.join(name), data).unwrap();
    fs::create_dir_all(dir.join("dir/deep/er")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    write("a", b"a text\n");
    write("dir/block", &[7; 512]);
    write("dir/zero", b"");
    write("dir/large", &(0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    write("dir/deep/er/x", b"x");
    write("modes", b"#!/bin/sh\n");
    fs::hard_link(dir.join("dir/block"), dir.join("hard")).unwrap();
    fs::hard_link(dir.join("dir/block"), dir.join("dir/hard-too")).unwrap();
    symlink("../dir/deep", dir.join("dir/link")).unwrap();
    symlink("/nowhere/at/all", dir.join("dangling")).unwrap();
    node(&dir.join("fifo"), FileType::Fifo, 0, 0);
    node(&dir.join("char"), FileType::CharacterDevice, 5, 300);
    node(&dir.join("disk"), FileType::BlockDevice, 259, 7);
    let mut holes = File::create(dir.join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    holes.write_all_at(b"in the middle", 300_000).unwrap();
    holes.flush().unwrap();
    rustix::fs::chownat(
        CWD,
        dir.join("a"),
        Some(rustix::fs::Uid::from_raw(1000)),
        Some(rustix::fs::Gid::from_raw(77)),
        AtFlags::empty(),
    )
    .unwrap();
    if extent == Extent::Pax {
        pax_only(dir);
    }
    fs::set_permissions(dir.join("modes"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(dir.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    set_times(dir, extent);
}

fn pax_only(dir: &Path) {
    let long = "long-name-".repeat(24);
    fs::create_dir_all(dir.join(&long).join(&long)).unwrap();
    fs::write(dir.join(&long).join(&long).join("in"), b"deep").unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"not-\xff\xfe-utf8")), b"bytes").unwrap();
    fs::write(dir.join("gr\u{fc}n"), b"umlaut").unwrap();
    fs::hard_link(dir.join("gr\u{fc}n"), dir.join("zz-hard-to-umlaut")).unwrap();
    symlink("t/".repeat(120), dir.join("long-link")).unwrap();
    symlink(OsStr::from_bytes(b"to-\xff"), dir.join("odd-link")).unwrap();
    fs::hard_link(dir.join(&long).join(&long).join("in"), dir.join("zz-hard-to-long")).unwrap();
    fs::hard_link(dir.join("long-link"), dir.join("long-link-too")).unwrap();
    let owned = dir.join("owned");
    fs::write(&owned, b"ids").unwrap();
    let (uid, gid) = (rustix::fs::Uid::from_raw(3_000_000_000), rustix::fs::Gid::from_raw(2_097_152));
    rustix::fs::chownat(CWD, &owned, Some(uid), Some(gid), AtFlags::empty()).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| xattr::set(dir.join(name), key, value).unwrap();
    // The host lists attributes by their lengths, or as they were made: names of one length, in order.
    set("a", "system.posix_acl_access", ACL);
    set("dir", "system.posix_acl_default", ACL);
    set("a", "user.1--", b"one");
    set("a", "user.2--", b"with \0 and \xff\n");
    set("a", "user.3=%", b"odd name");
    set("a", "user.4--", b"");
    set("dir", "user.of-a-directory", &[b'v'; 40]);
    set("modes", "security.capability", b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    fs::create_dir(dir.join("guarded")).unwrap();
    set("guarded", "system.posix_acl_access", ACL);
    // The mask takes bits from the entries above it.
    let masked = dir.join("masked");
    fs::write(&masked, b"").unwrap();
    set("masked", "system.posix_acl_access", ACL);
    fs::set_permissions(&masked, fs::Permissions::from_mode(0o640)).unwrap();
}

fn set_times(dir: &Path, extent: Extent) {
    let mut paths: Vec<PathBuf> = walk(dir).into_iter().map(|name| dir.join(name)).collect();
    paths.sort();
    for (index, path) in paths.iter().enumerate().rev() {
        let index = i64::try_from(index).unwrap();
        match (extent, index % 4) {
            (Extent::Pax, 1) => set_time(path, 1_600_000_000 + index, 123_456_789),
            (Extent::Pax, 2) => set_time(path, -1_000 - index, 250_000_000),
            (Extent::Pax, 3) => set_time(path, -7 - index, 0),
            _ => set_time(path, 1_500_000_000 + index, 0),
        }
    }
}

/// All names below a directory and the directory itself, as an empty name.
pub(crate) fn walk(dir: &Path) -> Vec<OsString> {
    let mut names = vec![OsString::new()];
    let mut waiting = vec![PathBuf::new()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(dir.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let name = at.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                waiting.push(name.clone());
            }
            names.push(name.into_os_string());
        }
    }
    names
}

pub(crate) fn read(input: Input) -> archive::Result<Tree> {
    let mut tree = Tree::new(Time::default());
    read_into(&mut tree, input, &ReadOptions::default(), &())?;
    Ok(tree)
}

pub(crate) fn read_bytes(bytes: Vec<u8>) -> archive::Result<Tree> {
    read(Input::stream(std::io::Cursor::new(bytes)))
}

/// An archive in a file without a name, at its begin.
pub(crate) fn as_file(bytes: &[u8]) -> Input {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    Input::file(file).unwrap()
}

pub(crate) fn contents(tree: &Tree, path: &Path) -> Vec<u8> {
    let node = tree.node(tree.find(path).unwrap().unwrap());
    let mut data = vec![0; usize::try_from(node.attr.size).unwrap()];
    if let Some(stored) = &node.contents {
        let opened = stored.open().unwrap();
        let end = copy_data(opened.as_ref(), node.attr.size, &mut vec![0; 10_000], |at, part| {
            let at = usize::try_from(at).unwrap();
            data[at..at + part.len()].copy_from_slice(part);
            Ok::<_, transfer::Error>(())
        });
        assert!(!end.unwrap().is_short);
    }
    data
}

/// Attributes of a file of the host, in the order of their names.
fn host_xattrs(path: &Path, kind: NodeKind) -> Vec<(Vec<u8>, Vec<u8>)> {
    if kind == NodeKind::Symlink {
        return Vec::new();
    }
    let value = |name: &OsString| xattr::get(path, name).unwrap().unwrap();
    let names = xattr::list(path).unwrap();
    let mut all: Vec<_> = names.map(|name| (name.as_bytes().to_vec(), value(&name))).collect();
    all.sort();
    all
}

/// Everything in which a tree differs from a directory. Times are compared to the second unless `exactly`.
pub(crate) fn differences(dir: &Path, tree: &Tree, exactly: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut names = walk(dir);
    let mut inodes = BTreeMap::new();
    for (path, number) in tree.walk() {
        let before = names.len();
        names.retain(|name| name != path.as_os_str());
        if names.len() == before {
            found.push(format!("{}: only in the tree", path.display()));
            continue;
        }
        let node = tree.node(number);
        let host = fs::symlink_metadata(dir.join(&path)).unwrap();
        let attr = &node.attr;
        let nsec = |time: i64| if exactly { u32::try_from(time).unwrap() } else { 0 };
        let host_time = Time::new(host.mtime(), nsec(host.mtime_nsec()));
        let kind = NodeKind::from_mode(host.mode()).unwrap();
        let is_sized = matches!(kind, NodeKind::File | NodeKind::Symlink);
        let host_xattrs = if exactly { host_xattrs(&dir.join(&path), kind) } else { Vec::new() };
        let rdev = if matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice) { host.rdev() } else { 0 };
        let expected = format!(
            "{:?}",
            (
                kind,
                host.mode() & 0o7777,
                host.uid(),
                host.gid(),
                host_time,
                rdev,
                host_xattrs,
                is_sized.then_some(host.size())
            )
        );
        let had = format!(
            "{:?}",
            (
                attr.kind,
                attr.permissions,
                attr.uid,
                attr.gid,
                Time::new(attr.mtime.sec, if exactly { attr.mtime.nsec } else { 0 }),
                u64::from(attr.rdev),
                &node.xattrs,
                is_sized.then_some(attr.size)
            )
        );
        if had != expected {
            found.push(format!("{}: expected {expected}, found {had}", path.display()));
        }
        if kind == NodeKind::Symlink
            && fs::read_link(dir.join(&path)).unwrap().into_os_string().into_vec() != *node.target.as_ref().unwrap()
        {
            found.push(format!("{}: target", path.display()));
        }
        if kind == NodeKind::File && host.size() < 100 << 20 {
            if fs::read(dir.join(&path)).unwrap() != contents(tree, &path) {
                found.push(format!("{}: contents", path.display()));
            }
            if *inodes.entry(host.ino()).or_insert(attr.ino) != attr.ino {
                found.push(format!("{}: not the same file", path.display()));
            }
        }
    }
    found.extend(names.iter().map(|name| format!("{}: missing", name.display())));
    found
}

/// Gives files of before 1970 times without a fraction.
pub(crate) fn drop_old_fractions(dir: &Path) {
    for name in walk(dir) {
        let found = fs::symlink_metadata(dir.join(&name)).unwrap();
        if std::os::unix::fs::MetadataExt::mtime(&found) < 0 {
            set_time(&dir.join(&name), -77, 0);
        }
    }
}

/// A header with its checksum.
pub(crate) fn header(name: &str, kind: u8, size: usize, gnu: bool, extra: &[(usize, &[u8])]) -> Vec<u8> {
    let mut block = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\x000000000\x000000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(156, &[kind]);
    put(257, if gnu { b"ustar  \0" } else { b"ustar\x0000" });
    for (at, bytes) in extra {
        put(*at, bytes);
    }
    sum(&mut block);
    block
}

/// Writes the checksum of a header.
pub(crate) fn sum(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}
