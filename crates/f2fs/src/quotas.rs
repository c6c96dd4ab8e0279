//! Reads quota files: usage and limits of each user, group or project. Called by `F2fs::quotas` (`vfs_impl`), and by
//! `change/open` and `change/quotas`.

use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::{Advise, CheckpointFlags, Features, InlineFlags};
use f2fs_disk::inode::Kind;
use f2fs_disk::node::verify_nid;
use f2fs_disk::quota::{self, QUOTA_BLOCK_SIZE, Quota, QuotaBlock, QuotaEntry, QuotaFile, QuotaKind};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid};

use crate::error::{Error, Result};
use crate::map;
use crate::read_volume::{Node, ReadVolume};

/// Contents of the quota files of a volume.
#[derive(Debug, Clone, Default)]
pub struct Quotas {
    /// The existing files, and their entries by number.
    pub files: Vec<(QuotaKind, Vec<QuotaEntry>)>,
    /// The checkpoint marks them as wrong, until `fsck.f2fs` has counted again.
    pub need_repair: bool,
}

/// A quota file for reading.
struct Reading<'a> {
    volume: &'a ReadVolume,
    node: Node,
}

impl QuotaFile for Reading<'_> {
    type Error = Error;

    fn block(&mut self, number: u32) -> Result<QuotaBlock> {
        block(self.volume, &self.node, number)
    }
}

/// A block of a quota file; zeros for a hole.
pub(crate) fn block(volume: &ReadVolume, node: &Node, number: u32) -> Result<QuotaBlock> {
    let (index, part) = quota::place_of(number);
    let page = match volume.page(node.ino(), index) {
        Some(page) => Arc::clone(page),
        None => match map::run(volume, node, index, 1)?.at {
            at if at.is_block() => volume.blocks.get(at)?,
            _ => return Ok([0; QUOTA_BLOCK_SIZE]),
        },
    };
    Ok(quota::part_of(&page, part))
}

/// The inodes of the existing quota files.
pub(crate) fn files(volume: &ReadVolume) -> Result<[Option<Nid>; 3]> {
    let mut files = [None; 3];
    if !volume.features().contains(Features::QUOTA_INO) {
        return Ok(files);
    }
    for (file, ino) in files.iter_mut().zip(volume.superblock().fields().qf_ino) {
        if ino.get() != 0 {
            verify_nid("superblock qf_ino", Nid(ino.get()), volume.geometry().nid_count)?;
            *file = Some(Nid(ino.get()));
        }
    }
    Ok(files)
}

/// The inode of a quota file, which must be a plain file with blocks.
pub(crate) fn inode(volume: &ReadVolume, ino: Nid) -> Result<Node> {
    let node = volume.inode(ino)?;
    let is_plain = node.inode.kind() == Kind::File
        && !node.inode.inline().contains(InlineFlags::DATA)
        && node.inode.compressed().is_none()
        && !node.inode.advise().intersects(Advise::ENCRYPT.union(Advise::VERITY));
    if !is_plain {
        let (expected, found) = (Detail::Text("a plain file with blocks"), Detail::Text("something else"));
        return Err(Corrupt::new("quota file", expected, found).at(At::Inode(ino)).into());
    }
    Ok(node)
}

/// Largest size of a quota file in bytes: that of its inode, but no more than the volume has.
pub(crate) fn size(volume: &ReadVolume, node: &Node) -> u64 {
    node.inode.size().min(BlockAddr(volume.geometry().main_blocks).byte())
}

/// True if the checkpoint marks the quota files as wrong.
pub(crate) fn need_repair(volume: &ReadVolume) -> bool {
    volume.checkpoint().flags().contains(CheckpointFlags::QUOTA_NEED_FSCK)
}

/// Reads all quota files.
pub(crate) fn read(volume: &ReadVolume) -> Result<Quotas> {
    let mut quotas = Quotas { files: Vec::new(), need_repair: need_repair(volume) };
    for (kind, ino) in QuotaKind::ALL.into_iter().zip(files(volume)?) {
        let Some(ino) = ino else { continue };
        let node = inode(volume, ino)?;
        let size = size(volume, &node);
        let mut quota = Quota::open(Reading { volume, node }, kind, size).map_err(|error| placed(error, ino))?;
        let mut entries = quota.entries().map_err(|error| placed(error, ino))?;
        entries.sort_by_key(|entry| entry.dqb_id.get());
        quotas.files.push((kind, entries));
    }
    Ok(quotas)
}

/// Adds the file to an error.
pub(crate) fn placed(error: Error, ino: Nid) -> Error {
    match error {
        Error::Corrupt(corrupt) => Error::Corrupt(corrupt.at(At::Inode(ino))),
        other => other,
    }
}

/// Bytes of blocks, as quota files count them.
pub(crate) fn bytes_of(blocks: i64) -> i64 {
    let block = i64::try_from(to_u64(f2fs_disk::BLOCK_SIZE)).unwrap_or(0);
    blocks.saturating_mul(block)
}
