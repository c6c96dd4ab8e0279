//! Gets pages for changes, from the dirty ones or from the device, and puts them back as dirty. Called by `data`,
//! `names`, `size_and_holes` and `quotas`.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a file")]

use std::sync::Arc;

use f2fs_disk::convert::to_usize;
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode::{self, Inode};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid};

use super::addresses::{self, Slot};
use crate::error::Result;
use crate::map;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Nodes above a block of a file.
pub(super) const NODES_PER_WAY: u64 = 4;
const BLOCK_BYTES: u64 = 4096;

/// Blocks and nodes that a range of a file may need.
pub(super) fn cost(pages: u64) -> u64 {
    pages + pages / 512 + NODES_PER_WAY + 2
}

/// Blocks of a range without an address, as far as that is known without a search: all those in holes.
pub(super) fn missing(volume: &ReadVolume, node: &Node, first: u64, end: u64) -> Result<u64> {
    let (mut index, mut missing) = (first, 0);
    while index < end {
        let run = map::run(volume, node, index, end - index)?;
        if run.at == BlockAddr::NULL {
            missing += run.count;
        }
        index += run.count;
    }
    Ok(missing)
}

/// The part of a write for one page.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) index: u64,
    start: usize,
    pub(super) bytes: &'a [u8],
}

impl Piece<'_> {
    pub(super) const fn is_whole(&self) -> bool {
        self.bytes.len() == BLOCK_SIZE
    }

    pub(super) fn put(&self, page: &mut Block) {
        let to = page.get_mut(self.start..).unwrap_or_default();
        to.iter_mut().zip(self.bytes).for_each(|(to, from)| *to = *from);
    }
}

/// The page that a byte of a file is in.
pub(super) const fn index_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES
}

/// The parts of a write, page by page.
pub(super) fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let start = to_usize(offset % BLOCK_BYTES);
    let (head, rest) = data.split_at_checked(BLOCK_SIZE - start).unwrap_or((data, &[]));
    let parts = std::iter::once((start, head)).chain(rest.chunks(BLOCK_SIZE).map(|bytes| (0, bytes)));
    (index_of(offset)..).zip(parts).map(|(index, (start, bytes))| Piece { index, start, bytes })
}

/// Reserves the block of a page without one; returns its former address.
pub(super) fn reserve(volume: &mut WriteVolume, layout: &Inode, slot: &Slot) -> Result<BlockAddr> {
    let at = addresses::get(volume, layout, slot)?;
    if at == BlockAddr::NULL {
        addresses::set(volume, layout, slot, BlockAddr::NEW)?;
    }
    Ok(at)
}

/// A page with the file's contents; true if its block was reserved by this, which the caller counts.
pub(super) fn take(
    volume: &mut WriteVolume,
    layout: &Inode,
    slot: &Slot,
    index: u64,
    is_whole: bool,
) -> Result<(Arc<Block>, bool)> {
    let at = reserve(volume, layout, slot)?;
    Ok((take_at(volume, layout.ino(), index, at, is_whole)?, at == BlockAddr::NULL))
}

/// A page with the file's contents, taken from the dirty ones or read. A page that is written as a whole is not read.
pub(super) fn take_at(
    volume: &mut WriteVolume,
    ino: Nid,
    index: u64,
    at: BlockAddr,
    is_whole: bool,
) -> Result<Arc<Block>> {
    if let Some(page) = volume.read.dirty.pages.take(ino, index) {
        return Ok(page);
    }
    Ok(match at {
        at if at.is_block() && !is_whole => {
            map::check_is_data(volume, ino, index, at)?;
            Arc::new(volume.blocks.read(at)?)
        }
        _ => Arc::new([0; BLOCK_SIZE]),
    })
}

/// Moves inline contents to a block. The caller has made room for that.
pub(super) fn leave_inline(volume: &mut WriteVolume, ino: Nid) -> Result<()> {
    let node = volume.inode(ino)?;
    let layout = node.inode;
    if !layout.inline().contains(InlineFlags::DATA) {
        return Ok(());
    }
    let len = to_usize(layout.size()).min(layout.inline_size());
    let bytes = layout.inline_area(&node.block).get(..len).unwrap_or_default().to_vec();
    let block = volume.edit_inode(ino)?;
    layout.inline_area_mut(block).fill(0);
    let fields = inode::fields_mut(block);
    fields.i_inline &= !(InlineFlags::DATA.bits() | InlineFlags::DATA_EXIST.bits());
    if bytes.is_empty() {
        return Ok(());
    }
    let layout = volume.inode(ino)?.inode;
    let slot = addresses::make(volume, &layout, 0)?;
    let (mut page, is_new) = take(volume, &layout, &slot, 0, true)?;
    Arc::make_mut(&mut page).iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
    volume.put_page(ino, 0, page);
    volume.count_blocks(ino, i64::from(is_new))
}
