//! Symlinks as other tools write them: `mkfs.btrfs --rootdir` and old versions of `btrfs-convert`
//! store the byte that ends the path as well, and the kernel reads a target like a file, from
//! whatever extent it is in.

use super::{Image, found, sent};
use btrfs::Volume;
use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::{EXTENT_DATA, INODE_ITEM};
use btrfs_disk::{Generation, Key, TreeId};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{Command, Decoder, Encoder, Version};
use std::path::Path;
use std::sync::Arc;

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

/// The target of the link in a full send stream.
fn target_sent(image: &Image) -> Vec<u8> {
    let stream = sent(image);
    let mut decoder = Decoder::open(&stream[..]).unwrap().unwrap();
    while let Some(command) = decoder.command().unwrap() {
        if let Command::Symlink { target, .. } = command {
            return target.to_vec();
        }
    }
    panic!("a stream without the link");
}

fn repair_of(image: &Image) -> btrfs_repair::Plan {
    let options = btrfs_repair::Options {
        steps: Vec::new(),
        changes_bytes_max: 64 << 20,
        check_memory_bytes: 0,
        folder: std::env::temp_dir(),
        threads: 1,
    };
    btrfs_repair::plan(&image.any_device(), &options, &()).unwrap()
}

/// Checks that all readers agree on the target of a link with these stored bytes and this size.
fn all_agree(stored: &[u8], size: u64) {
    let (image, key) = link_and_file();
    let edit = image.edit();
    let sizes = |bytes: &mut [u8]| {
        bytes[16..24].copy_from_slice(&size.to_le_bytes());
        bytes[24..32].copy_from_slice(&to_u64(stored.len()).to_le_bytes());
    };
    edit.change_item(TreeId::FS, &Key::new(key.objectid, INODE_ITEM, 0), sizes).unwrap();
    edit.put_item(TreeId::FS, &key, &FileExtent::build_inline(Generation(1), 0, 0, stored)).unwrap();
    assert!(found(&image).is_empty(), "{stored:?} of {size}");
    assert_eq!(image.read_only().read_link("/link").unwrap(), Path::new("target"));
    let rescue = btrfs_rescue::Rescue::open(&[image.any_device()], 1, Arc::new(())).unwrap();
    let rescued = rescue.view(None).unwrap().volume();
    assert_eq!(rescued.read_link("/link").unwrap(), Path::new("target"));
    assert_eq!(target_sent(&image), b"target");
    assert!(repair_of(&image).is_needless());
}

#[test]
fn a_target_with_the_nul_behind_it_is_right_for_all_that_read_it() {
    // As mkfs.btrfs --rootdir and btrfs-convert leave it, and with the NUL counted.
    all_agree(b"target\0", 6);
    all_agree(b"target\0", 7);
    all_agree(b"target", 6);
}

#[test]
fn a_wrong_size_becomes_that_of_the_target() {
    let (image, key) = link_and_file();
    let edit = image.edit();
    edit.put_item(TreeId::FS, &key, &FileExtent::build_inline(Generation(1), 0, 0, b"target\0")).unwrap();
    let sizes = |bytes: &mut [u8]| {
        bytes[16..24].copy_from_slice(&900_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&7_u64.to_le_bytes());
    };
    edit.change_item(TreeId::FS, &Key::new(key.objectid, INODE_ITEM, 0), sizes).unwrap();
    assert_eq!(found(&image), ["file-symlink"]);
    repair_of(&image).apply(&*image.device).unwrap();
    check(&image);
    assert_eq!(found(&image), Vec::<String>::new());
}

#[test]
fn a_stream_may_have_the_nul_behind_a_target() {
    let image = Image::new(|_| ());
    let stream = |target: &[u8]| {
        // The encoder writes no NUL: another byte stands for it, and its command gets its checksum anew.
        let mut encoder = Encoder::new(Vec::new(), Version::V1).unwrap();
        encoder.command(&Command::Subvol { path: b"s", uuid: [1; 16], ctransid: 1 }).unwrap();
        let marked: Vec<u8> = target.iter().map(|byte| if *byte == 0 { 1 } else { *byte }).collect();
        encoder.command(&Command::Symlink { path: b"link", ino: Some(257), target: &marked }).unwrap();
        encoder.command(&Command::End).unwrap();
        with_nul(encoder.into_inner())
    };
    let volume = image.open().unwrap();
    let received = |volume: &Volume, target: &[u8]| {
        let mut receiver = Receiver::new(volume, Path::new("/"), Options::default()).unwrap();
        receiver.receive(&stream(target)[..], &(), &mut ())
    };
    received(&volume, b"target\0").unwrap();
    assert_eq!(volume.read_link("/s/link").unwrap(), Path::new("target"));
    // In the middle it is no end.
    assert!(received(&volume, b"tar\0get").is_err());
}

/// Makes zeros of the bytes 1 of the target in a stream of three commands.
fn with_nul(stream: Vec<u8>) -> Vec<u8> {
    let mut bytes = stream;
    let mut at = 17;
    loop {
        let len = usize_from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        let number = u16::from_le_bytes(bytes[at + 4..at + 6].try_into().unwrap());
        let end = at + 10 + len;
        if number == 8 {
            let target = bytes.windows(3).position(|found| found == b"tar").unwrap();
            bytes[target..end].iter_mut().filter(|byte| **byte == 1).for_each(|byte| *byte = 0);
            bytes[at + 6..at + 10].fill(0);
            let sum = codec::checksum::crc32c_raw(0, &bytes[at..end]);
            bytes[at + 6..at + 10].copy_from_slice(&sum.to_le_bytes());
            return bytes;
        }
        at = end;
    }
}
