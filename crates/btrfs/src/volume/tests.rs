//! Images that only other tools make, and operations that the kernel refuses on them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use vfs::file_system::{
    Caller, Errno, FileSystem, NewNode, NodeId, NodeKind, OpenFlags, RenameFlags, SetAttr, XattrMode,
};

use crate::FsOptions;
use crate::MakeOptions;
use crate::inode::InodeFlags;
use crate::subvol::SnapshotMode;
use crate::volume::Volume;

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1 };

fn made() -> (tempfile::NamedTempFile, Volume, Arc<dyn FileSystem>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = MakeOptions { size: Some(256 << 20), ..MakeOptions::default() };
    let volume = Volume::make(file.path(), &options).unwrap();
    let fs = volume.serve(FsOptions::default()).unwrap();
    (file, volume, fs)
}

fn make(fs: &Arc<dyn FileSystem>, dir: NodeId, name: &[u8], kind: NodeKind) -> NodeId {
    let new = NewNode { kind, permissions: 0o755, ..NewNode::default() };
    fs.create(&ROOT, dir, name, &new).unwrap().node
}

/// Sets the flag that btrfs-convert gives to the image of the file system that was converted.
fn set_read_only(volume: &Volume, fs: &Arc<dyn FileSystem>, path: &[u8]) {
    let ino = fs.lookup(NodeId::ROOT, path).unwrap().attr.ino;
    let root = volume.core().root_dir(volume.open.top).unwrap();
    let inode = volume.core().inode(root.tree_id(), btrfs_disk::InodeNo(ino)).unwrap();
    let reservation = volume.namespace().reserve(1).unwrap();
    let set = volume.namespace().apply(reservation, |txn| {
        inode.change(txn, |state| state.flags |= InodeFlags::READONLY);
        Ok(())
    });
    set.unwrap();
}

#[test]
fn an_inode_with_the_flag_read_only_is_not_written() {
    let (_file, volume, fs) = made();
    let file = make(&fs, NodeId::ROOT, b"image", NodeKind::File);
    let dir = make(&fs, NodeId::ROOT, b"dir", NodeKind::Directory);
    let other = make(&fs, NodeId::ROOT, b"other", NodeKind::Directory);
    make(&fs, dir, b"child", NodeKind::File);
    set_read_only(&volume, &fs, b"image");
    set_read_only(&volume, &fs, b"dir");
    for flags in [OpenFlags::WRITE, OpenFlags::WRITE | OpenFlags::APPEND] {
        assert_eq!(fs.open(&ROOT, file, flags).map_err(Errno::from), Err(Errno::EACCES));
    }
    let size = SetAttr { size: Some(5), ..SetAttr::default() };
    assert_eq!(fs.set_attr(&ROOT, file, &size).map_err(Errno::from), Err(Errno::EACCES));
    let set = |node, name: &[u8]| fs.set_xattr(node, name, b"1", XattrMode::Either, false).map_err(Errno::from);
    assert_eq!(set(file, b"user.a"), Err(Errno::EACCES));
    assert_eq!(set(file, b"btrfs.compression"), Err(Errno::EACCES));
    assert_eq!(set(file, b"security.a"), Ok(()));
    let new = NewNode::default();
    assert_eq!(fs.create(&ROOT, dir, b"new", &new).map(drop).map_err(Errno::from), Err(Errno::EACCES));
    assert_eq!(fs.unlink(dir, b"child").map_err(Errno::from), Err(Errno::EACCES));
    let rename = |to, name: &[u8]| {
        let moved = fs.rename(&ROOT, (NodeId::ROOT, b"dir"), (to, name), RenameFlags::empty());
        moved.map_err(Errno::from)
    };
    assert_eq!(rename(other, b"dir"), Err(Errno::EACCES));
    // Its name can change, and so can its owner and mode.
    let mode = SetAttr { permissions: Some(0o700), ..SetAttr::default() };
    assert_eq!(fs.set_attr(&ROOT, file, &mode).unwrap().permissions, 0o700);
    assert_eq!(rename(NodeId::ROOT, b"renamed"), Ok(()));
    let refused = volume.write("/image", "x").unwrap_err();
    assert_eq!(refused.errno(), Errno::EACCES);
}

#[test]
fn a_read_only_subvolume_stays_in_its_directory() {
    let (_file, volume, fs) = made();
    make(&fs, NodeId::ROOT, b"dir", NodeKind::Directory);
    volume.create_subvolume("/sub").unwrap();
    volume.snapshot("/sub", "/snap", SnapshotMode::ReadOnly).unwrap();
    let dir = fs.lookup(NodeId::ROOT, b"dir").unwrap().node;
    let none = RenameFlags::empty();
    let moved = |name: &[u8], to| fs.rename(&ROOT, (NodeId::ROOT, name), (to, b"moved"), none).map_err(Errno::from);
    assert_eq!(moved(b"snap", dir), Err(Errno::EROFS));
    let swap = fs.rename(&ROOT, (dir, b"moved"), (NodeId::ROOT, b"snap"), RenameFlags::EXCHANGE);
    assert_eq!(swap.map_err(Errno::from), Err(Errno::ENOENT));
    assert_eq!(moved(b"sub", dir), Ok(()));
    let swap = fs.rename(&ROOT, (dir, b"moved"), (NodeId::ROOT, b"snap"), RenameFlags::EXCHANGE);
    assert!(swap.is_err(), "{swap:?}");
    assert_eq!(moved(b"snap", NodeId::ROOT), Ok(()));
}
