//! Editing of images: positions of their blocks, and corrected checksums.

use std::collections::HashMap;
use std::path::Path;

use f2fs_disk::checkpoint::{Checkpoint, DiskCheckpoint, PackEnd};
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::inode::{DiskInode, checksum};
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, OnDisk as _, hash, summary};

/// First byte of an inode's addresses, behind extra attributes.
pub(crate) fn addresses_at(inode: &Block) -> usize {
    360 + usize::from(u16::from_le_bytes([inode[360], inode[361]]))
}

#[derive(Clone)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) superblock: Superblock,
    pub(crate) checkpoint: Checkpoint,
    journal: HashMap<Nid, NatEntry>,
}

impl Image {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let superblock = UncheckedSuperblock::new(&bytes[1024..][..SUPERBLOCK_SIZE]).unwrap().verify(1024).unwrap();
        let packs = [0, 1].map(|number| {
            let at = superblock.geometry().pack(number);
            let first = block(&bytes, at);
            let end = PackEnd::verify(first).ok()?;
            Checkpoint::verify(first, block(&bytes, at.plus(end.last_index())), at, &superblock).ok()
        });
        // Of two with one version the first counts; `sload.f2fs` leaves such.
        let checkpoint = packs.into_iter().flatten().rev().max_by_key(Checkpoint::version).unwrap();
        let is_compact = checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
        let journal = if is_compact {
            summary::nat_journal(summary::compact_journals(block(&bytes, checkpoint.compact_summaries())).unwrap().0)
        } else {
            let at = checkpoint.data_summary(0);
            summary::nat_journal(&summary::SummaryBlock::verify(block(&bytes, at)).unwrap().journal)
        };
        let journal = journal.unwrap().into_iter().collect();
        Self { bytes, superblock, checkpoint, journal }
    }

    /// Block of a node.
    pub(crate) fn node_at(&self, nid: Nid) -> BlockAddr {
        if let Some(entry) = self.journal.get(&nid) {
            return entry.at();
        }
        let (at, index) = self.superblock.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        nat::entry(block(&self.bytes, at), index).unwrap().at()
    }

    pub(crate) fn block_mut(&mut self, at: BlockAddr) -> &mut Block {
        self.bytes[usize::try_from(at.byte()).unwrap()..].first_chunk_mut().unwrap()
    }

    pub(crate) fn block(&self, at: BlockAddr) -> &Block {
        block(&self.bytes, at)
    }

    /// Changes the block of an inode and corrects its checksum.
    pub(crate) fn change_inode(&mut self, ino: Nid, change: impl FnOnce(&mut Block)) {
        let at = self.node_at(ino);
        change(self.block_mut(at));
        seal_inode(&self.superblock.clone(), ino, self.block_mut(at));
    }
}

pub(crate) fn block(bytes: &[u8], at: BlockAddr) -> &Block {
    bytes[usize::try_from(at.byte()).unwrap()..].first_chunk().unwrap()
}

/// Corrects the checksum of an inode, if it has one.
pub(crate) fn seal_inode(superblock: &Superblock, ino: Nid, block: &mut Block) {
    let has_extra = block[3] & 0x20 != 0;
    if superblock.features().contains(Features::INODE_CHKSUM) && has_extra {
        let generation = DiskInode::parse(block.as_slice()).unwrap().i_generation;
        let sum = checksum(block, ino, generation, superblock.inode_checksum_seed());
        block[368..372].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Corrects the checksum of a superblock.
pub(crate) fn seal_superblock(bytes: &mut [u8]) {
    let sum = hash::crc32(&bytes[..3068]);
    bytes[3068..3072].copy_from_slice(&sum.to_le_bytes());
}

/// Corrects the checksum of a checkpoint, if that is within its block.
pub(crate) fn seal_checkpoint(block: &mut Block) {
    let offset = DiskCheckpoint::parse(block.as_slice()).unwrap().checksum_offset.get();
    let offset = usize::try_from(offset).unwrap();
    if offset <= BLOCK_SIZE - 4 {
        let sum = hash::crc32_from(hash::crc32(&block[..offset]), &block[offset + 4..]);
        block[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
    }
}
