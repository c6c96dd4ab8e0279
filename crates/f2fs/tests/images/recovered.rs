//! Files fsynced after the checkpoint are shown without any write.

use std::fs;
use std::path::PathBuf;

use f2fs::{Error, OpenOptions};
use f2fs_disk::flags::CheckpointFlags;
use f2fs_disk::{Block, BlockAddr, Nid};
use vfs::Volume;

use crate::edit::{Image, seal_inode};
use crate::tool::{Bench, open, open_bytes};

const FSYNC: u32 = 2;
const DENT: u32 = 4;

fn sample(bench: &Bench) -> (PathBuf, Image, Nid, Nid) {
    let source = bench.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "before").unwrap();
    let path = bench.load(&source, 64, &["-O", "extra_attr,inode_checksum"]);
    let volume = open(&path).1;
    let number = |name: &str| Nid(u32::try_from(volume.metadata(name).unwrap().ino).unwrap());
    let image = Image::read(&path);
    (path.clone(), image, number("dir"), number("dir/file"))
}

/// Where the log of warm nodes goes on.
fn log_at(image: &Image, index: u32) -> BlockAddr {
    let fields = image.checkpoint.fields();
    let segment = fields.cur_node_segno[1].get();
    image.superblock.geometry().segment_block(segment, u32::from(fields.cur_node_blkoff[1].get())).plus(index)
}

/// Writes a node as an fsync would, the one behind it at `next`.
fn log(image: &mut Image, index: u32, nid: Nid, mut block: Block, flags: u32, next: BlockAddr) {
    let crc = u32::from_le_bytes(*image.block(image.checkpoint.at()).last_chunk().unwrap());
    let has_crc = image.checkpoint.flags().contains(CheckpointFlags::CRC_RECOVERY);
    let version = image.checkpoint.version() | if has_crc { u64::from(crc) << 32 } else { 0 };
    block[4072..4076].copy_from_slice(&nid.0.to_le_bytes());
    block[4076..4080].copy_from_slice(&nid.0.to_le_bytes());
    block[4080..4084].copy_from_slice(&flags.to_le_bytes());
    block[4084..4092].copy_from_slice(&version.to_le_bytes());
    block[4092..].copy_from_slice(&next.0.to_le_bytes());
    seal_inode(&image.superblock.clone(), nid, &mut block);
    *image.block_mut(log_at(image, index)) = block;
}

fn names(volume: &Volume, dir: &str) -> Vec<String> {
    let listed = volume.read_dir(dir).unwrap();
    let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_fsynced_inode_counts_instead_of_the_old_one() {
    let Some(bench) = Bench::new() else { return };
    let (_, mut image, _, ino) = sample(&bench);
    let mut inode = *image.block(image.node_at(ino));
    inode[48..56].copy_from_slice(&1_234_567_u64.to_le_bytes());
    let end = log_at(&image, 1);
    log(&mut image, 0, ino, inode, FSYNC, end);
    // A node of the same inode without a later fsync: it was being written when the power failed.
    inode[48..56].copy_from_slice(&7_u64.to_le_bytes());
    let end = log_at(&image, 2);
    log(&mut image, 1, ino, inode, 0, end);
    let (fs, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    assert_eq!(fs.info().unwrap().recovered_files, 1);
    assert_eq!(volume.metadata("dir/file").unwrap().mtime.sec, 1_234_567);
    let (fs, volume) = open_bytes(&image.bytes, OpenOptions::new().skip_recovery(true)).unwrap();
    assert_eq!(fs.info().unwrap().recovered_files, 0);
    assert!(volume.metadata("dir/file").unwrap().mtime.sec > 1_234_567);
}

#[test]
fn a_new_file_gets_its_name() {
    let Some(bench) = Bench::new() else { return };
    let (_, mut image, dir, ino) = sample(&bench);
    let new = Nid(image.superblock.geometry().nid_count - 7);
    let named = |image: &Image, name: &[u8]| {
        let mut inode = *image.block(image.node_at(ino));
        inode[84..88].copy_from_slice(&dir.0.to_le_bytes());
        inode[88..92].copy_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
        inode[92..92 + name.len()].copy_from_slice(name);
        inode
    };
    let (inode, end) = (named(&image, b"new"), log_at(&image, 1));
    log(&mut image, 0, new, inode, FSYNC | DENT, end);
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    assert_eq!(names(&volume, "dir"), ["file", "new"]);
    let attr = volume.metadata("dir/new").unwrap();
    assert_eq!((attr.ino, attr.size), (u64::from(new.0), 6));
    assert_eq!(volume.read("dir/new").unwrap(), b"before", "the sample has its contents inline");
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new().skip_recovery(true)).unwrap();
    assert_eq!(names(&volume, "dir"), ["file"]);
    assert!(!volume.exists("dir/new").unwrap());
    // An existing name leads to the new file, and is listed once.
    let inode = named(&image, b"file");
    log(&mut image, 0, new, inode, FSYNC | DENT, end);
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    assert_eq!(names(&volume, "dir"), ["file"]);
    assert_eq!(volume.metadata("dir/file").unwrap().ino, u64::from(new.0));
    // No name that leads out of the directory.
    let inode = named(&image, b"../up");
    log(&mut image, 0, new, inode, FSYNC | DENT, end);
    assert!(matches!(open_bytes(&image.bytes, OpenOptions::new()), Err(Error::Corrupt(_))));
}

#[test]
fn a_log_that_leads_back_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let (_, mut image, _, ino) = sample(&bench);
    let inode = *image.block(image.node_at(ino));
    let (first, second) = (log_at(&image, 0), log_at(&image, 1));
    log(&mut image, 0, ino, inode, FSYNC, second);
    log(&mut image, 1, ino, inode, FSYNC, first);
    let error = open_bytes(&image.bytes, OpenOptions::new()).unwrap_err().to_string();
    assert!(error.starts_with("corrupt node footer next_blkaddr in block"), "{error}");
    assert!(open_bytes(&image.bytes, OpenOptions::new().skip_recovery(true)).is_ok());
}
