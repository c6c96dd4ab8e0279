//! Pages that change: taken from the dirty ones or read, and put back with the changes.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a file")]

use std::sync::Arc;

use f2fs_disk::convert::to_usize;
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode::{self, Inode};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid};

use super::addresses::{self, Slot};
use crate::error::Result;
use crate::map;
use crate::read_volume::ReadVolume;
use crate::write_volume::WriteVolume;

/// Nodes on the way to a block of a file.
pub(super) const NODES_PER_WAY: u64 = 4;

/// Blocks and nodes that a range of a file may need.
pub(super) fn cost(pages: u64) -> u64 {
    pages + pages / 512 + NODES_PER_WAY + 2
}

/// Blocks of a range that have no place yet, as far as that is easily known: all of those in holes.
pub(super) fn missing(volume: &ReadVolume, ino: Nid, first: u64, end: u64) -> Result<u64> {
    let node = volume.inode(ino)?;
    let (mut index, mut missing) = (first, 0);
    while index < end {
        let run = map::run(volume, &node, index, end - index)?;
        if run.at == BlockAddr::NULL {
            missing += run.count;
        }
        index += run.count;
    }
    Ok(missing)
}

/// A page with what the file has there, taken out of those that changed or read; whether its block was reserved by
/// this, which the caller counts. Nothing is read for one that is written as a whole.
pub(super) fn take(
    volume: &mut WriteVolume,
    layout: &Inode,
    slot: &Slot,
    index: u64,
    is_whole: bool,
) -> Result<(Arc<Block>, bool)> {
    let at = addresses::get(volume, layout, slot)?;
    if at == BlockAddr::NULL {
        addresses::set(volume, layout, slot, BlockAddr::NEW)?;
    }
    if let Some(page) = volume.read.dirty.pages.take(layout.ino(), index) {
        return Ok((page, false));
    }
    let page = match at {
        at if at.is_block() && !is_whole => {
            map::check_is_data(volume, layout.ino(), index, at)?;
            Arc::new(volume.blocks.read(at)?)
        }
        _ => Arc::new([0; BLOCK_SIZE]),
    };
    Ok((page, at == BlockAddr::NULL))
}

/// Inline contents go to a block of their own. The caller has made room for that.
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
