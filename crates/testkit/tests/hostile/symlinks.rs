//! Symlinks as other tools write them: `mkfs.btrfs --rootdir` and old versions of `btrfs-convert`
//! store the byte that ends the path as well, and the kernel reads a target like a file, from
//! whatever extent it is in.

use super::Image;
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::{EXTENT_DATA, INODE_ITEM};
use btrfs_disk::{Generation, Key, TreeId};
use std::path::Path;

fn link_and_file() -> (Image, Key) {
    let image = Image::new(|volume| {
        volume.write("/target", "contents").unwrap();
        volume.symlink("target", "/link").unwrap();
        let mut page = vec![0; 4096];
        page[..6].copy_from_slice(b"target");
        volume.write("/page", &page).unwrap();
    });
    let ino = image.read_only().symlink_metadata("/link").unwrap().home.ino;
    (image, Key::new(ino, EXTENT_DATA, 0))
}

fn check(image: &Image) {
    let volume = image.read_only();
    assert_eq!(volume.read_link("/link").unwrap(), Path::new("target"));
    assert_eq!(volume.read("/link").unwrap(), b"contents");
    assert_eq!(volume.symlink_metadata("/link").unwrap().size, 6);
}

#[test]
fn the_size_of_a_target_is_its_inodes() {
    let (image, key) = link_and_file();
    check(&image);
    let edit = image.edit();
    let inline = |data: &[u8]| FileExtent::build_inline(Generation(1), 0, 0, data);
    edit.put_item(TreeId::FS, &key, &inline(b"target\0")).unwrap();
    check(&image);
    edit.put_item(TreeId::FS, &key, &inline(b"target-and-more")).unwrap();
    check(&image);
}

#[test]
fn a_target_ends_with_its_first_zero() {
    let (image, key) = link_and_file();
    let edit = image.edit();
    let size = |bytes: &mut [u8]| bytes[16..24].copy_from_slice(&7u64.to_le_bytes());
    edit.change_item(TreeId::FS, &Key::new(key.objectid, INODE_ITEM, 0), size).unwrap();
    edit.put_item(TreeId::FS, &key, &FileExtent::build_inline(Generation(1), 0, 0, b"target\0")).unwrap();
    let volume = image.read_only();
    assert_eq!(volume.read_link("/link").unwrap(), Path::new("target"));
    assert_eq!(volume.read("/link").unwrap(), b"contents");
}

#[test]
fn a_target_may_be_in_an_extent_of_its_own() {
    let (image, key) = link_and_file();
    let page = image.read_only().metadata("/page").unwrap().home.ino;
    let edit = image.edit();
    let keys = Key::new(page, EXTENT_DATA, 0)..=Key::new(page, EXTENT_DATA, 0);
    let (_, extent) = edit.items(TreeId::FS, keys).unwrap().pop().unwrap();
    assert!(matches!(FileExtent::parse(&extent), Ok(FileExtent::Extent(_))));
    edit.put_item(TreeId::FS, &key, &extent).unwrap();
    check(&image);
}
