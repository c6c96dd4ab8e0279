//! Names that are replaced during look-ups: a look-up finds the old or the new state, and its node stays usable for as
//! long as the caller refers to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use btrfs::Volume;
use common::served::{ROOT, Served};
use common::{Image, check};
use vfs::file_system::RenameFlags;
use vfs::file_system::XattrMode;
use vfs::file_system::{
    DirEntry, DirSink, Entry, Errno, Handle, NewNode, NodeId, NodeKind, OpenFlags, RenameFlags as Flags, SetAttr,
    WriteFlags,
};
use vfs::{File, FileOptions};

/// How long renamers and readers run against each other.
const RUN: Duration = Duration::from_secs(3);
const RENAMERS: usize = 3;
const READERS: usize = 3;

/// Runs `change` in some threads (with their number and round) and `look` in others until the time is up. Panics with
/// the first errors of either; returns how often each ran.
fn race(
    change: impl Fn(usize, usize) -> Result<(), String> + Sync,
    look: impl Fn(usize) -> Result<(), String> + Sync,
) -> (usize, usize) {
    let is_over = AtomicBool::new(false);
    let (changes, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let errors = std::sync::Mutex::new(Vec::new());
    let failed = AtomicUsize::new(0);
    let fail = |error: String| {
        failed.fetch_add(1, Ordering::Relaxed);
        let mut errors = errors.lock().unwrap();
        if errors.len() < 5 {
            errors.push(error);
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..RENAMERS {
            let (change, fail, is_over, changes) = (&change, &fail, &is_over, &changes);
            scope.spawn(move || {
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    changes.fetch_add(1, Ordering::Relaxed);
                    change(thread, round).unwrap_or_else(fail);
                }
            });
        }
        for _ in 0..READERS {
            let (look, fail, is_over, looks) = (&look, &fail, &is_over, &looks);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let number = looks.fetch_add(1, Ordering::Relaxed);
                    look(number).unwrap_or_else(fail);
                }
            });
        }
        let started = Instant::now();
        while started.elapsed() < RUN {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let (changes, looks) = (changes.into_inner(), looks.into_inner());
    let errors = errors.into_inner().unwrap();
    assert!(errors.is_empty(), "{} errors in {changes} changes and {looks} looks: {errors:#?}", failed.into_inner());
    (changes, looks)
}

fn said<T, E: std::fmt::Debug>(what: &str, result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

/// One version of a file: a length and a byte that go together.
fn version(thread: usize, round: usize) -> Vec<u8> {
    let byte = u8::try_from((thread * 7 + round) % 250).unwrap();
    vec![byte; 100 + usize::from(byte)]
}

fn is_version(bytes: &[u8]) -> Result<(), String> {
    let first = bytes.first().copied().ok_or("an empty file")?;
    let is_one = bytes.len() == 100 + usize::from(first) && bytes.iter().all(|byte| *byte == first);
    if is_one { Ok(()) } else { Err(format!("{} bytes that go not together", bytes.len())) }
}

fn finish(image: &Image, volume: Volume) {
    volume.close().unwrap();
    check(image.file.path());
}

#[test]
fn paths_whose_last_name_is_replaced_always_lead_somewhere() {
    let (image, volume) = Image::make();
    volume.create_dir("dir").unwrap();
    volume.write("dir/target", version(0, 0)).unwrap();
    volume.symlink("target", "dir/link").unwrap();
    let counts = race(
        |thread, round| {
            let name = format!("dir/new{thread}");
            if round % 8 == 7 {
                let link = format!("dir/newlink{thread}");
                said("symlink", volume.symlink("target", &link))?;
                return said("rename", volume.rename(&link, "dir/link"));
            }
            said("write", volume.write(&name, version(thread, round)))?;
            said("rename", volume.rename(&name, "dir/target"))
        },
        |number| match number % 6 {
            0 => said("metadata", volume.metadata("dir/target")).map(drop),
            1 => is_version(&said("read", volume.read("dir/target"))?),
            2 => said("read_link", volume.read_link("dir/link")).map(drop),
            3 => said("metadata by a link", volume.metadata("dir/link")).map(drop),
            4 => said("get_xattr", volume.get_xattr("dir/target", "user.a")).map(drop),
            _ => said("open", File::open(&volume, "dir/target")).map(drop),
        },
    );
    eprintln!("{counts:?}");
    finish(&image, volume);
}

#[test]
fn what_is_changed_by_a_path_that_is_replaced_stays_whole() {
    let (image, volume) = Image::make();
    volume.write("target", version(0, 0)).unwrap();
    race(
        |thread, round| {
            let name = format!("new{thread}");
            said("write", volume.write(&name, version(thread, round)))?;
            said("rename", volume.rename(&name, "target"))
        },
        |number| {
            let either = XattrMode::Either;
            match number % 3 {
                0 => said("set_permissions", volume.set_permissions("target", 0o600)),
                1 => said("set_xattr", volume.set_xattr("target", "user.a", "b", either)),
                _ => said("set_owner", volume.set_owner("target", Some(7), None)),
            }
        },
    );
    // Nothing of an inode that was replaced is left behind: `btrfs check` would say so.
    finish(&image, volume);
}

#[test]
fn exchanged_names_are_never_missing() {
    let (image, volume) = Image::make();
    volume.create_dir("a").unwrap();
    volume.create_dir("b").unwrap();
    volume.write("a/file", version(0, 1)).unwrap();
    volume.write("b/file", version(0, 2)).unwrap();
    race(
        |thread, round| {
            let exchange = RenameFlags::EXCHANGE;
            match (thread + round) % 2 {
                0 => said("files", volume.rename_with("a/file", "b/file", exchange)),
                _ => said("directories", volume.rename_with("a", "b", exchange)),
            }
        },
        |number| {
            let name = ["a/file", "b/file"][number % 2];
            is_version(&said("read", volume.read(name))?)?;
            said("metadata", volume.metadata(["a", "b"][number % 2])).map(drop)
        },
    );
    finish(&image, volume);
}

#[test]
fn opening_to_create_never_fails_because_others_remove() {
    let (image, volume) = Image::make();
    race(
        |_, _| match volume.remove_file("file") {
            Err(error) if error.is_not_found() => Ok(()),
            result => said("remove_file", result),
        },
        |_| {
            let options = FileOptions::new().write(true).create(true);
            let file = said("open", options.open(&volume, "file"))?;
            said("write", file.write_at(b"contents", 0))
        },
    );
    finish(&image, volume);
}

/// Renames whose source or target is replaced by another rename meanwhile.
#[test]
fn renames_and_removals_find_names_that_are_replaced() {
    let (image, volume) = Image::make();
    volume.write("a", b"a").unwrap();
    race(
        |thread, _| {
            let name = format!("new{thread}");
            said("write", volume.write(&name, b"contents"))?;
            said("rename", volume.rename(&name, "a"))
        },
        |number| {
            let name = format!("link{number}");
            // As on Linux: the file that was found may have lost its name by then.
            match volume.hard_link("a", &name) {
                Err(error) if error.is_not_found() => Ok(()),
                result => {
                    said("hard_link", result)?;
                    said("rename", volume.rename(&name, "b"))
                }
            }
        },
    );
    finish(&image, volume);
}

impl Served {
    fn rename(&self, from: &[u8], to: &[u8], flags: Flags) -> Result<(), Errno> {
        let (from, to) = ((NodeId::ROOT, from), (NodeId::ROOT, to));
        Ok(self.fs.rename(&ROOT, from, to, flags)?)
    }
}

/// Counts names, and keeps the nodes that come with them.
#[derive(Default)]
struct Nodes {
    names: Vec<Vec<u8>>,
    nodes: Vec<NodeId>,
}

impl DirSink for Nodes {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.names.push(entry.name.to_vec());
        true
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        self.nodes.extend(node.map(|node| node.node));
        self.add(entry)
    }
}

#[test]
fn what_a_server_found_can_be_used_after_it_was_replaced() {
    let served = Served::new();
    let fs = &*served.fs;
    // The requests after a look-up, for the node that it found.
    let use_file = |node: NodeId| -> Result<(), String> {
        let handle = said("open", fs.open(&ROOT, node, OpenFlags::READ))?;
        let mut buf = vec![0; 1000];
        let read = said("read", fs.read(node, handle, 0, &mut buf));
        fs.release(node, handle);
        is_version(&buf[..read?])?;
        said("attr", fs.attr(node))?;
        said("get_xattr", fs.get_xattr(node, b"user.a"))?;
        let changes = SetAttr { permissions: Some(0o640), ..SetAttr::default() };
        said("set_attr", fs.set_attr(&ROOT, node, &changes)).map(drop)
    };
    let make = |name: &[u8], bytes: &[u8]| -> Result<(), String> {
        let new = NewNode { permissions: 0o644, ..NewNode::default() };
        let made = said("create", fs.create(&ROOT, NodeId::ROOT, name, &new))?;
        said("write", fs.write(made.node, Handle(0), 0, bytes, WriteFlags::default()))?;
        let either = vfs::file_system::XattrMode::Either;
        said("set_xattr", fs.set_xattr(made.node, b"user.a", b"b", either, false))?;
        fs.forget(made.node, 1);
        Ok(())
    };
    make(b"target", &version(0, 0)).unwrap();
    race(
        |thread, round| {
            let name = format!("new{thread}").into_bytes();
            make(&name, &version(thread, round))?;
            said("rename", served.rename(&name, b"target", Flags::empty()))
        },
        |number| {
            if number % 16 == 0 {
                let mut listed = Nodes::default();
                said("read_dir", fs.read_dir(NodeId::ROOT, 0, true, &mut listed))?;
                listed.nodes.iter().for_each(|node| fs.forget(*node, 1));
                let has = listed.names.iter().any(|name| name == b"target");
                return if has { Ok(()) } else { Err("the listing misses the name".into()) };
            }
            let entry = said("lookup", fs.lookup(NodeId::ROOT, b"target"))?;
            let used = use_file(entry.node);
            fs.forget(entry.node, 1);
            used
        },
    );
    served.finish();
}

#[test]
fn a_listing_has_each_file_once_while_they_are_renamed() {
    let served = Served::new();
    let fs = &*served.fs;
    // Enough that the names lie in several tree blocks.
    let others = 600;
    for number in 0..others {
        served.make(NodeId::ROOT, &format!("{number:0100}"), NodeKind::File);
    }
    for thread in 0..RENAMERS {
        served.make(NodeId::ROOT, &format!("{thread}-0"), NodeKind::File);
    }
    race(
        |thread, round| {
            let name = |round: usize| format!("{thread}-{}", round % 2).into_bytes();
            said("rename", served.rename(&name(round), &name(round + 1), Flags::empty()))
        },
        |_| {
            let mut listed = Nodes::default();
            said("read_dir", fs.read_dir(NodeId::ROOT, 1, false, &mut listed))?;
            let of = |thread: usize| {
                let front = format!("{thread}-").into_bytes();
                listed.names.iter().filter(|name| name.starts_with(&front)).count()
            };
            // Batches of one answer are read one after the other: a name that moves may be in two of them, not in none.
            match (0..RENAMERS).find(|thread| of(*thread) == 0) {
                Some(thread) => Err(format!("the listing misses the file of thread {thread}")),
                None => Ok(()),
            }
        },
    );
    served.finish();
}

#[test]
fn a_replaced_node_of_any_kind_stays_until_it_is_forgotten() {
    let served = Served::new();
    let fs = &*served.fs;
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Symlink, NodeKind::Fifo] {
        let old = served.make(NodeId::ROOT, "target", kind).node;
        let either = vfs::file_system::XattrMode::Either;
        fs.set_xattr(old, b"trusted.a", b"b", either, false).unwrap();
        let new = served.make(NodeId::ROOT, "new", kind).node;
        served.rename(b"new", b"target", Flags::empty()).unwrap();
        assert_eq!(fs.lookup(NodeId::ROOT, b"target").unwrap().node, new);
        fs.forget(new, 1);
        assert_eq!(fs.attr(old).unwrap().nlink, 0, "{kind:?}");
        assert_eq!(fs.get_xattr(old, b"trusted.a").unwrap(), b"b", "{kind:?}");
        fs.set_xattr(old, b"trusted.c", b"d", either, false).unwrap();
        match kind {
            NodeKind::Symlink => assert_eq!(fs.read_link(old).unwrap(), b"where"),
            NodeKind::File | NodeKind::Directory => {
                let handle = fs.open(&ROOT, old, OpenFlags::READ).unwrap();
                fs.release(old, handle);
                assert!(fs.attr(old).is_ok(), "the reference keeps it, not the opening");
            }
            _ => {}
        }
        fs.sync_fs().unwrap();
        fs.forget(old, 1);
        assert_eq!(fs.attr(old).map_err(Errno::from), Err(Errno::ESTALE), "{kind:?}");
        fs.forget(new, 1);
        match kind {
            NodeKind::Directory => fs.remove_dir(NodeId::ROOT, b"target").unwrap(),
            _ => fs.unlink(NodeId::ROOT, b"target").unwrap(),
        }
    }
    served.finish();
}

/// A node that a server refers to and that is opened, removed, closed: the reference keeps it.
#[test]
fn the_last_close_does_not_take_a_node_that_is_referred_to() {
    let served = Served::new();
    let fs = &*served.fs;
    let node = served.make(NodeId::ROOT, "file", NodeKind::File).node;
    fs.write(node, Handle(0), 0, b"contents", WriteFlags::default()).unwrap();
    let handle = fs.open(&ROOT, node, OpenFlags::READ).unwrap();
    fs.unlink(NodeId::ROOT, b"file").unwrap();
    fs.release(node, handle);
    let handle = fs.open(&ROOT, node, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    let mut buf = [0; 100];
    assert_eq!(fs.read(node, handle, 0, &mut buf).map_err(Errno::from), Ok(8));
    fs.forget(node, 1);
    assert_eq!(fs.read(node, handle, 0, &mut buf).map_err(Errno::from), Ok(8));
    fs.release(node, handle);
    assert_eq!(fs.attr(node).map_err(Errno::from), Err(Errno::ESTALE));
    served.finish();
}

/// Files without names that a server never forgets are removed when the server ends.
#[test]
fn what_is_never_forgotten_goes_with_the_server() {
    let served = Served::new();
    let fs = &*served.fs;
    let free = || served.volume.status().unwrap().blocks_free;
    let before = free();
    let node = served.make(NodeId::ROOT, "file", NodeKind::File).node;
    fs.write(node, Handle(0), 0, &[7; 10_000_000], WriteFlags::default()).unwrap();
    fs.unlink(NodeId::ROOT, b"file").unwrap();
    fs.sync_fs().unwrap();
    assert!(free() + 2_000 < before, "it is there as long as it is referred to");
    fs.finish().unwrap();
    served.volume.sync().unwrap();
    assert!(free() + 100 > before, "{} and {before}", free());
    served.finish();
}
