//! The structures of f2fs, a target for each. Checksums are made right. What was accepted is built again where the
//! format has one way to write it, and must be read as the same.

use f2fs_disk::checkpoint::{Checkpoint, NatBits, PackEnd};
use f2fs_disk::dentry::{self, Slots, SlotsMut};
use f2fs_disk::flags::Features;
use f2fs_disk::inode::{self as on_disk, DiskInode, Inode};
use f2fs_disk::node::{Footer, entries, entries_mut};
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock};
use f2fs_disk::{
    BLOCK_SIZE, Block, BlockAddr, Nid, OnDisk, acl, compression, hash, nat, orphan as orphans_of, sit,
    summary as summary_of, xattr as xattr_of,
};

use super::show;

const INO: Nid = Nid(9);
/// A superblock of mkfs.f2fs: the checkpoints belong to it.
static SUPERBLOCK: &[u8] = include_bytes!("../corpus/f2fs_superblock/superblock");

/// As many of the bytes as a block has.
fn block_of(data: &[u8]) -> Block {
    let mut block: Block = [0; BLOCK_SIZE];
    let len = data.len().min(BLOCK_SIZE);
    block[..len].copy_from_slice(&data[..len]);
    block
}

fn verified(block: &mut [u8]) -> Result<Superblock, f2fs_disk::Corrupt> {
    let sum = hash::crc32(&block[..3068]);
    block[3068..3072].copy_from_slice(&sum.to_le_bytes());
    UncheckedSuperblock::new(&block[..SUPERBLOCK_SIZE])?.verify(1024)
}

/// A superblock.
pub fn superblock(data: &[u8]) {
    let mut block = block_of(data);
    let unchecked = UncheckedSuperblock::new(&block[..SUPERBLOCK_SIZE]).expect("it has so many bytes");
    show(unchecked.fields());
    let _ = (unchecked.fields().label(), unchecked.fields().device_count());
    match verified(&mut block) {
        Ok(superblock) => {
            let geometry = superblock.geometry();
            for nid in [0, 3, geometry.nid_count.saturating_sub(1), u32::MAX] {
                let _ = geometry.nat_block(Nid(nid), &block[..64]);
                let _ = geometry.sit_block(nid, &block[..64]);
                let _ = (geometry.summary_block(nid), geometry.segment_block(nid, nid));
                let _ = geometry.is_main(BlockAddr(nid));
            }
            let _ = Checkpoint::verify(&block, &block, geometry.cp, &superblock);
        }
        Err(error) => show(error),
    }
}

/// The first block of a pack of a checkpoint, which is its last one too.
pub fn checkpoint(data: &[u8]) {
    let mut block = block_of(data);
    let offset = usize::try_from(u32::from_le_bytes([block[164], block[165], block[166], block[167]]));
    if let Some(offset) = offset.ok().filter(|offset| *offset <= BLOCK_SIZE - 4) {
        let sum = hash::crc32_from(hash::crc32(&block[..offset]), &block[offset + 4..]);
        block[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
    }
    match PackEnd::verify(&block) {
        Ok(end) => show(end.fields),
        Err(error) => show(error),
    }
    let superblock = verified(&mut block_of(SUPERBLOCK)).expect("it is a seed");
    match Checkpoint::verify(&block, &block, superblock.geometry().cp, &superblock) {
        Ok(found) => {
            let _ = (found.orphan_blocks(superblock.geometry().cp_payload), found.data_summary(2));
            let _ = (found.compact_summaries(), found.mark_of_next(), found.is_newer_than(&found));
            let _ = NatBits::parse(data, superblock.geometry().nat_blocks, &found);
            for nid in [3, superblock.geometry().nid_count - 1] {
                let _ = superblock.geometry().nat_block(Nid(nid), found.nat_bitmap());
            }
        }
        Err(error) => show(error),
    }
}

/// A block of the tables of nodes and of segments.
pub fn tables(data: &[u8]) {
    let block = block_of(data);
    for index in [0, 1, 54, 55, 454, 455, usize::MAX] {
        if let Ok(entry) = nat::entry(&block, index) {
            show(entry);
            let mut copy = block;
            nat::put(&mut copy, index, &entry);
            assert_eq!(copy, block);
        }
        if let Ok(entry) = sit::entry(&block, index) {
            show(entry);
            let _ = (entry.is_valid(511), entry.is_valid(usize::MAX));
            let mut copy = block;
            sit::put(&mut copy, index, &entry);
            assert_eq!(copy, block);
        }
    }
}

/// A block of summaries, and their compact form.
pub fn summary(data: &[u8]) {
    let block = block_of(data);
    if let Some((nats, sits)) = summary_of::compact_journals(&block) {
        journals(nats, sits);
    }
    if let Ok(found) = summary_of::SummaryBlock::verify(&block) {
        journals(&found.journal, &found.journal);
    }
    let _ = summary_of::summaries(&block).len();
    let _ = summary_of::Summary::read(data);
}

fn journals(nats: &[u8; summary_of::JOURNAL_SIZE], sits: &[u8; summary_of::JOURNAL_SIZE]) {
    if let Ok(entries) = summary_of::nat_journal(nats) {
        let again = summary_of::nat_journal(&summary_of::nat_journal_of(&entries)).expect("it was read");
        assert_eq!(again.len(), entries.len());
    }
    if let Ok(entries) = summary_of::sit_journal(sits) {
        let again = summary_of::sit_journal(&summary_of::sit_journal_of(&entries)).expect("it was read");
        assert_eq!(again.len(), entries.len());
    }
}

/// A block of inodes without names.
pub fn orphan(data: &[u8]) {
    let mut block = block_of(data);
    let sum = hash::crc32(&block[..BLOCK_SIZE - 4]);
    block[BLOCK_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());
    for block in [block, block_of(data)] {
        if let Ok(found) = orphans_of::orphans(&block) {
            let found: Vec<Nid> = found.collect();
            assert!(found.len() <= orphans_of::ORPHANS_PER_BLOCK);
            let again = orphans_of::block_of(&found, 1, 1);
            assert_eq!(orphans_of::orphans(&again).expect("it was read").collect::<Vec<_>>(), found);
        }
    }
}

/// A node that is no inode.
pub fn node(data: &[u8]) {
    let mut block = block_of(data);
    let footer = Footer::of(&block);
    show(footer);
    let _ = (footer.is_direct(), footer.is_inode(), footer.is_fsync(), footer.is_dent());
    let _ = footer.verify(footer.nid(), footer.ino(), footer.offset(), BlockAddr(footer.next_blkaddr.get()));
    let first = entries(&block).first().map_or(0, |entry| entry.get());
    let fanout = f2fs_disk::node::Fanout { inode: 923, direct: 1018 };
    let index = fanout.first_of(footer.offset());
    if let Ok(way) = fanout.way(index.wrapping_add(u64::from(first))) {
        assert!(way.steps().iter().all(|step| step.count > 0));
    }
    entries_mut(&mut block);
    footer.put(&mut block);
    assert_eq!(block, block_of(data), "a footer comes out unchanged");
}

/// An inode with what lies in it; bit 7 of the first byte chooses the features of the volume.
pub fn inode(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let mut block = block_of(data);
    let features = if choice & 0x80 == 0 { Features::all() } else { Features::empty() };
    let generation = DiskInode::parse(&block[..]).expect("a block holds one").i_generation;
    let sum = on_disk::checksum(&block, INO, generation, 1);
    block[368..372].copy_from_slice(&sum.to_le_bytes());
    let inode = match Inode::verify(&block, INO, features, 1) {
        Ok(inode) => inode,
        Err(error) => return show(error),
    };
    show(&inode);
    let _ = (inode.crtime(features), inode.project(features), inode.name(), inode.device(&block));
    for index in [0, inode.size() / 4096, inode.fanout().blocks_max().saturating_sub(1), u64::MAX] {
        let _ = inode.fanout().way(index);
    }
    let _ = inode.addresses(&block).len();
    let _ = inode.addresses_mut(&mut block).len();
    names(Slots::inline(inode.inline_area(&block)));
    attributes(inode.inline_xattrs(&block));
    let mut copy = block;
    on_disk::seal(&mut copy, INO, features, 1);
    assert!(Inode::verify(&copy, INO, features, 1).is_ok(), "a sealed inode is right");
}

/// A block of names.
pub fn dentry(data: &[u8]) {
    let mut block = block_of(data);
    names(Slots::of_block(&block));
    names(Slots::inline(&data[..data.len().min(BLOCK_SIZE)]));
    let found: Vec<(usize, usize)> =
        Slots::of_block(&block).entries_from(0).flatten().map(|entry| (entry.slot, entry.name.len())).collect();
    let mut slots = SlotsMut::of_block(&mut block);
    let _ = slots.room(255);
    for (slot, len) in found {
        slots.remove(slot, len);
    }
    names(Slots::of_block(&block));
}

fn names(slots: Slots<'_>) {
    for entry in slots.entries_from(0).flatten() {
        assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'), "a name that leads elsewhere");
        let _ = (hash::of_name(entry.name), dentry::bucket(63, 255, u32::MAX), dentry::slots_of(entry.name.len()));
    }
}

/// A list of attributes, and an access list.
pub fn xattr(data: &[u8]) {
    attributes(data);
}

fn attributes(bytes: &[u8]) {
    let all: Result<Vec<_>, _> = xattr_of::entries(bytes).collect();
    for xattr in xattr_of::entries(bytes).flatten() {
        let _ = xattr.full_name();
        access(xattr.value);
    }
    if let Ok(all) = all {
        let built = xattr_of::encode(&all);
        let again: Vec<_> = xattr_of::entries(&built).collect::<Result<_, _>>().expect("it was built");
        assert_eq!(again.len(), all.len(), "all attributes come out again");
    }
    access(bytes);
}

fn access(bytes: &[u8]) {
    if let Ok(list) = acl::to_linux(bytes) {
        let stored = acl::from_linux(&list).expect("it was made of one that is stored");
        assert_eq!(acl::to_linux(&stored).expect("it was stored"), list);
    }
    let _ = acl::from_linux(bytes);
}

/// The blocks of a compressed cluster.
pub fn packed(data: &[u8]) {
    let _ = (compression::stream(data, false), compression::stream(data, true));
    let mut output = vec![0; 4 * BLOCK_SIZE];
    for codec in [codec::compress::BlockCodec::Lz4, codec::compress::BlockCodec::Lzo] {
        let _ = codec::compress::decompress_block(codec, data, &mut output);
    }
    show(BlockAddr(1));
}
