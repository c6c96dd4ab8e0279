//! Single properties of volumes that are changed.

use std::sync::Arc;

use f2fs::{F2fs, MakeOptions};
use vfs::file_system::{AllocateFlags, Caller, NewNode, NodeId, NodeKind, OpenFlags, WriteFlags};
use vfs::{FileOptions, FileSystem, Volume};

use crate::{check, make, open};

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1 };

fn new(kind: NodeKind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o755, ..NewNode::default() }
}

fn write(fs: &F2fs, node: NodeId, offset: u64, data: &[u8]) -> Result<usize, vfs::Error> {
    let handle = fs.open(&ROOT, node, OpenFlags::WRITE)?;
    let written = fs.write(node, handle, offset, data, WriteFlags::empty());
    fs.release(node, handle);
    written.map(|written| data.len() - written.missing)
}

/// A full volume is emptied and filled again; the cleaner's moves lose nothing.
#[test]
fn a_full_volume_is_emptied_and_filled_again() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 80 << 20, &MakeOptions::default());
    let fs = open(image.path());
    let mut sizes = Vec::new();
    for round in 0..4_u8 {
        let dir = fs.create(&ROOT, NodeId::ROOT, format!("d{round}").as_bytes(), &new(NodeKind::Directory)).unwrap();
        let mut names: Vec<(String, u8, usize)> = Vec::new();
        loop {
            let index = names.len();
            let name = format!("f{index}");
            let fill = u8::try_from(index % 251).unwrap();
            let Ok(made) = fs.create(&ROOT, dir.node, name.as_bytes(), &new(NodeKind::File)) else { break };
            let len = 20_000 + index * 37 % 90_000;
            let written = write(&fs, made.node, 0, &vec![fill; len]).unwrap_or(0);
            fs.forget(made.node, 1);
            names.push((name, fill, written));
            if written < len {
                break;
            }
        }
        sizes.push(names.len());
        // Every other file is removed, and others are overwritten, so that the rest is scattered.
        for (name, ..) in names.iter().step_by(2) {
            fs.unlink(dir.node, name.as_bytes()).unwrap();
        }
        for (name, fill, written) in names.iter().skip(1).step_by(2) {
            let node = fs.lookup(dir.node, name.as_bytes()).unwrap().node;
            let half = written / 2;
            assert_eq!(write(&fs, node, 0, &vec![fill ^ 0xff; half]).unwrap(), half);
            let mut found = vec![0; *written];
            assert_eq!(fs.read(node, vfs::file_system::Handle(0), 0, &mut found).unwrap(), *written);
            assert!(found[..half].iter().all(|byte| *byte == fill ^ 0xff), "{name}");
            assert!(found[half..].iter().all(|byte| byte == fill), "{name}");
            fs.forget(node, 1);
        }
        fs.sync_fs().unwrap();
        for (name, ..) in names.iter().skip(1).step_by(2) {
            fs.unlink(dir.node, name.as_bytes()).unwrap();
        }
        fs.forget(dir.node, 1);
        fs.remove_dir(NodeId::ROOT, format!("d{round}").as_bytes()).unwrap();
        fs.sync_fs().unwrap();
    }
    let (first, last) = (sizes[0], sizes[3]);
    assert!(first > 200 && last * 100 >= first * 95, "{sizes:?}");
    fs.finish().unwrap();
    drop(fs);
    check(image.path());
}

/// A write without space for all of its bytes writes as many as fit.
#[test]
fn a_write_at_the_end_of_the_room_is_short() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 64 << 20, &MakeOptions::default());
    let fs = open(image.path());
    let made = fs.create(&ROOT, NodeId::ROOT, b"a", &new(NodeKind::File)).unwrap();
    let piece = vec![7; 1 << 20];
    let mut end = 0;
    loop {
        match write(&fs, made.node, end, &piece) {
            Ok(count) => end += u64::try_from(count).unwrap(),
            Err(error) => break assert_eq!(error.errno(), vfs::Errno::ENOSPC),
        }
    }
    assert_eq!(fs.attr(made.node).unwrap().size, end);
    let left = fs.status().unwrap().blocks_available;
    assert!(left < 16, "{left} blocks are left");
    fs.finish().unwrap();
    drop(fs);
    check(image.path());
}

#[test]
fn a_range_that_cannot_be_made_zeros_for_want_of_room_keeps_what_it_had() {
    const LEN: usize = 1 << 20;
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 64 << 20, &MakeOptions::default());
    let fs = open(image.path());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    // Data, and behind it a hole of the same length.
    volume.write("file", vec![7; LEN]).unwrap();
    let file = FileOptions::new().read(true).write(true).open(&volume, "file").unwrap();
    file.set_len(2 << 20).unwrap();
    volume.sync().unwrap();
    for len in [100_000, 4096] {
        for number in 0.. {
            if volume.write(format!("{len}-{number}"), vec![1; len]).is_err() {
                break;
            }
        }
    }
    let zeroed = file.allocate(AllocateFlags::ZERO_RANGE, 0, 2 << 20);
    assert!(zeroed.is_err(), "there is room for the hole");
    let mut data = vec![7; LEN];
    data.resize(2 << 20, 0);
    assert!(volume.read("file").unwrap() == data, "existing data is lost");
    // Allocated blocks need no others.
    file.allocate(AllocateFlags::ZERO_RANGE, 5000, 900_000).unwrap();
    data[5000..905_000].fill(0);
    assert!(volume.read("file").unwrap() == data);
    drop(file);
    volume.close().unwrap();
    drop(fs);
    check(image.path());
    let fs = open(image.path());
    assert!(Volume::new(Arc::<F2fs>::clone(&fs)).read("file").unwrap() == data);
}

/// A checkpoint made to find space has whole operations: no inode without its name, no surplus name.
#[test]
fn a_checkpoint_for_want_of_room_holds_whole_operations() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 64 << 20, &MakeOptions { overprovision: Some(20.0), ..MakeOptions::default() });
    // Holes would be enough space.
    let fs = f2fs::OpenOptions::new().writable(true).mode(f2fs::Mode::Lfs).open(crate::device(image.path())).unwrap();
    let copy = tempfile::NamedTempFile::new().unwrap();
    let version = || fs.info().unwrap().checkpoint;
    let (last, mut seen) = (std::cell::Cell::new(version()), 0);
    let mut look = |what: &str| {
        if version() == last.replace(version()) {
            return;
        }
        seen += 1;
        std::fs::copy(image.path(), copy.path()).unwrap();
        if let Err(error) = crate::is_checked(copy.path()) {
            panic!("{what}: {error}");
        }
    };
    let name = |number: u32| format!("{number}{}", "x".repeat(200));
    for number in 0..5_000_u32 {
        let node = if number % 3 == 0 { new(NodeKind::Directory) } else { new(NodeKind::File) };
        if let Ok(entry) = fs.create(&ROOT, NodeId::ROOT, name(number).as_bytes(), &node) {
            look("creation");
            if number % 3 != 0 {
                let _ = write(&fs, entry.node, 0, &[7; 9000]);
                look("write");
                let (from, to) = (name(number), format!("{}-moved", name(number)));
                let _ = fs.rename(
                    &ROOT,
                    (NodeId::ROOT, from.as_bytes()),
                    (NodeId::ROOT, to.as_bytes()),
                    vfs::file_system::RenameFlags::empty(),
                );
                look("rename");
            }
            fs.forget(entry.node, 1);
        }
        if number % 40 == 39 {
            fs.sync_fs().unwrap();
            last.set(version());
        }
        // The remaining files are scattered.
        if let Some(old) = number.checked_sub(700).filter(|old| old % 19 != 0) {
            for name in [name(old), format!("{}-moved", name(old))] {
                let _ = fs.unlink(NodeId::ROOT, name.as_bytes());
                let _ = fs.remove_dir(NodeId::ROOT, name.as_bytes());
                look("removal");
            }
        }
    }
    assert!(seen > 10, "{seen} checkpoints");
    fs.finish().unwrap();
    drop(fs);
    check(image.path());
}

/// A file removed while open stays until it is closed, and after a crash until the next opening.
#[test]
fn a_file_without_a_name_is_removed_when_it_is_closed() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 64 << 20, &MakeOptions::default());
    let fs = open(image.path());
    let before = fs.status().unwrap();
    let made = fs.create(&ROOT, NodeId::ROOT, b"a", &new(NodeKind::File)).unwrap();
    let handle = fs.open(&ROOT, made.node, OpenFlags::READ | OpenFlags::WRITE).unwrap();
    fs.write(made.node, handle, 0, &[7; 100_000], WriteFlags::empty()).unwrap();
    fs.unlink(NodeId::ROOT, b"a").unwrap();
    fs.sync_fs().unwrap();
    // The image after a crash now.
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(image.path(), copy.path()).unwrap();
    let mut found = [0; 10];
    assert_eq!(fs.read(made.node, handle, 0, &mut found).unwrap(), 10);
    assert_eq!(found, [7; 10]);
    fs.release(made.node, handle);
    fs.forget(made.node, 1);
    assert_eq!(fs.status().unwrap().blocks_free, before.blocks_free);
    fs.finish().unwrap();
    drop(fs);
    check(image.path());
    check(copy.path());
    let fs = open(copy.path());
    assert_eq!(fs.status().unwrap().blocks_free, before.blocks_free);
    fs.finish().unwrap();
    drop(fs);
    check(copy.path());
}

/// Large files, sparse ones too, go through all levels of nodes, and shrink again.
#[test]
fn nodes_of_all_levels_come_and_go() {
    let image = tempfile::NamedTempFile::new().unwrap();
    make(image.path(), 128 << 20, &MakeOptions::default());
    let fs = open(image.path());
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    let before = fs.status().unwrap();
    let made = fs.create(&ROOT, NodeId::ROOT, b"sparse", &new(NodeKind::File)).unwrap();
    let places: [u64; 6] = [0, 4 << 20, 9 << 20, 5 << 30, 9 << 30, 3 << 40];
    for at in places {
        write(&fs, made.node, at, b"here").unwrap();
    }
    fs.sync_fs().unwrap();
    check(image.path());
    for at in places {
        let mut found = [0; 4];
        fs.read(made.node, vfs::file_system::Handle(0), at, &mut found).unwrap();
        assert_eq!(&found, b"here", "{at}");
    }
    for (kept, size) in places.into_iter().enumerate().rev() {
        let changes = vfs::file_system::SetAttr { size: Some(size), ..Default::default() };
        fs.set_attr(&ROOT, made.node, &changes).unwrap();
        fs.sync_fs().unwrap();
        check(image.path());
        assert_eq!(fs.extents(made.node, 0).unwrap().len(), kept);
    }
    fs.forget(made.node, 1);
    drop(volume);
    fs.unlink(NodeId::ROOT, b"sparse").unwrap();
    assert_eq!(fs.status().unwrap().blocks_free, before.blocks_free);
    fs.finish().unwrap();
    drop(fs);
    check(image.path());
}
