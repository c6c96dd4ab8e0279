//! Names, links, attributes and subvolumes through the public API, on image files. Every image
//! a test leaves is opened again, and passes `btrfs check` where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use vfs::file_system::SetTime;
use vfs::{Errno, Error};

use btrfs::{MakeOptions, Volume};

use common::{Image, check, what};
use vfs::file_system::{NodeKind, RenameFlags, SetAttr, Time, WholeNode, XattrMode};
use vfs::{File, FileOptions, SnapshotMode};

fn names(volume: &Volume, dir: &str) -> Vec<String> {
    let entries = volume.read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_kind_of_file_survives_a_reopen() {
    let (image, volume) = Image::make();
    volume.create_dir("dir").unwrap();
    volume.write("dir/small", b"hello").unwrap();
    volume.write("dir/large", vec![7; 300_000]).unwrap();
    volume.symlink("dir/small", "link").unwrap();
    volume.mknod("fifo", NodeKind::Fifo, 0o600, 0).unwrap();
    volume.mknod("null", NodeKind::CharDevice, 0o666, 0x103).unwrap();
    volume.mknod("sock", NodeKind::Socket, 0o755, 0).unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("link").unwrap(), b"hello");
    assert_eq!(volume.read("dir/large").unwrap(), vec![7; 300_000]);
    assert_eq!(volume.read_link("link").unwrap(), Path::new("dir/small"));
    assert_eq!(volume.symlink_metadata("link").unwrap().kind, NodeKind::Symlink);
    let null = volume.metadata("null").unwrap();
    assert_eq!((null.kind, null.rdev, null.mode()), (NodeKind::CharDevice, 0x103, 0o020_666));
    assert_eq!(volume.metadata("fifo").unwrap().kind, NodeKind::Fifo);
    assert_eq!(names(&volume, "/"), ["dir", "link", "fifo", "null", "sock"]);
    assert_eq!(volume.metadata("dir").unwrap().size, 20);
    assert_eq!(volume.metadata("dir").unwrap().nlink, 1);
}

#[test]
fn mistakes_have_names() {
    let (_image, volume) = Image::make();
    volume.create_dir("dir").unwrap();
    volume.write("file", b"x").unwrap();
    volume.symlink("loop", "loop").unwrap();
    assert_eq!(what(volume.create_dir("dir")), Errno::EEXIST);
    assert_eq!(what(volume.create_dir("none/dir")), Errno::ENOENT);
    assert_eq!(what(volume.create_dir("file/dir")), Errno::ENOTDIR);
    assert_eq!(what(volume.create_dir("dir/.")), Errno::EINVAL);
    assert_eq!(what(volume.metadata("loop")), Errno::ELOOP);
    assert_eq!(what(volume.metadata("file/")), Errno::ENOTDIR);
    assert_eq!(what(volume.metadata("")), Errno::ENOENT);
    assert_eq!(what(volume.remove_file("dir")), Errno::EISDIR);
    assert_eq!(what(volume.remove_dir("file")), Errno::ENOTDIR);
    assert_eq!(what(volume.hard_link("dir", "hard")), Errno::EPERM);
    assert_eq!(what(volume.read_link("file")), Errno::EINVAL);
    let long = "n".repeat(256);
    assert_eq!(what(volume.create_dir(&long)), Errno::ENAMETOOLONG);
    assert_eq!(what(volume.metadata(&long)), Errno::ENAMETOOLONG);
    volume.create_dir(&long[..255]).unwrap();
    volume.create_dir("dir/sub").unwrap();
    assert_eq!(what(volume.remove_dir("dir")), Errno::ENOTEMPTY);
    let error = volume.metadata("dir/none").unwrap_err();
    assert_eq!(error.to_string(), "dir/none: no such file or directory");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn paths_go_through_links_and_dots() {
    let (_image, volume) = Image::make();
    volume.create_dir_all("a/b/c").unwrap();
    volume.write("a/file", b"1").unwrap();
    volume.symlink("../..", "a/b/up").unwrap();
    volume.symlink("/a/b", "a/abs").unwrap();
    assert_eq!(volume.read("a/b/up/a/file").unwrap(), b"1");
    assert_eq!(volume.read("a/abs/../file").unwrap(), b"1");
    assert_eq!(volume.read("//a//b/./c/../../file").unwrap(), b"1");
    assert_eq!(volume.read("../../a/file").unwrap(), b"1");
    volume.create_subvolume("a/sub").unwrap();
    assert_eq!(volume.read("a/sub/../file").unwrap(), b"1");
    assert_eq!(what(volume.read("a/file/../file")), Errno::ENOTDIR);
}

#[test]
fn links_count_and_the_last_one_takes_the_file() {
    let (image, volume) = Image::make();
    volume.write("one", b"data").unwrap();
    volume.create_dir("dir").unwrap();
    volume.hard_link("one", "dir/two").unwrap();
    volume.hard_link("one", "three").unwrap();
    assert_eq!(volume.metadata("three").unwrap().nlink, 3);
    volume.remove_file("one").unwrap();
    volume.rename("dir/two", "two").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.metadata("two").unwrap().nlink, 2);
    assert_eq!(volume.read("three").unwrap(), b"data");
    volume.remove_file("two").unwrap();
    volume.remove_file("three").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(names(&volume, "/"), ["dir"]);
}

/// One inode with more names in one directory than an `INODE_REF` item can hold.
#[test]
fn names_spill_into_extended_references() {
    for nodesize in [4096, 16384] {
        let (image, volume) = Image::make_with(MakeOptions { nodesize, ..MakeOptions::default() });
        volume.write("first", b"x").unwrap();
        let name = |n: u32| format!("{}{n}", "long-name-".repeat(20));
        for n in 0..200 {
            volume.hard_link("first", name(n)).unwrap();
        }
        let volume = image.reopen(volume);
        assert_eq!(volume.metadata("first").unwrap().nlink, 201);
        for n in (0..200).rev().step_by(2) {
            volume.remove_file(name(n)).unwrap();
        }
        volume.rename(name(100), name(1000)).unwrap();
        let volume = image.reopen(volume);
        assert_eq!(volume.metadata("first").unwrap().nlink, 101);
        assert!(volume.exists(name(1000)).unwrap());
    }
}

#[test]
fn renames_replace_exchange_and_refuse() {
    let (image, volume) = Image::make();
    volume.create_dir_all("a/b").unwrap();
    volume.create_dir("c").unwrap();
    volume.write("f", b"f").unwrap();
    volume.write("g", vec![1; 2_000_000]).unwrap();
    assert_eq!(what(volume.rename("a", "a/b/a")), Errno::EINVAL);
    volume.rename("a", "a").unwrap();
    assert_eq!(what(volume.rename("f", "c")), Errno::EISDIR);
    assert_eq!(what(volume.rename("c", "f")), Errno::ENOTDIR);
    assert_eq!(what(volume.rename("c", "a")), Errno::ENOTEMPTY);
    assert_eq!(what(volume.rename("none", "a")), Errno::ENOENT);
    assert_eq!(what(volume.rename_with("f", "g", RenameFlags::NO_REPLACE)), Errno::EEXIST);
    volume.rename_with("f", "a/b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(volume.read("a/b").unwrap(), b"f");
    assert!(volume.metadata("f").unwrap().is_dir());
    volume.rename("a/b", "g").unwrap();
    volume.rename("a", "c").unwrap();
    volume.rename("f", "c/f").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.read("g").unwrap(), b"f");
    assert_eq!(names(&volume, "/"), ["g", "c"]);
    assert_eq!(names(&volume, "c"), ["f"]);
    assert_eq!(volume.metadata("/").unwrap().size, 4);
}

#[test]
fn attributes_are_set_found_and_bounded() {
    let (image, volume) = Image::make();
    volume.write("f", b"").unwrap();
    volume.set_xattr("f", "user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(what(volume.set_xattr("f", "user.a", b"2", XattrMode::Create)), Errno::EEXIST);
    assert_eq!(what(volume.set_xattr("f", "user.b", b"2", XattrMode::Replace)), Errno::ENODATA);
    volume.set_xattr("f", "user.a", vec![5; 10_000], XattrMode::Either).unwrap();
    volume.set_xattr("f", "user.empty", b"", XattrMode::Either).unwrap();
    volume.set_xattr("f", "user.gone", b"x", XattrMode::Either).unwrap();
    volume.remove_xattr("f", "user.gone").unwrap();
    assert_eq!(what(volume.remove_xattr("f", "user.gone")), Errno::ENODATA);
    assert_eq!(what(volume.set_xattr("f", "user.big", vec![0; 17_000], XattrMode::Either)), Errno::ENOSPC);
    let time = Time::new(-1, 5);
    let changes = SetAttr {
        permissions: Some(0o4711),
        uid: Some(7),
        mtime: Some(SetTime::To(time)),
        btime: Some(time),
        ..SetAttr::default()
    };
    volume.set_attributes("f", &changes).unwrap();
    let volume = image.reopen(volume);
    assert_eq!(volume.get_xattr("f", "user.a").unwrap(), Some(vec![5; 10_000]));
    assert_eq!(volume.get_xattr("f", "user.empty").unwrap(), Some(vec![]));
    assert_eq!(volume.get_xattr("f", "user.gone").unwrap(), None);
    assert_eq!(volume.list_xattrs("f").unwrap().len(), 2);
    let metadata = volume.metadata("f").unwrap();
    assert_eq!((metadata.mode(), metadata.uid, metadata.gid), (0o104_711, 7, 0));
    assert_eq!((metadata.mtime, metadata.btime), (time, time));
}

#[test]
fn imported_nodes_keep_what_they_are_given() {
    let (image, volume) = Image::make();
    let time = Time::new(1_000_000_000, 123_456_789);
    let acl: &[u8] = &[2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255];
    let xattrs: &[(&[u8], &[u8])] = &[(b"user.z", b"last"), (b"system.posix_acl_access", acl), (b"user.a", b"first")];
    let node = WholeNode {
        permissions: 0o2755,
        uid: 1,
        gid: 2,
        atime: Some(time),
        mtime: Some(time),
        ctime: Some(time),
        btime: Some(time),
        xattrs,
        ..WholeNode::default()
    };
    let mut small = node;
    small.data = b"inline";
    let mut large = node;
    large.data = &[9; 50_000];
    let mut link = node;
    (link.kind, link.target) = (NodeKind::Symlink, b"small");
    let mut dir = node;
    dir.kind = NodeKind::Directory;
    for (name, node) in [("small", small), ("large", large), ("link", link), ("dir", dir)] {
        volume.create_node(name, &node).unwrap();
    }
    let volume = image.reopen(volume);
    assert_eq!(volume.read("link").unwrap(), b"inline");
    assert_eq!(volume.read("large").unwrap(), vec![9; 50_000]);
    for name in ["small", "large", "link"] {
        let found = volume.symlink_metadata(name).unwrap();
        assert_eq!((found.permissions, found.uid, found.gid), (0o2755, 1, 2), "{name}");
        assert_eq!((found.atime, found.mtime, found.btime), (time, time, time), "{name}");
        assert_eq!(volume.list_xattrs(name).unwrap().len(), 3);
        // Symbolic links have no access control lists, whatever attributes they are given.
        match volume.get_xattr(name, "system.posix_acl_access") {
            Err(error) => assert_eq!((name, error.errno()), ("link", Errno::EOPNOTSUPP)),
            found => assert_eq!(found.unwrap().unwrap(), acl),
        }
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let (image, volume) = Image::make();
    volume.write("f", vec![3; 5_000_000]).unwrap();
    let file = FileOptions::new().read(true).write(true).open(&volume, "f").unwrap();
    volume.remove_file("f").unwrap();
    assert!(!volume.exists("f").unwrap());
    assert_eq!(file.metadata().unwrap().nlink, 0);
    file.write_at(b"still", 0).unwrap();
    volume.sync().unwrap();
    let mut buffer = [0; 6];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
    assert_eq!(&buffer, b"still\x03");
    drop(file);
    let unnamed = File::unnamed(&volume, "/").unwrap();
    unnamed.write_at(&[1; 100_000], 0).unwrap();
    unnamed.link("named").unwrap();
    drop(unnamed);
    drop(File::unnamed(&volume, "/").unwrap());
    let volume = image.reopen(volume);
    assert_eq!(names(&volume, "/"), ["named"]);
    assert_eq!(volume.read("named").unwrap(), vec![1; 100_000]);
}

/// The process dies while files without names are open: the next open finds and removes them.
#[test]
fn a_crash_with_open_files_leaves_no_orphans() {
    let (image, volume) = Image::make();
    volume.write("large", vec![3; 3_000_000]).unwrap();
    volume.write("small", b"x").unwrap();
    let open = ["large", "small"].map(|name| File::open(&volume, name).unwrap());
    let unnamed = File::unnamed(&volume, "/").unwrap();
    unnamed.write_at(&[1; 100_000], 0).unwrap();
    volume.remove_file("large").unwrap();
    volume.remove_file("small").unwrap();
    volume.sync().unwrap();
    let crashed = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(image.file.path(), crashed.path()).unwrap();
    drop((open, unnamed));
    check(crashed.path());
    let reopened = Volume::open(crashed.path()).unwrap();
    assert_eq!(reopened.read_dir("/").unwrap().count(), 0);
    reopened.close().unwrap();
    check(crashed.path());
    let used = |path: &Path| {
        let volume = Volume::options().read_only(true).open(path).unwrap();
        volume.info().unwrap().used_bytes
    };
    let before = used(crashed.path());
    assert!(before < 1 << 20, "{before} bytes are still in use");
}

#[test]
fn snapshots_keep_what_was_there() {
    let (image, volume) = Image::make();
    volume.create_subvolume("sub").unwrap();
    volume.create_dir("sub/dir").unwrap();
    for n in 0..500 {
        volume.write(format!("sub/dir/{n}"), format!("contents {n}").repeat(n)).unwrap();
    }
    volume.create_subvolume("sub/nested").unwrap();
    volume.write("sub/nested/inside", b"x").unwrap();
    volume.snapshot("sub", "snap", SnapshotMode::ReadWrite).unwrap();
    volume.snapshot("sub", "sub/frozen", SnapshotMode::ReadOnly).unwrap();
    assert_eq!(what(volume.write("sub/frozen/new", b"")), Errno::EROFS);
    assert_eq!(what(volume.hard_link("sub/dir/1", "hard")), Errno::EXDEV);
    assert_eq!(what(volume.rename("sub/dir/1", "moved")), Errno::EXDEV);
    for n in 0..250 {
        volume.remove_file(format!("sub/dir/{n}")).unwrap();
        volume.write(format!("snap/dir/{n}"), b"new").unwrap();
    }
    let volume = image.reopen(volume);
    assert_eq!(volume.read("snap/dir/3").unwrap(), b"new");
    assert_eq!(volume.read("sub/frozen/dir/3").unwrap(), "contents 3".repeat(3).as_bytes());
    assert_eq!(names(&volume, "snap"), ["dir", "nested"]);
    assert_eq!(names(&volume, "snap/nested"), Vec::<String>::new());
    assert_eq!(what(volume.write("snap/nested/new", b"")), Errno::EPERM);
    let listed = volume.subvolumes().unwrap();
    let paths: Vec<_> = listed.iter().map(|info| info.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["sub", "sub/nested", "snap", "sub/frozen"]);
    assert_eq!(listed[2].parent_uuid, listed[0].uuid);
    assert!(listed[3].read_only && !listed[2].read_only);
    assert_eq!(what(volume.delete_subvolume("sub")), Errno::ENOTEMPTY);
    assert_eq!(what(volume.rename("sub/frozen", "frozen")), Errno::EROFS);
    volume.rename("sub/frozen", "sub/frozen 2").unwrap();
    let volume = image.reopen(volume);
    volume.delete_subvolume("sub/frozen 2").unwrap();
    volume.remove_dir("snap/nested").unwrap();
    let volume = image.reopen(volume);
    volume.remove_dir_all("sub").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(names(&volume, "/"), ["snap"]);
    volume.set_default_subvolume("snap").unwrap();
    assert_eq!(what(volume.delete_subvolume("snap")), Errno::EBUSY);
    let volume = image.reopen(volume);
    assert_eq!(volume.read("dir/3").unwrap(), b"new");
    assert_eq!(volume.read("dir/400").unwrap(), "contents 400".repeat(400).as_bytes());
}

/// Directories with colliding names: crc32c is easy to collide, so all names share one hash.
#[test]
fn names_with_one_hash_live_together() {
    let (image, volume) = Image::make();
    let names = colliding_names(30);
    for name in &names {
        volume.write(name, name.as_bytes()).unwrap();
        volume.set_xattr("/", format!("user.{name}"), b"v", XattrMode::Create).unwrap();
    }
    let volume = image.reopen(volume);
    for (n, name) in names.iter().enumerate() {
        assert_eq!(volume.read(name).unwrap(), name.as_bytes());
        match n % 3 {
            0 => volume.remove_file(name).unwrap(),
            1 => volume.rename(name, format!("renamed{n}")).unwrap(),
            _ => volume.remove_xattr("/", format!("user.{name}")).unwrap(),
        }
    }
    let volume = image.reopen(volume);
    assert_eq!(volume.read_dir("/").unwrap().count(), 20);
    assert_eq!(volume.list_xattrs("/").unwrap().len(), 20);
}

/// Names of 40 letters with equal crc32c: found by searching the span of letter flips.
fn colliding_names(count: usize) -> Vec<String> {
    // crc32c is linear: flipping bit 5 of a letter changes the hash by a constant for its place.
    let base = "a".repeat(64);
    let hash = |name: &str| btrfs_disk::hash::name_hash(name.as_bytes());
    let flip = |places: &[usize]| {
        let mut letters = base.clone().into_bytes();
        places.iter().for_each(|place| letters[*place] ^= 0x20);
        String::from_utf8(letters).unwrap()
    };
    // Gaussian elimination over the places: each dependent place gives one combination that
    // leaves the hash as it is.
    let mut rows: Vec<(u64, u64)> = Vec::new();
    let mut kernel: Vec<u64> = Vec::new();
    for place in 0..64 {
        let mut value = hash(&flip(&[place])) ^ hash(&base);
        let mut places = 1_u64 << place;
        for (row, combination) in &rows {
            if value ^ row < value {
                value ^= row;
                places ^= combination;
            }
        }
        if value == 0 {
            kernel.push(places);
        } else {
            rows.push((value, places));
            rows.sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    let names: Vec<String> = (0..count)
        .map(|n| {
            let places = kernel
                .iter()
                .enumerate()
                .filter(|(bit, _)| n >> bit & 1 == 1)
                .fold(0, |places, (_, combination)| places ^ combination);
            flip(&(0..64).filter(|place| places >> place & 1 == 1).collect::<Vec<_>>())
        })
        .collect();
    assert!(names.iter().all(|name| hash(name) == hash(&base)));
    names
}

#[test]
fn four_threads_in_one_tree() {
    let (image, volume) = Image::make();
    volume.create_dir("shared").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = volume.clone();
            scope.spawn(move || churn(&volume, thread));
        }
    });
    let volume = image.reopen(volume);
    volume.remove_dir_all("shared").unwrap();
    let volume = image.reopen(volume);
    assert!(names(&volume, "/").iter().all(|name| name.starts_with("own")));
}

/// Works in a directory of its own and in a shared one: collisions are expected and may fail by name only.
fn churn(volume: &Volume, thread: u32) {
    let own = format!("own{thread}");
    volume.create_dir(&own).unwrap();
    let expected = |result: Result<(), Error>| {
        if let Err(error) = result {
            assert!(error.blame() == vfs::Blame::Caller, "{error}");
        }
    };
    let mut state = u64::from(thread) + 1;
    for n in 0..400 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let pick = |from: u32| (state >> from) % 20;
        let (a, b) = (format!("shared/{}", pick(33)), format!("shared/{}", pick(43)));
        match pick(53) % 8 {
            0 => expected(volume.write(&a, vec![1; 10_000])),
            1 => expected(volume.remove_file(&a)),
            2 => expected(volume.rename(&a, &b)),
            3 => expected(volume.hard_link(&a, &b)),
            4 => expected(volume.rename_with(&a, &b, RenameFlags::EXCHANGE)),
            5 => expected(volume.rename(&a, format!("{own}/{n}"))),
            6 => expected(volume.create_dir(&a)),
            _ => expected(volume.remove_dir(&a)),
        }
        volume.write(format!("{own}/file{n}"), format!("{n}")).unwrap();
        if n % 100 == 99 {
            volume.sync().unwrap();
        }
    }
}

/// Contents synced while a file had no name are there once a name was synced, by whichever sync.
#[test]
fn a_file_that_was_synced_before_it_had_a_name_keeps_its_contents() {
    let whole = vec![7; 12_345];
    for commits in [false, true] {
        for (how, name) in [("all", "new"), ("data", "new"), ("all", "renamed"), ("file", "new")] {
            let (image, volume) = Image::make();
            volume.create_dir("dir").unwrap();
            volume.sync().unwrap();
            volume.write("other", b"x").unwrap();
            let unnamed = File::unnamed(&volume, "dir").unwrap();
            unnamed.write_at(&whole[..5000], 0).unwrap();
            unnamed.sync_all().unwrap();
            if commits {
                volume.sync().unwrap();
            }
            unnamed.write_at(&whole[5000..], 5000).unwrap();
            match how {
                "data" => unnamed.sync_data().unwrap(),
                _ => unnamed.sync_all().unwrap(),
            }
            unnamed.link("dir/new").unwrap();
            if name != "new" {
                volume.rename("dir/new", "dir/renamed").unwrap();
            }
            match how {
                "file" => unnamed.sync_all().unwrap(),
                _ => File::open(&volume, "dir").unwrap().sync_all().unwrap(),
            }
            let crashed = tempfile::NamedTempFile::new().unwrap();
            std::fs::copy(image.file.path(), crashed.path()).unwrap();
            let reopened = Volume::open(crashed.path()).unwrap();
            let found = reopened.read(Path::new("dir").join(name)).unwrap();
            assert!(found == whole, "{how}, {name}, {commits}: {} bytes", found.len());
            assert_eq!(names(&reopened, "dir"), [name]);
            reopened.close().unwrap();
            check(crashed.path());
        }
    }
}
