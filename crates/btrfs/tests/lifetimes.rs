//! Tests the deletion of subvolumes with open files, the contents of snapshots, and which changes are durable when a
//! call returns.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use btrfs::{FsOptions, Volume};
use common::served::{ROOT, Served};
use common::{Image, check};
use vfs::file_system::{
    AllocateFlags, Control, CopyRange, Errno, Handle, NewNode, NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags,
    SetAttr, SyncWhat, WriteFlags, XattrMode,
};
use vfs::{File, FileOptions, SnapshotMode};

/// A volume on which programs may make subvolumes.
fn served() -> Served {
    Served::with(FsOptions { user_subvol_ioctls: true, ..FsOptions::default() })
}

impl Served {
    fn find(&self, path: &str) -> NodeId {
        path.split('/').fold(NodeId::ROOT, |node, name| self.fs.lookup(node, name.as_bytes()).unwrap().node)
    }

    fn set_flags(&self, node: NodeId, flags: NodeFlags) {
        self.fs.set_flags(&ROOT, node, flags).unwrap();
    }

    fn control(&self, command: u32, node: NodeId, parts: &[(usize, &[u8])], bytes: usize) {
        let mut input = vec![0; bytes];
        for (at, part) in parts {
            input[*at..*at + part.len()].copy_from_slice(part);
        }
        let control =
            Control { owns_device: false, caller: ROOT, node, command, input: &input, output_bytes_max: 4096 };
        self.fs.controls().unwrap().control(&control).unwrap();
    }

    /// The volume as it would be found after a crash at this moment.
    fn after_crash<T>(&self, look: impl FnOnce(&Volume) -> T) -> T {
        let crashed = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(self.image.file.path(), crashed.path()).unwrap();
        let volume = Volume::open(crashed.path()).unwrap();
        let seen = look(&volume);
        volume.close().unwrap();
        check(crashed.path());
        seen
    }
}

#[test]
fn an_open_file_outlives_its_subvolume() {
    let served = served();
    let fs = &*served.fs;
    let free = || served.volume.status().unwrap().blocks_free;
    let before = free();
    served.volume.create_subvolume("sub").unwrap();
    let sub = served.find("sub");
    let dir = served.make(sub, "dir", NodeKind::Directory).node;
    let (node, other) = (served.file(dir, "file").node, served.file(dir, "other").node);
    served.write(node, 0, &[1; 3_000_000]);
    served.write(other, 0, &[2; 3_000_000]);
    fs.sync_fs().unwrap();
    served.write(node, 5, b"not written yet");
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let handle = fs.open(&ROOT, node, flags).unwrap();
    served.volume.delete_subvolume("sub").unwrap();
    assert_eq!(fs.lookup(NodeId::ROOT, b"sub").map_err(Errno::from), Err(Errno::ENOENT));

    let mut expected = vec![1; 3_000_000];
    expected[5..20].copy_from_slice(b"not written yet");
    assert_eq!(served.read(node), expected);
    served.write(node, 1_000_000, &[3; 200_000]);
    served.write(node, 3_000_000, b"appended");
    expected[1_000_000..1_200_000].fill(3);
    expected.extend(b"appended");
    assert_eq!(served.read(node), expected);
    fs.sync_file(node, handle, SyncWhat::All).unwrap();
    fs.sync_fs().unwrap();
    fs.step();
    assert_eq!(served.read(node), expected);
    let changes = SetAttr { size: Some(2_000_000), permissions: Some(0o600), ..SetAttr::default() };
    assert_eq!(fs.set_attr(&ROOT, node, &changes).unwrap().size, 2_000_000);
    fs.allocate(node, AllocateFlags::empty(), 2_000_000, 100_000).unwrap();
    fs.set_xattr(node, b"user.a", b"b", XattrMode::Either, false).unwrap();
    // Other files and directories of the subvolume cannot be used, although the server still refers to them.
    let new = NewNode::default();
    assert_eq!(fs.create(&ROOT, dir, b"new", &new).map(drop).map_err(Errno::from), Err(Errno::ESTALE));
    assert_eq!(fs.open(&ROOT, other, flags).map_err(Errno::from), Err(Errno::ESTALE));
    // An open file can be opened once more.
    fs.release(node, fs.open(&ROOT, node, flags).unwrap());
    assert!(free() + 700 < before, "its space is still used");

    // After a crash the subvolume is gone, as an open file without a name would be.
    let free_then = served.after_crash(|volume| {
        assert!(!volume.exists("sub").unwrap());
        volume.sync().unwrap();
        volume.status().unwrap().blocks_free
    });
    assert!(free_then + 100 > before, "{free_then} of {before}");

    fs.release(node, handle);
    for node in [node, other, dir, sub] {
        fs.forget(node, 10);
    }
    fs.step();
    fs.sync_fs().unwrap();
    assert_eq!(fs.attr(node).map_err(Errno::from), Err(Errno::ESTALE));
    served.finish();
}

/// An earlier version freed the space of a deleted subvolume only when the kernel had forgotten all of its files. The
/// kernel may never do that: it keeps names that it has invalidated until it is short of memory (Linux 6.16).
#[test]
fn the_space_of_a_deleted_subvolume_comes_back_though_the_server_refers_to_its_files() {
    let served = served();
    let fs = &*served.fs;
    let free = || served.volume.status().unwrap().blocks_free;
    fs.sync_fs().unwrap();
    let before = free();
    let filled = |name: &str| {
        served.volume.create_subvolume(name).unwrap();
        let sub = served.find(name);
        let dir = served.make(sub, "dir", NodeKind::Directory).node;
        let nodes: Vec<NodeId> = (0..5).map(|index| served.file(dir, &format!("file{index}")).node).collect();
        nodes.iter().for_each(|node| served.write(*node, 0, &[1; 1_000_000]));
        (dir, nodes)
    };
    let ((dir, closed), (_, open)) = (filled("one"), filled("two"));
    fs.sync_fs().unwrap();
    let handle = fs.open(&ROOT, open[0], OpenFlags::READ).unwrap();
    // Some of the deleted data was never written.
    served.write(closed[1], 100, &[2; 200_000]);
    served.volume.delete_subvolume("one").unwrap();
    served.volume.delete_subvolume("two").unwrap();
    fs.sync_fs().unwrap();
    // The sync freed the space of the first subvolume; the open file keeps the second.
    assert!((1200..2300).contains(&(before - free())), "{} of {before}", free());
    for node in closed.iter().chain([&dir, &open[1]]) {
        assert_eq!(fs.attr(*node).map(drop).map_err(Errno::from), Err(Errno::ESTALE));
    }
    assert_eq!(served.read(open[0]), vec![1; 1_000_000]);
    fs.release(open[0], handle);
    assert_eq!(fs.attr(open[0]).map(drop).map_err(Errno::from), Err(Errno::ESTALE));
    fs.sync_fs().unwrap();
    assert!(free() + 50 > before, "{} of {before}", free());
    // Its references may be dropped at any time.
    for node in closed.into_iter().chain(open).chain([dir]) {
        fs.forget(node, 1);
    }
    served.finish();
}

/// If the server does not report openings, any file that it refers to may be open.
#[test]
fn a_file_that_a_server_may_have_open_keeps_a_deleted_subvolume() {
    let served = Served::with(FsOptions { pin_known: true, user_subvol_ioctls: true, ..FsOptions::default() });
    let fs = &*served.fs;
    let free = || served.volume.status().unwrap().blocks_free;
    fs.sync_fs().unwrap();
    let before = free();
    served.volume.create_subvolume("sub").unwrap();
    let sub = served.find("sub");
    let node = served.file(sub, "file").node;
    served.write(node, 0, &[1; 5_000_000]);
    served.volume.delete_subvolume("sub").unwrap();
    fs.sync_fs().unwrap();
    assert_eq!(served.read(node), vec![1; 5_000_000]);
    assert!(free() + 1200 < before);
    fs.forget(node, 1);
    fs.forget(sub, 10);
    fs.sync_fs().unwrap();
    assert_eq!(fs.attr(node).map(drop).map_err(Errno::from), Err(Errno::ESTALE));
    assert!(free() + 50 > before, "{} of {before}", free());
    served.finish();
}

#[test]
fn the_space_of_a_deleted_subvolume_comes_back_with_the_last_close() {
    let (image, volume) = Image::make();
    volume.create_subvolume("sub").unwrap();
    volume.sync().unwrap();
    let before = volume.status().unwrap().blocks_free;
    volume.write("sub/file", vec![1; 8_000_000]).unwrap();
    volume.write("sub/other", vec![2; 1000]).unwrap();
    let options = FileOptions::new().read(true).write(true);
    let file = options.open(&volume, "sub/file").unwrap();
    let nameless = options.open(&volume, "sub/other").unwrap();
    volume.remove_file("sub/other").unwrap();
    volume.delete_subvolume("sub").unwrap();
    volume.sync().unwrap();
    let mut bytes = vec![0; 1000];
    assert_eq!(nameless.read_at(&mut bytes, 0).unwrap(), 1000);
    assert_eq!(bytes, vec![2; 1000]);
    drop(nameless);
    volume.sync().unwrap();
    file.write_at(b"still here", 7_000_000).unwrap();
    file.sync_all().unwrap();
    let mut bytes = vec![0; 10];
    file.read_at(&mut bytes, 7_000_000).unwrap();
    assert_eq!(bytes, b"still here");
    assert!(volume.status().unwrap().blocks_free + 1900 < before);
    drop(file);
    volume.sync().unwrap();
    volume.sync().unwrap();
    let free = volume.status().unwrap().blocks_free;
    assert!(free + 50 > before, "{free} of {before}");
    // A new subvolume can have the same name; it gets another number.
    volume.create_subvolume("sub").unwrap();
    volume.write("sub/file", b"new").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("sub/file").unwrap(), b"new");
    volume.close().unwrap();
}

/// Many threads use files of subvolumes that others delete.
#[test]
fn subvolumes_go_while_their_files_are_used() {
    let (image, volume) = Image::make();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..15_u8 {
                    let name = format!("sub{thread}");
                    volume.create_subvolume(&name).unwrap();
                    let path = format!("{name}/file");
                    volume.write(&path, vec![round; 300_000]).unwrap();
                    let options = FileOptions::new().read(true).write(true);
                    let file = options.open(volume, &path).unwrap();
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            for part in 0..20 {
                                file.write_at(&[round; 5000], part * 7000).unwrap();
                                let mut bytes = vec![0; 300_000];
                                file.read_at(&mut bytes, 0).unwrap();
                                assert!(bytes.iter().all(|byte| *byte == round));
                                if part % 5 == 4 {
                                    file.sync_all().unwrap();
                                }
                            }
                        });
                        volume.delete_subvolume(&name).unwrap();
                        volume.sync().unwrap();
                    });
                }
            });
        }
    });
    volume.sync().unwrap();
    volume.close().unwrap();
    check(image.file.path());
}

/// The orphan items in a tree, counted in the output of `btrfs inspect-internal dump-tree`.
fn orphan_count(image: &Image) -> usize {
    let dumped =
        std::process::Command::new("btrfs").args(["inspect-internal", "dump-tree"]).arg(image.file.path()).output();
    let Ok(dumped) = dumped else { return 0 };
    let text = String::from_utf8_lossy(&dumped.stdout).into_owned();
    text.lines().filter(|line| line.contains("ORPHAN_ITEM")).count()
}

#[test]
fn a_snapshot_has_no_files_without_names() {
    for mode in [SnapshotMode::ReadWrite, SnapshotMode::ReadOnly] {
        let served = served();
        let fs = &*served.fs;
        served.volume.create_subvolume("sub").unwrap();
        let sub = served.find("sub");
        let mut handles = Vec::new();
        for index in 0..40 {
            let name = format!("f{index}");
            let node = served.file(sub, &name).node;
            served.write(node, 0, &vec![7; index * 5000]);
            let handle = fs.open(&ROOT, node, OpenFlags::READ).unwrap();
            fs.unlink(sub, name.as_bytes()).unwrap();
            handles.push((node, handle));
        }
        let stays = served.file(sub, "stays").node;
        served.write(stays, 0, b"here");
        let unnamed = File::unnamed(&served.volume, "sub").unwrap();
        unnamed.write_at(b"without a name", 0).unwrap();
        served.volume.snapshot("sub", "snap", mode).unwrap();
        assert_eq!(served.volume.read("snap/stays").unwrap(), b"here");
        let free_before = served.volume.status().unwrap().blocks_free;
        // The source subvolume still has its files without names.
        for (node, handle) in handles {
            let _ = served.read(node);
            fs.release(node, handle);
            fs.forget(node, 1);
        }
        drop(unnamed);
        fs.sync_fs().unwrap();
        assert!(served.volume.status().unwrap().blocks_free > free_before + 900, "no snapshot keeps them");
        let Served { image, volume, fs } = served;
        drop(fs);
        volume.close().unwrap();
        check(image.file.path());
        assert_eq!(orphan_count(&image), 0, "{mode:?}");
    }
}

/// After a crash before or after the commit, `btrfs check` finds no error, and the snapshot lacks the file without a
/// name.
#[test]
fn a_snapshot_of_open_files_survives_a_crash() {
    let served = served();
    let fs = &*served.fs;
    served.volume.create_subvolume("sub").unwrap();
    let sub = served.find("sub");
    let node = served.file(sub, "file").node;
    served.write(node, 0, &[7; 100_000]);
    let handle = fs.open(&ROOT, node, OpenFlags::READ).unwrap();
    fs.unlink(sub, b"file").unwrap();
    served.volume.snapshot("sub", "snap", SnapshotMode::ReadWrite).unwrap();
    served.after_crash(|_| ());
    fs.sync_fs().unwrap();
    served.after_crash(|volume| assert!(!volume.exists("snap/file").unwrap()));
    fs.release(node, handle);
    served.finish();
}

const SNAP_CREATE_V2: u32 = 0x5000_9417;
const SUBVOL_SETFLAGS: u32 = 0x4008_941a;
const BY_ID: u64 = 16;

/// As in Linux 6.18: these two ioctls commit; those that make or delete subvolumes do not.
#[test]
fn a_snapshot_and_a_read_only_flag_are_durable_when_the_ioctl_returns() {
    let served = served();
    served.volume.create_subvolume("sub").unwrap();
    let id = served.volume.metadata("sub").unwrap().home.subvolume;
    served.volume.write("sub/file", b"contents").unwrap();
    let parts: [(usize, &[u8]); 3] = [(8, &id.to_le_bytes()), (16, &BY_ID.to_le_bytes()), (56, b"snap")];
    served.control(SNAP_CREATE_V2, NodeId::ROOT, &parts, 4096);
    served.after_crash(|volume| assert_eq!(volume.read("snap/file").unwrap(), b"contents"));
    let sub = served.find("sub");
    served.control(SUBVOL_SETFLAGS, sub, &[(0, &2_u64.to_le_bytes())], 8);
    served.after_crash(|volume| {
        let infos = volume.subvolumes().unwrap();
        assert!(infos.iter().any(|info| info.path == "sub" && info.read_only));
    });
    served.control(SUBVOL_SETFLAGS, sub, &[(0, &0_u64.to_le_bytes())], 8);
    served.after_crash(|volume| volume.write("sub/file", b"more").unwrap());
    served.finish();
}

/// Writes that finished before a snapshot, or before the read-only flag, are in the subvolume.
#[test]
fn finished_writes_are_in_a_snapshot_and_in_a_read_only_subvolume() {
    let served = served();
    served.volume.create_subvolume("sub").unwrap();
    let sub = served.find("sub");
    // Small, large, across a hole, over existing data, in place.
    let node = served.file(sub, "small").node;
    served.write(node, 0, b"small");
    let large = served.file(sub, "large").node;
    served.write(large, 0, &[1; 1 << 20]);
    served.write(large, 3 << 20, &[2; 100_000]);
    let in_place = served.file(sub, "in place").node;
    served.set_flags(in_place, NodeFlags::NOCOW);
    served.write(in_place, 0, &[3; 100_000]);
    served.fs.sync_fs().unwrap();
    served.write(in_place, 5000, &[4; 5000]);
    served.write(large, 100, b"over it");
    let seen = |volume: &Volume, dir: &str| {
        let read = |name: &str| volume.read(format!("{dir}/{name}")).unwrap();
        assert_eq!(read("small"), b"small");
        let large = read("large");
        assert_eq!((large.len(), &large[100..107]), ((3 << 20) + 100_000, &b"over it"[..]));
        assert_eq!(large[3 << 20..], [2; 100_000]);
        let in_place = read("in place");
        assert_eq!((in_place[4999], in_place[5000], in_place[9999]), (3, 4, 4));
    };
    served.volume.snapshot("sub", "snap", SnapshotMode::ReadOnly).unwrap();
    seen(&served.volume, "snap");
    served.write(node, 0, b"SMALL");
    served.write(node, 0, b"small");
    served.volume.set_subvolume_read_only("sub", true).unwrap();
    let refused = served.fs.write(node, Handle(0), 0, b"x", WriteFlags::default());
    assert_eq!(refused.map_err(Errno::from), Err(Errno::EROFS));
    served.volume.sync().unwrap();
    served.after_crash(|volume| {
        seen(volume, "snap");
        seen(volume, "sub");
    });
    served.finish();
}

/// Threads write while the flag is set: every write that succeeded is in the subvolume.
#[test]
fn writers_that_race_with_a_read_only_flag_lose_nothing() {
    let served = served();
    served.volume.create_subvolume("sub").unwrap();
    let sub = served.find("sub");
    for round in 0..30_u64 {
        let node = served.file(sub, &format!("f{round}")).node;
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut written = 0;
                while written < 2000 {
                    let flags = WriteFlags::default();
                    let at = written * 1000;
                    match served.fs.write(node, Handle(0), at, &[7; 1000], flags) {
                        Ok(_) => written += 1,
                        Err(error) if error.errno() == Errno::EROFS => break,
                        Err(error) => panic!("{error:?}"),
                    }
                }
                written
            });
            std::thread::sleep(std::time::Duration::from_micros(200 * round));
            served.volume.set_subvolume_read_only("sub", true).unwrap();
            // One call may have been admitted before.
            writer.join().unwrap()
        });
        served.volume.sync().unwrap();
        let size = served.after_crash(|volume| volume.metadata(format!("sub/f{round}")).unwrap().size);
        assert!(size >= written * 1000, "round {round}: {size} of {}", written * 1000);
        served.volume.set_subvolume_read_only("sub", false).unwrap();
    }
    served.finish();
}

#[test]
fn changes_of_a_synchronous_file_are_durable_at_once() {
    let served = served();
    let fs = &*served.fs;
    let node = served.file(NodeId::ROOT, "file").node;
    served.set_flags(node, NodeFlags::SYNC);
    fs.sync_fs().unwrap();
    let bytes = |volume: &Volume| volume.read("file").unwrap();
    served.write(node, 0, b"hello");
    assert_eq!(served.after_crash(bytes), b"hello");
    served.write(node, 5, &[7; 200_000]);
    assert_eq!(served.after_crash(bytes).len(), 200_005);
    let size = SetAttr { size: Some(3), ..SetAttr::default() };
    fs.set_attr(&ROOT, node, &size).unwrap();
    assert_eq!(served.after_crash(bytes), b"hel");
    let mode = SetAttr { permissions: Some(0o604), ..SetAttr::default() };
    fs.set_attr(&ROOT, node, &mode).unwrap();
    let mode = served.after_crash(|volume| volume.metadata("file").unwrap().mode());
    assert_eq!(mode & 0o7777, 0o604);
    fs.set_xattr(node, b"user.a", b"b", XattrMode::Either, false).unwrap();
    let value = |volume: &Volume| volume.get_xattr("file", "user.a").unwrap();
    assert_eq!(served.after_crash(value), Some(b"b".to_vec()));
    fs.remove_xattr(node, b"user.a").unwrap();
    assert_eq!(served.after_crash(value), None);
    fs.allocate(node, AllocateFlags::empty(), 0, 50_000).unwrap();
    assert_eq!(served.after_crash(bytes).len(), 50_000);
    let source = served.file(NodeId::ROOT, "source").node;
    served.write(source, 0, &[9; 80_000]);
    let range = CopyRange { source, source_offset: 0, target: node, target_offset: 50_000, len: 80_000 };
    assert_eq!(fs.copy_range(&range).unwrap(), 80_000);
    assert_eq!(served.after_crash(bytes)[50_000..], [9; 80_000]);
    let flags = OpenFlags::WRITE | OpenFlags::TRUNCATE;
    let handle = fs.open(&ROOT, node, flags).unwrap();
    assert_eq!(served.after_crash(bytes), b"");
    fs.release(node, handle);
    // Changes of a file without the flag are not durable yet.
    let plain = served.file(NodeId::ROOT, "plain").node;
    fs.sync_fs().unwrap();
    served.write(plain, 0, b"later");
    assert_eq!(served.after_crash(|volume| volume.read("plain").unwrap()), b"");
    served.finish();
}

#[test]
fn names_in_a_synchronous_directory_are_durable_at_once() {
    for flag in [NodeFlags::SYNC, NodeFlags::DIRSYNC] {
        let served = served();
        let fs = &*served.fs;
        let dir = served.make(NodeId::ROOT, "dir", NodeKind::Directory).node;
        let plain = served.make(NodeId::ROOT, "plain", NodeKind::Directory).node;
        served.set_flags(dir, flag);
        let old = served.file(plain, "old").node;
        served.write(old, 0, b"old");
        fs.sync_fs().unwrap();
        let has = |path: &str| served.after_crash(|volume| volume.exists(path).unwrap());
        let file = served.file(dir, "file").node;
        assert!(has("dir/file"), "{flag:?}");
        served.make(dir, "sub", NodeKind::Directory);
        assert!(has("dir/sub"));
        served.make(dir, "link", NodeKind::Symlink);
        let target = served.after_crash(|volume| volume.read_link("dir/link").unwrap());
        assert_eq!(target.to_str(), Some("where"));
        served.make(dir, "fifo", NodeKind::Fifo);
        assert!(has("dir/fifo"));
        fs.link(old, dir, b"hard").unwrap();
        let read = served.after_crash(|volume| volume.read("dir/hard").unwrap());
        assert_eq!(read, b"old");
        let rename = |from: (NodeId, &str), to: (NodeId, &str), flags| {
            let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
            fs.rename(&ROOT, from, to, flags).unwrap();
        };
        rename((dir, "file"), (dir, "renamed"), RenameFlags::empty());
        assert!(has("dir/renamed") && !has("dir/file"));
        // Renames out of the directory, into it, and over a name in it.
        rename((dir, "renamed"), (plain, "out"), RenameFlags::empty());
        assert!(has("plain/out") && !has("dir/renamed"));
        rename((plain, "out"), (dir, "in"), RenameFlags::empty());
        assert!(has("dir/in") && !has("plain/out"));
        rename((plain, "old"), (dir, "in"), RenameFlags::empty());
        let read = served.after_crash(|volume| volume.read("dir/in").unwrap());
        assert_eq!(read, b"old");
        rename((dir, "in"), (dir, "fifo"), RenameFlags::EXCHANGE);
        let read = served.after_crash(|volume| volume.read("dir/fifo").unwrap());
        assert_eq!(read, b"old");
        fs.unlink(dir, b"hard").unwrap();
        assert!(!has("dir/hard"));
        fs.remove_dir(dir, b"sub").unwrap();
        assert!(!has("dir/sub"));
        fs.forget(file, 1);
        // New names in a directory without the flag are not durable yet.
        fs.sync_fs().unwrap();
        served.file(plain, "later");
        assert!(!has("plain/later"));
        served.finish();
    }
}

#[test]
fn the_library_keeps_the_promise_of_synchronous_files_too() {
    let (image, volume) = Image::make();
    volume.create_dir("dir").unwrap();
    volume.write("file", b"").unwrap();
    volume.set_flags("file", NodeFlags::SYNC).unwrap();
    volume.set_flags("dir", NodeFlags::DIRSYNC).unwrap();
    volume.sync().unwrap();
    let crashed = |look: &dyn Fn(&Volume)| {
        let copy = tempfile::NamedTempFile::new().unwrap();
        std::fs::copy(image.file.path(), copy.path()).unwrap();
        let volume = Volume::open(copy.path()).unwrap();
        look(&volume);
        volume.close().unwrap();
        check(copy.path());
    };
    let options = FileOptions::new().read(true).write(true);
    let file = options.open(&volume, "file").unwrap();
    file.write_at(b"hello", 0).unwrap();
    crashed(&|volume| assert_eq!(volume.read("file").unwrap(), b"hello"));
    file.set_len(2).unwrap();
    crashed(&|volume| assert_eq!(volume.read("file").unwrap(), b"he"));
    volume.set_permissions("file", 0o640).unwrap();
    crashed(&|volume| assert_eq!(volume.metadata("file").unwrap().permissions, 0o640));
    let either = vfs::file_system::XattrMode::Either;
    volume.set_xattr("file", "user.a", "b", either).unwrap();
    crashed(&|volume| assert!(volume.get_xattr("file", "user.a").unwrap().is_some()));
    volume.create_dir("dir/sub").unwrap();
    crashed(&|volume| assert!(volume.exists("dir/sub").unwrap()));
    File::create(&volume, "dir/new").unwrap();
    crashed(&|volume| assert!(volume.exists("dir/new").unwrap()));
    volume.hard_link("file", "dir/hard").unwrap();
    crashed(&|volume| assert_eq!(volume.read("dir/hard").unwrap(), b"he"));
    volume.rename("dir/hard", "dir/new").unwrap();
    crashed(&|volume| assert_eq!(volume.read("dir/new").unwrap(), b"he"));
    volume.remove_file("dir/new").unwrap();
    crashed(&|volume| assert!(!volume.exists("dir/new").unwrap()));
    volume.remove_dir("dir/sub").unwrap();
    crashed(&|volume| assert!(!volume.exists("dir/sub").unwrap()));
    drop(file);
    volume.close().unwrap();
    check(image.file.path());
}
