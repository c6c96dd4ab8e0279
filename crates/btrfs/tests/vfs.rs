//! The volume as a server sees it: nodes, error numbers, and Linux's rules beyond the format.
//! Every image a test leaves passes `btrfs check` where that is installed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use btrfs::{FsOptions, MakeOptions, Volume};
use common::served::{ROOT, Served};
use common::{Image, check};
use vfs::AtimeMode;
use vfs::acl;
use vfs::file_system::{
    AllocateFlags, Attr, Caller, Control, CopyRange, DirEntry, DirSink, Entry, Errno, Handle, NewNode, NodeFlags,
    NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, SetTime, SyncWhat, Time, WriteFlags, XattrMode,
};
use vfs_conformance as conformance;

const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 2 };

impl Served {
    fn open(&self, node: NodeId) -> Handle {
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        self.fs.open(&ROOT, node, flags).unwrap()
    }

    fn attr(&self, node: NodeId) -> Attr {
        self.fs.attr(node).unwrap()
    }

    fn chmod(&self, node: NodeId, permissions: u32) {
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.fs.set_attr(&ROOT, node, &changes).unwrap();
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        Ok(self.fs.set_xattr(node, name, value, XattrMode::Either, false)?)
    }

    fn list(&self, node: NodeId) -> Vec<(String, u64, u64)> {
        let mut list = List::default();
        self.fs.read_dir(node, 0, false, &mut list).unwrap();
        list.names
    }
}

/// A sink with limited room for names.
struct List {
    names: Vec<(String, u64, u64)>,
    nodes: Vec<Option<Entry>>,
    room: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { names: Vec::new(), nodes: Vec::new(), room: usize::MAX }
    }
}

impl DirSink for List {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        let has_room = self.room > 0;
        if has_room {
            self.room -= 1;
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            self.names.push((name, entry.ino, entry.next));
        }
        has_room
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        let has_room = self.add(entry);
        if has_room {
            self.nodes.push(node.copied());
        }
        has_room
    }
}

/// Runs the conformance suite, and checks the image that each of its cases leaves.
fn conform(pin_known: bool) {
    let images = Mutex::new(Vec::new());
    let make = || {
        let (image, volume) = Image::make_with(MakeOptions::default());
        images.lock().unwrap().push(image);
        let options = FsOptions { pin_known, ..FsOptions::default() };
        volume.serve(options).unwrap()
    };
    let report = conformance::run(&make);
    assert!(report.is_ok(), "{report}");
    // When its last handle was dropped, each volume was synced and closed.
    for image in images.into_inner().unwrap() {
        check(image.file.path());
    }
}

#[test]
fn the_conformance_suite_passes() {
    conform(false);
}

#[test]
fn the_conformance_suite_passes_for_a_server_that_does_not_open_files() {
    conform(true);
}

#[test]
fn a_file_lives_through_its_life() {
    let served = Served::new();
    let fs = &served.fs;
    let made = served.file(NodeId::ROOT, "a");
    assert_eq!(made.attr.kind, NodeKind::File);
    assert_eq!((made.attr.permissions, made.attr.nlink), (0o644, 1));
    assert_eq!(made.attr.ino, 257);
    let handle = served.open(made.node);
    served.write(made.node, 0, b"hello");
    let appends = WriteFlags::APPEND;
    fs.write(made.node, handle, 1 << 40, b" world", appends).unwrap();
    assert_eq!(served.read(made.node), b"hello world");
    assert_eq!(fs.lookup(NodeId::ROOT, b"a").unwrap().node, made.node);
    let linked = fs.link(made.node, NodeId::ROOT, b"b").unwrap();
    assert_eq!((linked.node, linked.attr.nlink), (made.node, 2));
    fs.rename(&ROOT, (NodeId::ROOT, b"b"), (NodeId::ROOT, b"c"), RenameFlags::empty()).unwrap();
    fs.unlink(NodeId::ROOT, b"a").unwrap();
    fs.unlink(NodeId::ROOT, b"c").unwrap();
    assert_eq!(fs.lookup(NodeId::ROOT, b"c").map_err(Errno::from), Err(Errno::ENOENT));
    // It is open, and stays readable and writable.
    assert_eq!(served.attr(made.node).nlink, 0);
    served.write(made.node, 5, b"!");
    assert_eq!(served.read(made.node), b"hello!world");
    fs.sync_file(made.node, handle, SyncWhat::All).unwrap();
    fs.release(made.node, handle);
    // The node stays until it is forgotten.
    let handle = served.open(made.node);
    served.write(made.node, 0, b"later");
    fs.release(made.node, handle);
    served.chmod(made.node, 0o600);
    fs.forget(made.node, 2);
    assert_eq!(served.read(made.node), b"later!world");
    fs.forget(made.node, 1);
    assert_eq!(fs.attr(made.node).map_err(Errno::from), Err(Errno::ESTALE));
    let late = fs.write(made.node, handle, 0, b"late", WriteFlags::default());
    assert_eq!(late.map_err(Errno::from), Err(Errno::ESTALE));
    fs.forget(made.node, 1);
    served.finish();
}

/// Syncs that were begun: one end makes all of them durable, and so does a commit.
#[test]
fn begun_syncs_survive_a_crash() {
    let served = Served::new();
    let fs = &served.fs;
    let begin = |name: &str, bytes: &[u8]| {
        let node = served.file(NodeId::ROOT, name).node;
        let handle = served.open(node);
        served.write(node, 0, bytes);
        let begun = fs.begin_sync(node, handle, SyncWhat::All).unwrap();
        (node, handle, begun.expect("the log is not written yet"))
    };
    let contents = |names: &[&str]| -> Vec<Option<Vec<u8>>> {
        let crashed = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(served.image.file.path(), crashed.path()).unwrap();
        let volume = Volume::open(crashed.path()).unwrap();
        let found = names.iter().map(|name| volume.read(name).ok()).collect();
        volume.close().unwrap();
        check(crashed.path());
        found
    };
    let (a, b) = (begin("a", b"first"), begin("b", &[7; 200_000]));
    assert_eq!(contents(&["a", "b"]), [None, None], "nothing is promised yet");
    fs.end_sync(b.0, b.1, b.2).unwrap();
    let both = [Some(b"first".to_vec()), Some(vec![7; 200_000])];
    assert_eq!(contents(&["a", "b"]), both);
    fs.end_sync(a.0, a.1, a.2).unwrap();
    let c = begin("c", b"third");
    fs.sync_fs().unwrap();
    let d = begin("d", b"fourth");
    served.write(c.0, 0, b"later");
    fs.end_sync(c.0, c.1, c.2).unwrap();
    assert_eq!(contents(&["a", "c", "d"]), [Some(b"first".to_vec()), Some(b"third".to_vec()), None]);
    fs.sync_fs().unwrap();
    fs.end_sync(d.0, d.1, d.2).unwrap();
    assert_eq!(contents(&["c", "d"]), [Some(b"later".to_vec()), Some(b"fourth".to_vec())]);
    served.finish();
}

#[test]
fn a_data_sync_promises_the_first_name_of_a_file() {
    // O_TMPFILE, written, committed by others, linked, fdatasync: the data was durable, the name was not, and the
    // replay removed the file.
    let served = Served::new();
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let (file, handle) = served.fs.create_unnamed(&USER, NodeId::ROOT, &NewNode::default(), flags).unwrap();
    served.write(file.node, 0, &[7; 50_000]);
    served.fs.sync_fs().unwrap();
    served.fs.link(file.node, NodeId::ROOT, b"linked").unwrap();
    served.fs.sync_file(file.node, handle, SyncWhat::Data).unwrap();
    let crashed = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(served.image.file.path(), crashed.path()).unwrap();
    let volume = Volume::open(crashed.path()).unwrap();
    assert_eq!(volume.read("linked").ok(), Some(vec![7; 50_000]));
    volume.close().unwrap();
    check(crashed.path());
    served.fs.release(file.node, handle);
    served.finish();
}

#[test]
fn names_in_the_log_bring_no_access_list_without_its_mode() {
    // A file of the last commit was renamed and got a list; the sync of its directory logged the name, and with it the
    // list, but not the mode that the list goes with.
    let served = Served::new();
    let fs = &served.fs;
    let dir = served.dir(NodeId::ROOT, "d").node;
    let file = served.file(dir, "old").node;
    served.chmod(file, 0o600);
    fs.sync_fs().unwrap();
    fs.rename(&USER, (dir, b"old"), (dir, b"new"), RenameFlags::empty()).unwrap();
    served.set_xattr(file, acl::ACCESS_NAME, &list(7, 7, 5, 5, 1)).unwrap();
    let handle = fs.open(&USER, dir, OpenFlags::READ).unwrap();
    fs.sync_file(dir, handle, SyncWhat::All).unwrap();
    fs.release(dir, handle);
    let crashed = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(served.image.file.path(), crashed.path()).unwrap();
    let volume = Volume::open(crashed.path()).unwrap();
    let again = volume.serve(FsOptions::default()).unwrap();
    let dir = again.lookup(NodeId::ROOT, b"d").unwrap().node;
    let found = again.lookup(dir, b"new").unwrap();
    let list_there = again.get_xattr(found.node, acl::ACCESS_NAME);
    let has_mode_of_list = found.attr.permissions == 0o751;
    assert_eq!(list_there.is_ok(), has_mode_of_list, "{:o} {list_there:?}", found.attr.permissions);
    drop(again);
    volume.close().unwrap();
    check(crashed.path());
    served.finish();
}

#[test]
fn a_pinned_node_stays_until_it_is_forgotten() {
    let served = Served::with(FsOptions { pin_known: true, ..FsOptions::default() });
    let made = served.file(NodeId::ROOT, "a");
    served.write(made.node, 0, &[7; 100_000]);
    served.fs.lookup(NodeId::ROOT, b"a").unwrap();
    served.fs.unlink(NodeId::ROOT, b"a").unwrap();
    served.fs.sync_fs().unwrap();
    served.fs.forget(made.node, 1);
    assert_eq!(served.read(made.node), [7; 100_000]);
    served.write(made.node, 0, b"still here");
    served.fs.forget(made.node, 1);
    assert_eq!(served.fs.attr(made.node).map_err(Errno::from), Err(Errno::ESTALE));
    // A node that is not forgotten is removed when the server ends.
    let free = served.fs.status().unwrap().blocks_free;
    let lost = served.file(NodeId::ROOT, "b");
    served.write(lost.node, 0, &[7; 10_000_000]);
    served.fs.unlink(NodeId::ROOT, b"b").unwrap();
    served.fs.sync_fs().unwrap();
    let Served { image, volume, fs } = served;
    assert!(fs.status().unwrap().blocks_free + 2_000 < free);
    drop(fs);
    volume.sync().unwrap();
    assert!(volume.status().unwrap().blocks_free + 100 > free);
    volume.close().unwrap();
    check(image.file.path());
}

#[test]
fn an_unnamed_file_gets_a_name_or_goes() {
    let served = Served::new();
    let new = NewNode { permissions: 0o600, ..NewNode::default() };
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let make = || served.fs.create_unnamed(&USER, NodeId::ROOT, &new, flags).unwrap();
    let (kept, handle) = make();
    assert_eq!((kept.attr.nlink, kept.attr.uid), (0, 1000));
    served.write(kept.node, 0, b"kept");
    let linked = served.fs.link(kept.node, NodeId::ROOT, b"kept").unwrap();
    assert_eq!(linked.attr.nlink, 1);
    served.fs.release(kept.node, handle);
    let (lost, handle) = make();
    served.write(lost.node, 0, &[1; 50_000]);
    served.fs.release(lost.node, handle);
    served.fs.forget(lost.node, 1);
    assert_eq!(served.fs.attr(lost.node).map_err(Errno::from), Err(Errno::ESTALE));
    assert_eq!(served.read(kept.node), b"kept");
    served.finish();
}

#[test]
fn listings_go_on_where_they_stopped() {
    let served = Served::new();
    let dir = served.dir(NodeId::ROOT, "d").node;
    for number in 0..700 {
        served.file(dir, &format!("file{number}"));
    }
    let all = served.list(dir);
    assert_eq!(all.len(), 702);
    assert_eq!(all[0].0, ".");
    assert_eq!((all[1].0.as_str(), all[1].1), ("..", 256));
    for with_nodes in [false, true] {
        let (mut from, mut names, mut removed) = (0, Vec::new(), 0);
        loop {
            let mut list = List { room: 7, ..List::default() };
            served.fs.read_dir(dir, from, with_nodes, &mut list).unwrap();
            for entry in list.nodes.iter().flatten() {
                served.fs.forget(entry.node, 1);
            }
            let Some(last) = list.names.last() else { break };
            from = last.2;
            // Listed names may be removed without moving the others.
            if with_nodes && last.0.starts_with("file") {
                served.fs.unlink(dir, last.0.as_bytes()).unwrap();
                removed += 1;
            }
            names.extend(list.names);
        }
        assert_eq!(names, all, "{with_nodes}");
        assert_eq!(removed > 0, with_nodes);
    }
    served.finish();
}

#[test]
fn subvolumes_have_numbers_of_their_own() {
    let served = Served::new();
    served.volume.create_subvolume("sub").unwrap();
    served.volume.create_subvolume("sub/nested").unwrap();
    served.volume.write("sub/file", b"1").unwrap();
    served.volume.snapshot("sub", "snap", vfs::SnapshotMode::ReadOnly).unwrap();
    served.volume.snapshot("sub", "snap2", vfs::SnapshotMode::ReadWrite).unwrap();
    let fs = &served.fs;
    let find =
        |path: &[&[u8]]| path.iter().try_fold(NodeId::ROOT, |at, name| Ok::<NodeId, Errno>(fs.lookup(at, name)?.node));
    let paths: [&[&[u8]]; 10] = [
        &[],
        &[b"sub"],
        &[b"snap"],
        &[b"snap2"],
        &[b"sub", b"file"],
        &[b"snap", b"file"],
        &[b"sub", b"nested"],
        &[b"snap", b"nested"],
        &[b"snap2", b"nested"],
        &[b"snap2", b"file"],
    ];
    let nodes: Vec<NodeId> = paths.iter().map(|path| find(path).unwrap()).collect();
    let mut inos: Vec<u64> = nodes.iter().map(|node| served.attr(*node).ino).collect();
    let mut listed: Vec<u64> = served.list(nodes[2]).iter().map(|(_, ino, _)| *ino).collect();
    let mut expected = [inos[2], 256, inos[5], inos[7]];
    expected.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, expected);
    inos.sort_unstable();
    inos.dedup();
    assert_eq!(inos.len(), paths.len());
    for (path, node) in paths.iter().zip(&nodes) {
        if served.attr(*node).kind == NodeKind::Directory {
            let above = find(&path[..path.len().saturating_sub(1)]).unwrap();
            assert_eq!(fs.lookup(*node, b"..").unwrap().node, above);
        }
    }
    served.finish();
}

#[test]
fn subvolumes_are_removed_like_directories_and_not_crossed() {
    let served = Served::new();
    let fs = &served.fs;
    served.volume.create_subvolume("sub").unwrap();
    served.volume.create_subvolume("sub/nested").unwrap();
    served.volume.write("sub/file", b"1").unwrap();
    let read_only = vfs::SnapshotMode::ReadOnly;
    served.volume.snapshot("sub", "snap", read_only).unwrap();
    let writable = vfs::SnapshotMode::ReadWrite;
    served.volume.snapshot("sub", "snap2", writable).unwrap();
    let find = |dir, name: &[u8]| fs.lookup(dir, name).unwrap().node;
    let [sub, snap, snap2] = [&b"sub"[..], b"snap", b"snap2"].map(|name| find(NodeId::ROOT, name));
    let copy = find(snap, b"file");
    // A read-only snapshot stays as it is.
    let new = NewNode::default();
    assert_eq!(fs.create(&ROOT, snap, b"x", &new).map_err(Errno::from), Err(Errno::EROFS));
    assert_eq!(fs.open(&ROOT, copy, OpenFlags::WRITE).map_err(Errno::from), Err(Errno::EROFS));
    assert_eq!(fs.unlink(snap, b"file").map_err(Errno::from), Err(Errno::EROFS));
    assert_eq!(fs.link(copy, NodeId::ROOT, b"x").map_err(Errno::from), Err(Errno::EXDEV));
    let moved = fs.rename(&ROOT, (sub, b"file"), (NodeId::ROOT, b"f"), RenameFlags::empty());
    assert_eq!(moved.map_err(Errno::from), Err(Errno::EXDEV));
    // An empty subvolume is removed like a directory.
    assert_eq!(fs.remove_dir(NodeId::ROOT, b"sub").map_err(Errno::from), Err(Errno::ENOTEMPTY));
    fs.remove_dir(sub, b"nested").unwrap();
    fs.unlink(sub, b"file").unwrap();
    fs.remove_dir(NodeId::ROOT, b"sub").unwrap();
    assert_eq!(fs.lookup(NodeId::ROOT, b"sub").map_err(Errno::from), Err(Errno::ENOENT));
    // Processes in it stay there, and it gets no names.
    assert_eq!(fs.create(&ROOT, sub, b"x", &new).map_err(Errno::from), Err(Errno::ESTALE));
    fs.forget(sub, u64::MAX);
    assert_eq!(fs.attr(sub).map_err(Errno::from), Err(Errno::ESTALE));
    fs.remove_dir(snap2, b"nested").unwrap();
    fs.step();
    served.finish();
}

#[test]
fn privileges_go_with_a_write() {
    let served = Served::new();
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "program").node;
    let capability = b"security.capability";
    for (permissions, flags, left) in [
        (0o6755, WriteFlags::CLEAR_PRIVILEGES, 0o755),
        (0o6745, WriteFlags::CLEAR_PRIVILEGES, 0o745),
        (0o6755, WriteFlags::empty(), 0o6755),
    ] {
        served.chmod(file, permissions);
        served.set_xattr(file, capability, b"12345678").unwrap();
        fs.write(file, Handle(0), 0, b"x", flags).unwrap();
        assert_eq!(served.attr(file).permissions, left);
        assert_eq!(fs.get_xattr(file, capability).map_err(Errno::from), Err(Errno::ENODATA));
    }
    served.set_xattr(file, capability, b"12345678").unwrap();
    let changes = SetAttr { uid: Some(5), clear_privileges: true, ..SetAttr::default() };
    let attr = fs.set_attr(&ROOT, file, &changes).unwrap();
    assert_eq!((attr.uid, attr.permissions), (5, 0o755));
    assert_eq!(fs.list_xattrs(file).unwrap(), Vec::<Vec<u8>>::new());
    served.finish();
}

/// An access control list with one named user and a mask.
fn list(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, owner, NOBODY), (2, user, 1000), (4, group, NOBODY), (0x10, mask, NOBODY), (0x20, others, NOBODY)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn lists_and_permission_bits_follow_each_other() {
    let served = Served::new();
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "file").node;
    served.set_xattr(file, acl::ACCESS_NAME, &list(7, 6, 5, 4, 0)).unwrap();
    assert_eq!(served.attr(file).permissions, 0o740);
    served.chmod(file, 0o4664);
    assert_eq!(served.attr(file).permissions, 0o4664);
    assert_eq!(fs.get_xattr(file, acl::ACCESS_NAME).unwrap(), list(6, 6, 5, 6, 4));
    // A list that equals the bits is not kept.
    let plain = acl::Acl::parse(&list(6, 6, 5, 6, 4)).unwrap().unwrap();
    assert!(!plain.is_mode_only());
    fs.remove_xattr(file, acl::ACCESS_NAME).unwrap();
    assert_eq!(fs.get_xattr(file, acl::ACCESS_NAME).map_err(Errno::from), Err(Errno::ENODATA));
    served.chmod(file, 0o600);
    // Directories pass their default list on.
    let dir = served.dir(NodeId::ROOT, "dir").node;
    served.set_xattr(dir, acl::DEFAULT_NAME, &list(7, 7, 5, 5, 1)).unwrap();
    assert_eq!(served.attr(dir).permissions, 0o755);
    let new = NewNode { permissions: 0o666, umask: 0o077, ..NewNode::default() };
    let child = fs.create(&USER, dir, b"child", &new).unwrap();
    assert_eq!(child.attr.permissions, 0o640);
    assert_eq!(fs.get_xattr(child.node, acl::ACCESS_NAME).unwrap(), list(6, 7, 5, 4, 0));
    let new = NewNode { kind: NodeKind::Directory, permissions: 0o777, umask: 0o077, ..NewNode::default() };
    let below = fs.create(&USER, dir, b"below", &new).unwrap();
    assert_eq!(fs.get_xattr(below.node, acl::DEFAULT_NAME).unwrap(), list(7, 7, 5, 5, 1));
    let refused = served.set_xattr(file, acl::DEFAULT_NAME, &list(7, 7, 5, 5, 1));
    assert_eq!(refused, Err(Errno::EACCES));
    assert_eq!(served.set_xattr(file, acl::ACCESS_NAME, b"x"), Err(Errno::EINVAL));
    served.finish();
}

#[test]
fn a_directory_with_the_set_group_bit_hands_its_group_on() {
    let served = Served::new();
    let dir = served.dir(NodeId::ROOT, "dir").node;
    let changes = SetAttr { gid: Some(77), permissions: Some(0o2775), ..SetAttr::default() };
    served.fs.set_attr(&ROOT, dir, &changes).unwrap();
    let new = NewNode { permissions: 0o666, umask: 0o022, ..NewNode::default() };
    let child = served.fs.create(&USER, dir, b"child", &new).unwrap().attr;
    assert_eq!((child.uid, child.gid, child.permissions), (1000, 77, 0o644));
    let new = NewNode { kind: NodeKind::Directory, permissions: 0o777, ..new };
    let below = served.fs.create(&USER, dir, b"below", &new).unwrap().attr;
    assert_eq!((below.gid, below.permissions), (77, 0o2755));
    served.finish();
}

#[test]
fn flags_forbid() {
    let served = Served::new();
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "file").node;
    served.write(file, 0, b"contents");
    assert_eq!(fs.set_flags(&USER, file, NodeFlags::NODUMP).map_err(Errno::from), Err(Errno::EPERM));
    let unknown = NodeFlags::from_bits_retain(0x4000_0000);
    assert_eq!(fs.set_flags(&ROOT, file, unknown).map_err(Errno::from), Err(Errno::EOPNOTSUPP));
    fs.set_flags(&ROOT, file, NodeFlags::IMMUTABLE).unwrap();
    assert_eq!(fs.flags(file).unwrap(), NodeFlags::IMMUTABLE);
    assert_eq!(served.attr(file).flags, NodeFlags::IMMUTABLE);
    let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    assert_eq!(fs.set_attr(&ROOT, file, &now).map_err(Errno::from), Err(Errno::EPERM));
    assert_eq!(fs.open(&ROOT, file, OpenFlags::WRITE).map_err(Errno::from), Err(Errno::EPERM));
    assert_eq!(fs.unlink(NodeId::ROOT, b"file").map_err(Errno::from), Err(Errno::EPERM));
    assert_eq!(fs.link(file, NodeId::ROOT, b"b").map_err(Errno::from), Err(Errno::EPERM));
    assert_eq!(served.set_xattr(file, b"user.a", b"1"), Err(Errno::EPERM));
    fs.set_flags(&ROOT, file, NodeFlags::APPEND).unwrap();
    let append = OpenFlags::WRITE | OpenFlags::APPEND;
    let handle = fs.open(&ROOT, file, append).unwrap();
    fs.release(file, handle);
    for flags in [OpenFlags::WRITE, append | OpenFlags::TRUNCATE] {
        assert_eq!(fs.open(&ROOT, file, flags).map_err(Errno::from), Err(Errno::EPERM));
    }
    fs.set_attr(&ROOT, file, &now).unwrap();
    let past = SetAttr { mtime: Some(SetTime::To(Time { sec: 1, nsec: 0 })), ..SetAttr::default() };
    assert_eq!(fs.set_attr(&ROOT, file, &past).map_err(Errno::from), Err(Errno::EPERM));
    // In place only while there is nothing in it.
    fs.set_flags(&ROOT, file, NodeFlags::NOCOW).unwrap();
    assert_eq!(fs.flags(file).unwrap(), NodeFlags::empty());
    let empty = served.file(NodeId::ROOT, "empty").node;
    fs.set_flags(&ROOT, empty, NodeFlags::NOCOW).unwrap();
    assert_eq!(fs.flags(empty).unwrap(), NodeFlags::NOCOW);
    // A file has no names to sync, and no property that does not exist.
    fs.set_flags(&ROOT, file, NodeFlags::DIRSYNC | NodeFlags::SYNC).unwrap();
    assert_eq!(fs.flags(file).unwrap(), NodeFlags::SYNC);
    assert_eq!(fs.remove_xattr(file, b"btrfs.foo").map_err(Errno::from), Err(Errno::EINVAL));
    // Compression is an attribute too.
    fs.set_flags(&ROOT, file, NodeFlags::COMPRESS).unwrap();
    assert_eq!(fs.get_xattr(file, b"btrfs.compression").unwrap(), b"zlib");
    served.set_xattr(file, b"btrfs.compression", b"none").unwrap();
    assert_eq!(fs.flags(file).unwrap(), NodeFlags::NOCOMPRESS);
    fs.remove_xattr(file, b"btrfs.compression").unwrap();
    assert_eq!(fs.flags(file).unwrap(), NodeFlags::empty());
    let other = served.set_xattr(file, b"btrfs.compression", b"rar");
    assert_eq!(other, Err(Errno::EINVAL));
    served.finish();
}

#[test]
fn attributes_have_families() {
    let served = Served::new();
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "file").node;
    for name in [&b"user.a"[..], b"trusted.b", b"security.c"] {
        served.set_xattr(file, name, b"value").unwrap();
        assert_eq!(fs.get_xattr(file, name).unwrap(), b"value");
    }
    assert_eq!(fs.list_xattrs(file).unwrap().len(), 3);
    assert_eq!(served.set_xattr(file, b"other.a", b""), Err(Errno::EOPNOTSUPP));
    assert_eq!(served.set_xattr(file, b"user.", b""), Err(Errno::EINVAL));
    let again = fs.set_xattr(file, b"user.a", b"2", XattrMode::Create, false);
    assert_eq!(again.map_err(Errno::from), Err(Errno::EEXIST));
    let absent = fs.set_xattr(file, b"user.z", b"2", XattrMode::Replace, false);
    assert_eq!(absent.map_err(Errno::from), Err(Errno::ENODATA));
    assert_eq!(fs.remove_xattr(file, b"user.z").map_err(Errno::from), Err(Errno::ENODATA));
    assert_eq!(served.set_xattr(file, b"user.large", &[1; 17_000]), Err(Errno::ENOSPC));
    let new = NewNode { kind: NodeKind::Symlink, target: b"file", ..NewNode::default() };
    let link = fs.create(&ROOT, NodeId::ROOT, b"link", &new).unwrap().node;
    assert_eq!(fs.read_link(link).unwrap(), b"file");
    assert_eq!(fs.read_link(file).map_err(Errno::from), Err(Errno::EINVAL));
    assert_eq!(served.set_xattr(link, b"user.a", b""), Err(Errno::EPERM));
    served.set_xattr(link, b"trusted.a", b"").unwrap();
    served.finish();
}

#[test]
fn ranges_are_allocated_sought_and_copied() {
    let served = Served::new();
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "file").node;
    served.write(file, 0, &[1; 200_000]);
    let punch = AllocateFlags::KEEP_SIZE | AllocateFlags::PUNCH_HOLE;
    fs.allocate(file, punch, 40_960, 40_960).unwrap();
    assert_eq!(fs.seek(file, Seek::Hole, 0).map_err(Errno::from), Ok(40_960));
    assert_eq!(fs.seek(file, Seek::Data, 40_960).map_err(Errno::from), Ok(81_920));
    assert_eq!(fs.seek(file, Seek::Data, 200_000).map_err(Errno::from), Err(Errno::ENXIO));
    fs.allocate(file, AllocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(served.attr(file).size, 200_000);
    assert_eq!(served.attr(file).blocks, 2048);
    let both = AllocateFlags::ZERO_RANGE | AllocateFlags::KEEP_SIZE;
    fs.allocate(file, both, 100_000, 200_000).unwrap();
    assert_eq!(served.attr(file).size, 200_000);
    fs.allocate(file, AllocateFlags::empty(), 0, 300_000).unwrap();
    assert_eq!(served.attr(file).size, 300_000);
    let other = AllocateFlags::PUNCH_HOLE;
    assert_eq!(fs.allocate(file, other, 0, 1).map_err(Errno::from), Err(Errno::EOPNOTSUPP));
    let target = served.file(NodeId::ROOT, "target").node;
    let mut range = CopyRange { source: file, source_offset: 0, target, target_offset: 0, len: 1 << 30 };
    let mut copied = 0;
    while let count @ 1.. = fs.copy_range(&range).unwrap() {
        copied += count;
        range.source_offset += count;
        range.target_offset += count;
    }
    assert_eq!(copied, 300_000);
    assert_eq!(served.read(target), served.read(file));
    range = CopyRange { source: file, source_offset: 10, target: file, target_offset: 50, len: 100 };
    assert_eq!(fs.copy_range(&range).map_err(Errno::from), Err(Errno::EINVAL));
    served.finish();
}

#[test]
fn access_times_are_kept_as_far_as_is_wanted() {
    for (atime, is_noted) in [(AtimeMode::No, false), (AtimeMode::Relative, true)] {
        let served = Served::with(FsOptions { atime, ..FsOptions::default() });
        let file = served.file(NodeId::ROOT, "file").node;
        served.write(file, 0, b"1");
        let old = SetAttr { atime: Some(SetTime::To(Time { sec: 5, nsec: 6 })), ..SetAttr::default() };
        let before = served.fs.set_attr(&ROOT, file, &old).unwrap();
        assert_eq!(before.atime, Time { sec: 5, nsec: 6 });
        let handle = served.fs.open(&ROOT, file, OpenFlags::READ | OpenFlags::NO_ATIME);
        let mut byte = [0];
        served.fs.read(file, handle.unwrap(), 0, &mut byte).unwrap();
        assert_eq!(served.attr(file).atime, before.atime);
        served.read(file);
        assert_eq!(served.attr(file).atime > before.atime, is_noted);
        served.fs.release(file, Handle(1));
        served.finish();
    }
}

#[test]
fn names_have_limits() {
    let served = Served::new();
    let fs = &served.fs;
    served.file(NodeId::ROOT, &"x".repeat(255));
    let new = NewNode::default();
    let long = "x".repeat(256).into_bytes();
    assert_eq!(fs.create(&ROOT, NodeId::ROOT, &long, &new).map_err(Errno::from), Err(Errno::ENAMETOOLONG));
    assert_eq!(fs.lookup(NodeId::ROOT, &long).map_err(Errno::from), Err(Errno::ENAMETOOLONG));
    assert_eq!(fs.lookup(NodeId(999), b"x").map_err(Errno::from), Err(Errno::ESTALE));
    assert_eq!(fs.attr(NodeId(0)).map_err(Errno::from), Err(Errno::ESTALE));
    let dir = served.dir(NodeId::ROOT, "dir").node;
    fs.remove_dir(NodeId::ROOT, b"dir").unwrap();
    assert_eq!(fs.create(&ROOT, dir, b"x", &new).map_err(Errno::from), Err(Errno::ENOENT));
    assert_eq!(fs.lookup(dir, b"x").map_err(Errno::from), Err(Errno::ENOENT));
    assert_eq!(served.list(dir), vec![]);
    let status = fs.status().unwrap();
    assert_eq!((status.name_bytes_max, status.block_bytes), (255, 4096));
    assert!(status.blocks_available <= status.blocks_free && status.blocks_free < status.blocks);
    served.finish();
}

/// A control operation of a caller that does not own the device.
fn asked(caller: Caller, node: NodeId, command: u32, input: &[u8], output_bytes_max: usize) -> Control<'_> {
    Control { caller, owns_device: false, node, command, input, output_bytes_max }
}

#[test]
fn files_are_laid_out_anew_by_who_may_write_them() {
    const DEFRAG: u32 = 0x5000_9402;
    const DEFRAG_RANGE: u32 = 0x4030_9410;
    let served = Served::with(FsOptions { user_subvol_ioctls: true, ..FsOptions::default() });
    let fs = &served.fs;
    let file = served.file(NodeId::ROOT, "file").node;
    served.write(file, 0, &[7; 300_000]);
    let control = |caller: Caller, command: u32, input: &[u8]| {
        fs.controls()
            .unwrap()
            .control(&asked(caller, file, command, input, 0))
            .map(|answer| answer.output)
            .map_err(Errno::from)
    };
    let range = |flags: u64, extent_bytes: u32, compression: [u8; 4]| {
        let mut input = vec![0; 48];
        input[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        input[16..24].copy_from_slice(&flags.to_le_bytes());
        input[24..28].copy_from_slice(&extent_bytes.to_le_bytes());
        input[28..32].copy_from_slice(&compression);
        input
    };
    let kinds = || -> Vec<_> { fs.extents(file, 0).unwrap().iter().map(|extent| extent.compression).collect() };
    assert_eq!(control(ROOT, DEFRAG, &[0; 4096]), Ok(Vec::new()));
    assert_eq!(kinds(), [None]);
    assert_eq!(control(ROOT, DEFRAG_RANGE, &range(1, 0, [3, 0, 0, 0])), Ok(Vec::new()));
    assert_eq!(kinds(), [Some("zstd"); 3]);
    assert_eq!(control(ROOT, DEFRAG_RANGE, &range(5, 4096, [1, 9, 0, 0])), Ok(Vec::new()));
    assert_eq!(kinds(), [Some("zlib"); 3]);
    assert_eq!(control(ROOT, DEFRAG_RANGE, &range(1, 0, [4, 0, 0, 0])), Err(Errno::EINVAL));
    assert_eq!(control(ROOT, DEFRAG_RANGE, &range(5, 0, [1, 10, 0, 0])), Err(Errno::EINVAL));
    assert_eq!(control(ROOT, DEFRAG_RANGE, &range(1 << 7, 0, [0; 4])), Err(Errno::EOPNOTSUPP));
    assert_eq!(control(ROOT, DEFRAG_RANGE, &[0; 20]), Err(Errno::EINVAL));
    assert_eq!(control(USER, DEFRAG_RANGE, &range(0, 0, [0; 4])), Err(Errno::EACCES));
    served.finish();
    let served = Served::with(FsOptions::default());
    let file = served.file(NodeId::ROOT, "file").node;
    let asked = asked(ROOT, file, DEFRAG, &[0; 4096], 0);
    assert_eq!(served.fs.controls().unwrap().control(&asked).map_err(Errno::from), Err(Errno::EPERM));
    served.finish();
}

#[test]
fn control_operations_work_on_subvolumes() {
    const SUBVOL_CREATE: u32 = 0x5000_940e;
    const SNAP_CREATE_V2: u32 = 0x5000_9417;
    const SNAP_DESTROY_V2: u32 = 0x5000_943f;
    const INO_LOOKUP: u32 = 0xd000_9412;
    const FS_INFO: u32 = 0x8400_941f;
    const GET_SUBVOL_INFO: u32 = 0x81f8_943c;
    const SUBVOL_SETFLAGS: u32 = 0x4008_941a;
    const BY_ID: u64 = 16;
    let served = Served::with(FsOptions { user_subvol_ioctls: true, ..FsOptions::default() });
    let fs = &served.fs;
    let at = |caller: &Caller, node: NodeId, command: u32, input: &[u8], output_bytes_max: usize| {
        let caller = *caller;
        fs.controls()
            .unwrap()
            .control(&asked(caller, node, command, input, output_bytes_max))
            .map(|answer| answer.output)
            .map_err(Errno::from)
    };
    let control = |caller: &Caller, command: u32, parts: &[(usize, &[u8])]| {
        let mut input = vec![0; 4096];
        for (at, bytes) in parts {
            input[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        at(caller, NodeId::ROOT, command, &input, 4096)
    };
    let mut input = vec![0; 4096];
    input[8..11].copy_from_slice(b"sub");
    let (caller, node, output_bytes_max) = (ROOT, NodeId::ROOT, 4096);
    let names = fs.controls().unwrap().control_names(&asked(caller, node, SUBVOL_CREATE, &input, output_bytes_max));
    assert_eq!(names, [(NodeId::ROOT, b"sub".to_vec())]);
    control(&ROOT, SUBVOL_CREATE, &[(8, b"sub")]).unwrap();
    assert_eq!(control(&ROOT, SUBVOL_CREATE, &[(8, b"sub")]), Err(Errno::EEXIST));
    assert_eq!(control(&USER, SUBVOL_CREATE, &[(8, b"s")]), Err(Errno::EACCES));
    for (name, error) in [("", Errno::EACCES), (".", Errno::EEXIST), ("..", Errno::EEXIST)] {
        assert_eq!(control(&ROOT, SUBVOL_CREATE, &[(8, name.as_bytes())]), Err(error), "{name:?}");
    }
    let sub = fs.lookup(NodeId::ROOT, b"sub").unwrap().node;
    let file = served.file(sub, "file").node;
    served.write(file, 0, b"in the snapshot");
    let question = [&[0; 8][..], &256u64.to_le_bytes()].concat();
    let answer = at(&USER, file, INO_LOOKUP, &question, 4096);
    let id = u64::from_le_bytes(*answer.unwrap().first_chunk().unwrap());
    let parts: [(usize, &[u8]); 3] = [(8, &id.to_le_bytes()), (16, &(BY_ID | 2).to_le_bytes()), (56, b"snap")];
    control(&ROOT, SNAP_CREATE_V2, &parts).unwrap();
    let snap = fs.lookup(NodeId::ROOT, b"snap").unwrap().node;
    let copy = fs.lookup(snap, b"file").unwrap().node;
    assert_eq!(served.read(copy), b"in the snapshot");
    assert_eq!(fs.open(&ROOT, copy, OpenFlags::WRITE).map_err(Errno::from), Err(Errno::EROFS));
    let info = at(&USER, snap, GET_SUBVOL_INFO, &[], 504).unwrap();
    assert_eq!(&info[8..13], b"snap\0");
    // As in the kernel, which looks at the subvolume before the directory.
    assert_eq!(control(&USER, SNAP_DESTROY_V2, &[(56, b"snap")]), Err(Errno::EROFS));
    // A read-only subvolume needs privileges to delete, which no caller here counts as having.
    assert_eq!(control(&ROOT, SNAP_DESTROY_V2, &[(56, b"snap")]), Err(Errno::EROFS));
    at(&ROOT, snap, SUBVOL_SETFLAGS, &[0; 8], 0).unwrap();
    control(&ROOT, SNAP_DESTROY_V2, &[(56, b"snap")]).unwrap();
    let parts: [(usize, &[u8]); 2] = [(16, &BY_ID.to_le_bytes()), (56, &id.to_le_bytes())];
    control(&ROOT, SNAP_DESTROY_V2, &parts).unwrap();
    assert_eq!(fs.lookup(NodeId::ROOT, b"sub").map_err(Errno::from), Err(Errno::ENOENT));
    assert_eq!(control(&USER, FS_INFO, &[]).unwrap().len(), 1024);
    assert_eq!(control(&ROOT, 0x9499, &[]), Err(Errno::ENOTTY));
    fs.step();
    served.finish();
}

/// Control operations ignored permissions: the kernel does not check them, and the server took uid 0 for privileged,
/// the mask of a list for the group's bits, and ignored lists.
#[test]
fn control_operations_go_by_permissions() {
    const SUBVOL_CREATE: u32 = 0x5000_940e;
    const SNAP_DESTROY: u32 = 0x5000_940f;
    const DEFAULT_SUBVOL: u32 = 0x4008_9413;
    const SUBVOL_SETFLAGS: u32 = 0x4008_941a;
    let on = FsOptions { user_subvol_ioctls: true, ..FsOptions::default() };
    let served = Served::with(on.clone());
    let fs = &served.fs;
    let in_dir = |caller: &Caller, node: NodeId, command: u32, name: &[u8]| {
        let mut input = vec![0; 4096];
        input[8..8 + name.len()].copy_from_slice(name);
        let control = asked(*caller, node, command, &input, 0);
        fs.controls().unwrap().control(&control).map(drop).map_err(Errno::from)
    };
    let other = Caller { uid: 2000, gid: 2000, pid: 1 };
    let dir = served.dir(NodeId::ROOT, "dir").node;
    let set = |permissions, uid, gid| {
        let changes = SetAttr { permissions: Some(permissions), uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        fs.set_attr(&ROOT, dir, &changes).unwrap();
    };
    let (refused, allowed) = (Err(Errno::EACCES), Ok(()));
    for (index, (mode, uid, gid, caller, wanted)) in [
        (0o700, 1000, 1000, USER, allowed),
        (0o700, 1000, 1000, other, refused),
        // Root without capabilities is like any user.
        (0o700, 1000, 1000, ROOT, refused),
        (0o770, 0, 2000, other, allowed),
        (0o707, 0, 0, other, refused),
        (0o777, 0, 0, other, allowed),
        (0o077, 1000, 1000, USER, refused),
    ]
    .into_iter()
    .enumerate()
    {
        set(mode, uid, gid);
        let name = format!("s{index}");
        assert_eq!(in_dir(&caller, dir, SUBVOL_CREATE, name.as_bytes()), wanted, "{mode:o} {index}");
    }
    // A named user, and a mask that is no group's right.
    set(0o700, 0, 2000);
    served.set_xattr(dir, acl::ACCESS_NAME, &list(7, 7, 0, 7, 0)).unwrap();
    assert_eq!(in_dir(&USER, dir, SUBVOL_CREATE, b"by name"), allowed);
    assert_eq!(in_dir(&other, dir, SUBVOL_CREATE, b"by mask"), refused);
    served.set_xattr(dir, acl::ACCESS_NAME, &list(7, 7, 7, 5, 0)).unwrap();
    assert_eq!(in_dir(&USER, dir, SUBVOL_CREATE, b"masked"), refused);
    // A file of another user in one's own directory is not one's own.
    fs.remove_xattr(dir, acl::ACCESS_NAME).unwrap();
    set(0o777, 1000, 1000);
    assert_eq!(in_dir(&other, dir, SNAP_DESTROY, b"s0"), refused);
    set(0o1777, 0, 0);
    let sub = fs.lookup(dir, b"s0").unwrap().node;
    served.chmod(sub, 0o777);
    assert_eq!(in_dir(&other, dir, SNAP_DESTROY, b"s0"), Err(Errno::EPERM));
    assert_eq!(in_dir(&ROOT, sub, DEFAULT_SUBVOL, b""), Err(Errno::EPERM));
    assert_eq!(in_dir(&other, sub, SUBVOL_SETFLAGS, b""), Err(Errno::EPERM));
    assert_eq!(in_dir(&USER, dir, SNAP_DESTROY, b"s0"), allowed);
    // As in the kernel, a default list limits a new subvolume's bits (beside the mask), and goes no further; nor does
    // the directory's group.
    set(0o2777, 0, 0);
    served.set_xattr(dir, acl::DEFAULT_NAME, &list(7, 6, 5, 7, 0)).unwrap();
    in_dir(&USER, dir, SUBVOL_CREATE, b"heir").unwrap();
    let heir = fs.lookup(dir, b"heir").unwrap();
    assert_eq!((heir.attr.uid, heir.attr.gid, heir.attr.permissions), (1000, USER.gid, 0o750));
    for name in [acl::DEFAULT_NAME, acl::ACCESS_NAME] {
        assert_eq!(fs.get_xattr(heir.node, name).map_err(Errno::from), Err(Errno::ENODATA));
    }
    // Unless the mount was made for it, none of this works, for any caller.
    let plain = served.volume.serve(FsOptions::default()).unwrap();
    let input = [&[0; 8][..], b"name", &[0; 4084]].concat();
    let second = [0x5000_9417, 0x5000_9418, 0x5000_943f];
    for command in [SUBVOL_CREATE, SNAP_DESTROY, SUBVOL_SETFLAGS, DEFAULT_SUBVOL].into_iter().chain(second) {
        let control = asked(ROOT, NodeId::ROOT, command, &input, 0);
        assert_eq!(plain.controls().unwrap().control(&control).map_err(Errno::from), Err(Errno::EPERM), "{command:x}");
    }
    drop(plain);
    fs.step();
    served.finish();
}

#[test]
fn a_change_of_nothing_takes_no_bits_from_the_program_of_another() {
    // `chown(path, -1, -1)` by any user reaches the server unchecked, and cleared the bits of every set-user program.
    let served = Served::new();
    let nothing = SetAttr { clear_privileges: true, ..SetAttr::default() };
    let stranger = Caller { uid: 65534, gid: 65534, ..USER };
    for (mode, caller, left) in [
        (0o6755, stranger, None),
        (0o2644, stranger, None),
        (0o755, stranger, Some(0o755)),
        (0o6755, USER, Some(0o755)),
        (0o6755, ROOT, Some(0o755)),
        // A write with permission looks the same.
        (0o6757, stranger, Some(0o757)),
        (0o6775, stranger, Some(0o775)),
    ] {
        let file = served.file(NodeId::ROOT, &format!("{mode:o}-{}", caller.uid)).node;
        let owner = SetAttr { permissions: Some(mode), uid: Some(1000), gid: Some(1000), ..SetAttr::default() };
        served.fs.set_attr(&ROOT, file, &owner).unwrap();
        let done = served.fs.set_attr(&caller, file, &nothing).map(|attr| attr.permissions);
        assert_eq!(done.map_err(Errno::from), left.ok_or(Errno::EPERM), "{mode:o} by {}", caller.uid);
        assert_eq!(served.fs.attr(file).unwrap().permissions, left.unwrap_or(mode));
    }
    served.finish();
}

#[test]
fn a_file_does_not_go_from_overwritten_to_compressed_in_one_step() {
    let served = Served::new();
    let file = served.file(NodeId::ROOT, "file").node;
    let set = |flags| served.fs.set_flags(&ROOT, file, flags);
    for (from, to) in [
        (NodeFlags::NOCOW, NodeFlags::COMPRESS),
        (NodeFlags::NOCOW, NodeFlags::NOCOMPRESS),
        (NodeFlags::COMPRESS, NodeFlags::NOCOW),
        (NodeFlags::NOCOMPRESS, NodeFlags::NOCOW),
    ] {
        set(from).unwrap();
        assert_eq!(set(to).map_err(Errno::from), Err(Errno::EINVAL), "{from:?} to {to:?}");
        set(NodeFlags::empty()).unwrap();
    }
    served.finish();
}

#[test]
fn compression_means_nothing_to_what_has_no_data() {
    let served = Served::new();
    let new = NewNode { kind: NodeKind::Fifo, permissions: 0o666, ..NewNode::default() };
    let fifo = served.fs.create(&USER, NodeId::ROOT, b"fifo", &new).unwrap().node;
    let name = b"btrfs.compression";
    assert_eq!(served.fs.set_xattr(fifo, name, b"zlib", XattrMode::Either, false).map_err(Errno::from), Ok(()));
    assert_eq!(
        served.fs.set_xattr(fifo, name, b"squeeze", XattrMode::Either, false).map_err(Errno::from),
        Err(Errno::EINVAL)
    );
    assert_eq!(served.fs.get_xattr(fifo, name).map_err(Errno::from), Err(Errno::ENODATA));
    served.finish();
}

#[test]
fn who_renames_what_he_lists_comes_to_an_end() {
    let served = Served::new();
    let dir = served.dir(NodeId::ROOT, "dir").node;
    for number in 0..100 {
        served.file(dir, &format!("{number}"));
    }
    let (mut from, mut renamed) = (0, 0);
    loop {
        let mut list = List { room: 9, ..List::default() };
        served.fs.read_dir(dir, from, false, &mut list).unwrap();
        let Some(last) = list.names.last() else { break };
        from = last.2;
        for (name, ..) in list.names.iter().filter(|(name, ..)| !name.starts_with('.')) {
            let new = format!("x{name}");
            let (old, new) = ((dir, name.as_bytes()), (dir, new.as_bytes()));
            served.fs.rename(&ROOT, old, new, RenameFlags::empty()).unwrap();
            renamed += 1;
        }
    }
    // The first request's names moved before it was known where the directory ends.
    assert!((100..=120).contains(&renamed), "{renamed}");
    assert_eq!(served.list(dir).len(), 102);
    served.finish();
}

/// Counts log messages.
struct LogCounter(Arc<AtomicUsize>);

impl tracing::Subscriber for LogCounter {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn damage_is_an_error_where_it_is_and_in_the_log_once() {
    let (image, volume) = Image::make_with(MakeOptions::default());
    volume.write("good", vec![1; 100_000]).unwrap();
    volume.write("bad", vec![0xe7; 100_000]).unwrap();
    volume.close().unwrap();
    // The fourth block of the bad file.
    let mut bytes = std::fs::read(image.file.path()).unwrap();
    let pattern = [0xe7; 8192];
    let start = bytes
        .chunks(4096)
        .zip(bytes.chunks(4096).skip(1))
        .position(|(a, b)| a == &pattern[..4096] && b == &pattern[..4096]);
    bytes[start.unwrap() * 4096 + 3 * 4096 + 17] ^= 1;
    std::fs::write(image.file.path(), bytes).unwrap();

    let logged = Arc::new(AtomicUsize::new(0));
    let _log = tracing::subscriber::set_default(LogCounter(Arc::clone(&logged)));
    let volume = Volume::open(image.file.path()).unwrap();
    let fs = volume.serve(FsOptions::default()).unwrap();
    let find = |name: &[u8]| fs.lookup(NodeId::ROOT, name).unwrap().node;
    let (good, bad) = (find(b"good"), find(b"bad"));
    let mut buf = vec![0; 4096];
    for _ in 0..3 {
        let read = fs.read(bad, Handle(0), 3 * 4096, &mut buf);
        assert_eq!(read.map_err(Errno::from), Err(Errno::EIO));
    }
    assert_eq!(logged.load(Ordering::Relaxed), 1);
    assert_eq!(fs.read(bad, Handle(0), 2 * 4096, &mut buf).map_err(Errno::from), Ok(4096));
    assert_eq!(fs.read(bad, Handle(0), 4 * 4096, &mut buf).map_err(Errno::from), Ok(4096));
    assert_eq!(fs.read(good, Handle(0), 3 * 4096, &mut buf).map_err(Errno::from), Ok(4096));
    // Rewritten data is valid again.
    fs.write(bad, Handle(0), 3 * 4096, &[2; 4096], WriteFlags::empty()).unwrap();
    assert_eq!(fs.read(bad, Handle(0), 3 * 4096, &mut buf).map_err(Errno::from), Ok(4096));
    fs.sync_fs().unwrap();
}

#[test]
fn what_is_old_is_written_and_committed_in_the_background() {
    let interval = Duration::from_millis(200);
    let served = Served::with(FsOptions { commit_interval: interval, ..FsOptions::default() });
    let file = served.file(NodeId::ROOT, "file").node;
    served.write(file, 0, &[1; 10_000]);
    let before = served.volume.info().unwrap().generation;
    let started = Instant::now();
    while served.volume.info().unwrap().generation == before {
        assert!(started.elapsed() < interval * 50);
        std::thread::sleep(served.fs.step());
    }
    // Nothing is committed when nothing has changed.
    std::thread::sleep(interval);
    served.fs.step();
    let committed = served.volume.info().unwrap().generation;
    std::thread::sleep(interval);
    served.fs.step();
    assert_eq!(served.volume.info().unwrap().generation, committed);
    served.finish();
}
