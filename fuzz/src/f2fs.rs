//! The pieces of f2fs: a byte that chooses one, and its bytes. Checksums are made right.

use f2fs_disk::checkpoint::{Checkpoint, PackEnd};
use f2fs_disk::dentry::Slots;
use f2fs_disk::flags::Features;
use f2fs_disk::inode::{DiskInode, Inode, checksum};
use f2fs_disk::node::{self, Footer};
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, UncheckedSuperblock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, OnDisk, acl, compression, hash, nat, orphan, sit, summary, xattr};

use super::show;

const INO: Nid = Nid(9);

/// One piece.
pub fn f2fs(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let mut block: Block = [0; BLOCK_SIZE];
    let len = data.len().min(BLOCK_SIZE);
    block[..len].copy_from_slice(&data[..len]);
    match choice % 8 {
        0 => superblock(&mut block),
        1 => checkpoint(&mut block),
        2 => tables(&block),
        3 | 4 => inode(&mut block, *choice),
        5 => names(Slots::of_block(&block)),
        6 => attributes(data),
        _ => packed(data),
    }
}

fn superblock(block: &mut Block) {
    let sum = hash::crc32(&block[..3068]);
    block[3068..3072].copy_from_slice(&sum.to_le_bytes());
    let unchecked = UncheckedSuperblock::new(&block[..SUPERBLOCK_SIZE]).expect("it has so many bytes");
    show(unchecked.fields());
    let _ = unchecked.fields().label();
    match unchecked.verify(1024) {
        Ok(superblock) => {
            let geometry = superblock.geometry();
            for nid in [0, 3, geometry.nid_count.saturating_sub(1), u32::MAX] {
                let _ = geometry.nat_block(Nid(nid), &block[..64]);
                let _ = geometry.sit_block(nid, &block[..64]);
            }
            let _ = Checkpoint::verify(block, block, geometry.cp, &superblock);
        }
        Err(error) => show(error),
    }
}

fn checkpoint(block: &mut Block) {
    let offset = usize::try_from(u32::from_le_bytes([block[164], block[165], block[166], block[167]]));
    if let Some(offset) = offset.ok().filter(|offset| *offset <= BLOCK_SIZE - 4) {
        let sum = hash::crc32_from(hash::crc32(&block[..offset]), &block[offset + 4..]);
        block[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
    }
    match PackEnd::verify(block) {
        Ok(end) => show(end.fields),
        Err(error) => show(error),
    }
}

fn tables(block: &Block) {
    for index in [0, 1, 54, 55, 454, 455, usize::MAX] {
        let _ = (nat::entry(block, index).map(show), sit::entry(block, index).map(show));
    }
    let _ = orphan::orphans(block).map(Iterator::count);
    if let Some((nats, sits)) = summary::compact_journals(block) {
        let _ = (summary::nat_journal(nats), summary::sit_journal(sits));
    }
    if let Ok(summary) = summary::SummaryBlock::verify(block) {
        let _ = (summary::nat_journal(&summary.journal), summary::sit_journal(&summary.journal));
    }
    show(Footer::of(block));
    let _ = node::entries(block);
}

fn inode(block: &mut Block, choice: u8) {
    let features = if choice & 0x80 == 0 { Features::all() } else { Features::empty() };
    let generation = DiskInode::parse(block).expect("a block holds one").i_generation;
    let sum = checksum(block, INO, generation, 1);
    block[368..372].copy_from_slice(&sum.to_le_bytes());
    let inode = match Inode::verify(block, INO, features, 1) {
        Ok(inode) => inode,
        Err(error) => return show(error),
    };
    show(inode);
    let _ = (inode.crtime(features), inode.project(features), inode.name(), inode.device(block));
    for index in [0, inode.size() / 4096, inode.fanout().blocks_max().saturating_sub(1), u64::MAX] {
        let _ = inode.fanout().way(index);
    }
    let _ = inode.addresses(block);
    names(Slots::inline(inode.inline_area(block)));
    attributes(inode.inline_xattrs(block));
}

fn names(slots: Slots<'_>) {
    for entry in slots.entries_from(0).flatten() {
        assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'), "a name that leads elsewhere");
        let _ = hash::of_name(entry.name);
    }
}

fn attributes(bytes: &[u8]) {
    for xattr in xattr::entries(bytes).flatten() {
        let _ = xattr.full_name();
        let _ = acl::to_linux(xattr.value);
    }
    let _ = acl::to_linux(bytes);
}

fn packed(data: &[u8]) {
    let _ = compression::stream(data, false);
    let mut output = vec![0; 4 * BLOCK_SIZE];
    for codec in [codec::compress::BlockCodec::Lz4, codec::compress::BlockCodec::Lzo] {
        let _ = codec::compress::decompress_block(codec, data, &mut output);
    }
    show(BlockAddr(1));
}
