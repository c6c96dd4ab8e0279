//! A name in a directory that led to a directory above it never ended a walk.

use super::{Image, reason};
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry, FileKind, RootRefEntry};
use btrfs_disk::key::item_type::{DIR_INDEX, DIR_ITEM, INODE_ITEM, ROOT_ITEM, ROOT_REF};
use btrfs_disk::{Generation, InodeNo, Key, TreeId};
use std::path::PathBuf;

/// Adds `loop` to the directory `dir` of a tree, leading to `location`.
fn add_loop(image: &Image, tree: TreeId, dir: u64, location: Key) {
    let entry = DirEntry::build(location, Generation(1), FileKind::Directory, b"loop");
    let edit = image.edit();
    edit.put_item(tree, &Key::new(dir, DIR_ITEM, name_hash(b"loop")), &entry).unwrap();
    edit.put_item(tree, &Key::new(dir, DIR_INDEX, 99), &entry).unwrap();
}

/// Follows `loop` from `start` until it fails, which it has to do soon.
fn follow(image: &Image, start: &str) -> String {
    let volume = image.read_only();
    let mut path = PathBuf::from(start);
    assert!(volume.read_dir(&path).is_ok());
    for _ in 0..3 {
        path.push("loop");
        if let Err(error) = volume.read_dir(&path) {
            return reason(&error);
        }
    }
    panic!("{} can be listed", path.display());
}

#[test]
fn a_directory_that_holds_one_above_it() {
    let image = Image::new(|volume| volume.create_dir_all("/a/b").unwrap());
    let (a, b) = {
        let volume = image.read_only();
        (volume.metadata("/a").unwrap().home.ino, volume.metadata("/a/b").unwrap().home.ino)
    };
    add_loop(&image, TreeId::FS, b, Key::new(a, INODE_ITEM, 0));
    let error = follow(&image, "/a/b");
    assert!(error.contains("directory that holds a directory"), "{error}");
    // The contents of the directory are unchanged.
    let volume = image.read_only();
    assert_eq!(volume.read_dir("/a/b").unwrap().count(), 1);
}

#[test]
fn a_directory_that_holds_the_root() {
    let image = Image::new(|volume| volume.create_dir("/a").unwrap());
    let a = image.read_only().metadata("/a").unwrap().home.ino;
    add_loop(&image, TreeId::FS, a, Key::new(256, INODE_ITEM, 0));
    let error = follow(&image, "/a");
    assert!(error.contains("directory that holds a directory"), "{error}");
}

#[test]
fn a_subvolume_that_holds_one_above_it() {
    let image = Image::new(|volume| {
        volume.create_subvolume("/outer").unwrap();
        volume.create_subvolume("/outer/inner").unwrap();
    });
    let (outer, inner) = (TreeId(256), TreeId(257));
    add_loop(&image, inner, 256, Key::new(outer.0, ROOT_ITEM, u64::MAX));
    let link = RootRefEntry { dir: InodeNo(256), index: 99, name: b"loop" }.build();
    image.edit().put_item(TreeId::ROOT, &Key::new(inner.0, ROOT_REF, outer.0), &link).unwrap();
    let error = follow(&image, "/outer/inner");
    assert!(error.contains("directory that holds a directory"), "{error}");
}

#[test]
fn a_directory_that_its_name_calls_a_file() {
    let image = Image::new(|volume| volume.create_dir("/a").unwrap());
    let a = image.read_only().metadata("/a").unwrap().home.ino;
    let entry = DirEntry::build(Key::new(a, INODE_ITEM, 0), Generation(1), FileKind::File, b"loop");
    let edit = image.edit();
    edit.put_item(TreeId::FS, &Key::new(a, DIR_ITEM, name_hash(b"loop")), &entry).unwrap();
    edit.put_item(TreeId::FS, &Key::new(a, DIR_INDEX, 99), &entry).unwrap();
    let error = reason(&image.read_only().symlink_metadata("/a/loop").unwrap_err());
    assert!(error.contains("type of an inode"), "{error}");
}
