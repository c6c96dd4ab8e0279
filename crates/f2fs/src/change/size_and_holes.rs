//! Changes sizes of files, punches and zeros ranges, and reserves blocks. Called by `vfs_impl/data` and
//! `vfs_impl/attr`, `inodes` and `replay`.

#![expect(clippy::arithmetic_side_effects, reason = "offsets within files, checked against the largest file")]

use std::ops::Range;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize, usize_from};
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{self, Inode};
use f2fs_disk::node::{self, ENTRIES_PER_NODE, Step, first_byte};
use f2fs_disk::{BlockAddr, Nid};

use super::addresses;
use super::pages::{self, NODES_PER_WAY};
use super::room::{self, Urgency};
use crate::error::{CallerError, Result};
use crate::write_volume::WriteVolume;

const BLOCK_BYTES: u64 = 4096;
/// Nodes that are changed between two checks for space: each is written again.
const NODES_AT_ONCE: u64 = 256;

/// Sets the size of a file. Contents beyond it are lost; new bytes read as zeros.
pub(crate) fn set_size(volume: &mut WriteVolume, ino: Nid, size: u64) -> Result<()> {
    let node = volume.inode(ino)?;
    volume.check_is_writable(&node)?;
    if size > first_byte(node.inode.fanout().blocks_max()) {
        return Err(CallerError::TooLarge.into());
    }
    let old = node.inode.size();
    if node.inode.inline().contains(InlineFlags::DATA) {
        let layout = node.inode;
        if size > to_u64(layout.inline_size()) {
            room::make(volume, 2, 2, Urgency::Normal)?;
            pages::leave_inline(volume, ino)?;
        } else {
            room::make(volume, 0, 1, Urgency::Removal)?;
            let block = volume.edit_inode(ino)?;
            let from = to_usize(size.min(old));
            layout.inline_area_mut(block).get_mut(from..).unwrap_or_default().fill(0);
        }
    } else if size <= old {
        cut(volume, ino, size)?;
    }
    room::make(volume, 0, 1, Urgency::Removal)?;
    volume.edit_fields(ino)?.i_size = size.into();
    Ok(())
}

/// Frees all blocks of a file behind a size; the rest of the last one becomes zeros.
fn cut(volume: &mut WriteVolume, ino: Nid, size: u64) -> Result<()> {
    zero_part(volume, ino, size, size.next_multiple_of(BLOCK_BYTES))?;
    let fields = volume.edit_fields(ino)?;
    fields.i_advise &= !Advise::KEEP_SIZE.bits();
    free_from(volume, ino, size.div_ceil(BLOCK_BYTES))
}

/// Zeroes a part of one block, if it has contents.
fn zero_part(volume: &mut WriteVolume, ino: Nid, from: u64, to: u64) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let index = from / BLOCK_BYTES;
    let node = volume.inode(ino)?;
    let Some(slot) = addresses::find(volume, &node, index)? else { return Ok(()) };
    let at = addresses::get(volume, &node.inode, &slot)?;
    if !at.is_block() && volume.page(ino, index).is_none() {
        return Ok(());
    }
    room::make(volume, 0, 4, Urgency::Removal)?;
    let slot = addresses::make(volume, &node.inode, index)?;
    let (mut page, _) = pages::take(volume, &node.inode, &slot, index, false)?;
    let start = first_byte(index);
    let part = to_usize(from - start)..to_usize(to - start);
    Arc::make_mut(&mut page).get_mut(part).unwrap_or_default().fill(0);
    volume.put_page(ino, index, page);
    volume.forget_extent(&node.inode)
}

/// Frees all blocks of a file from block `from` on, and nodes that become empty.
pub(super) fn free_from(volume: &mut WriteVolume, ino: Nid, from: u64) -> Result<()> {
    volume.read.dirty.pages.remove_from(ino, from);
    let node = volume.inode(ino)?;
    let layout = node.inode;
    volume.forget_extent(&layout)?;
    let own = u64::from(layout.fanout().inode);
    free_addresses(volume, &layout, ino, 0, from.min(own)..own)?;
    for top in layout.fanout().tops() {
        let slot = usize_from(top.slot);
        let block = volume.inode(ino)?.block;
        let nid = Nid(Inode::nids(&block).get(slot).map_or(0, |nid| nid.get()));
        if nid.0 != 0 && from < top.first + top.count && free_below(volume, &layout, nid, &top, from)? {
            let block = volume.edit_inode(ino)?;
            if let Some(place) = inode::nids_mut(block).get_mut(slot) {
                *place = 0.into();
            }
        }
    }
    Ok(())
}

/// Frees the blocks below a step, from block `from` of the file on; true if all of them were freed, and the node with
/// them.
fn free_below(volume: &mut WriteVolume, layout: &Inode, nid: Nid, step: &Step, from: u64) -> Result<bool> {
    let (ino, fanout) = (layout.ino(), layout.fanout());
    // Nodes below other nodes were removed whole.
    volume.settle();
    room::make(volume, 0, NODES_AT_ONCE, Urgency::Removal)?;
    if fanout.below(step, 0).is_none() {
        let start = from.saturating_sub(step.first);
        free_addresses(volume, layout, nid, step.offset, start..step.count)?;
    } else {
        let block = volume.node(nid, ino, step.offset)?;
        for slot in 0..ENTRIES_PER_NODE {
            let below = Nid(node::entries(&block).get(usize_from(slot)).map_or(0, |nid| nid.get()));
            let Some(next) = fanout.below(step, slot).filter(|next| below.0 != 0 && from < next.first + next.count)
            else {
                continue;
            };
            if free_below(volume, layout, below, &next, from)? {
                let block = volume.edit(nid, ino, step.offset)?;
                if let Some(place) = node::entries_mut(block).get_mut(usize_from(slot)) {
                    *place = 0.into();
                }
            }
        }
    }
    if from > step.first {
        return Ok(false);
    }
    volume.remove_node(nid)?;
    volume.count_inode_blocks(ino, -1)?;
    Ok(true)
}

/// Frees blocks by the indexes of their addresses in a node.
fn free_addresses(volume: &mut WriteVolume, layout: &Inode, nid: Nid, offset: u32, range: Range<u64>) -> Result<()> {
    let ino = layout.ino();
    let (start, end) = (to_usize(range.start), to_usize(range.end));
    let block = volume.node(nid, ino, offset)?;
    let addresses = if offset == 0 { layout.addresses(&block) } else { node::entries(&block) };
    let given: Vec<BlockAddr> =
        addresses.get(start..end).unwrap_or_default().iter().map(|at| BlockAddr(at.get())).collect();
    if given.iter().all(|at| *at == BlockAddr::NULL) {
        return Ok(());
    }
    // Inline contents occupy the place of addresses.
    if offset == 0 && layout.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY)) {
        return Ok(());
    }
    let block = volume.edit(nid, ino, offset)?;
    let addresses = if offset == 0 { layout.addresses_mut(block) } else { node::entries_mut(block) };
    addresses.get_mut(start..end).unwrap_or_default().iter_mut().for_each(|at| *at = 0.into());
    let mut freed = 0;
    for at in given {
        if at.is_block() {
            volume.space.give_back(at)?;
        }
        // The mark of a compressed cluster is counted with the blocks that compression saved.
        freed += i64::from(at != BlockAddr::NULL);
    }
    volume.count_blocks(ino, -freed)
}

/// Makes a range a hole.
pub(crate) fn punch(volume: &mut WriteVolume, ino: Nid, offset: u64, len: u64) -> Result<()> {
    let node = volume.inode(ino)?;
    volume.check_is_writable(&node)?;
    let end = offset.checked_add(len).ok_or(CallerError::TooLarge)?.min(node.inode.size());
    if offset >= end {
        return Ok(());
    }
    if node.inode.inline().contains(InlineFlags::DATA) {
        room::make(volume, 0, 1, Urgency::Removal)?;
        let layout = node.inode;
        let area = layout.inline_area_mut(volume.edit_inode(ino)?);
        area.get_mut(to_usize(offset)..to_usize(end)).unwrap_or_default().fill(0);
        return Ok(());
    }
    empty_range(volume, ino, offset..end, node.inode.size(), BlockAddr::NULL)
}

/// Zeroes a range, with blocks reserved for it; `grows` extends the file.
pub(crate) fn zero_range(volume: &mut WriteVolume, ino: Nid, offset: u64, len: u64, grows: bool) -> Result<()> {
    let size = volume.inode(ino)?.inode.size();
    // The step that may find no space comes first, so that nothing is lost.
    reserve(volume, ino, offset, len, grows)?;
    volume.settle();
    let end = offset.saturating_add(len).min(size);
    if offset >= end {
        return Ok(());
    }
    empty_range(volume, ino, offset..end, size, BlockAddr::NEW)
}

/// Zeroes a range of a file of `size` bytes: frees whole blocks, writes parts of others.
fn empty_range(volume: &mut WriteVolume, ino: Nid, range: Range<u64>, size: u64, to: BlockAddr) -> Result<()> {
    let whole = range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES;
    if whole.start > whole.end {
        return zero_part(volume, ino, range.start, range.end);
    }
    zero_part(volume, ino, range.start, whole.start * BLOCK_BYTES)?;
    zero_part(volume, ino, whole.end * BLOCK_BYTES, range.end)?;
    // If the size ends within a block, nothing is left behind it.
    let whole = if range.end == size { whole.start..range.end.div_ceil(BLOCK_BYTES) } else { whole };
    give_range(volume, ino, whole, to)
}

/// Frees the blocks of a range; nodes stay.
pub(super) fn free_range(volume: &mut WriteVolume, ino: Nid, range: Range<u64>) -> Result<()> {
    give_range(volume, ino, range, BlockAddr::NULL)
}

/// Frees the blocks of a range, which then has holes, or reserved blocks.
fn give_range(volume: &mut WriteVolume, ino: Nid, range: Range<u64>, to: BlockAddr) -> Result<()> {
    let mut index = range.start;
    while index < range.end {
        let node = volume.inode(ino)?;
        let run = crate::map::run(volume, &node, index, range.end - index)?;
        if run.at != BlockAddr::NULL {
            room::make(volume, 0, run.count.min(NODES_AT_ONCE) + NODES_PER_WAY, Urgency::Removal)?;
            volume.forget_extent(&node.inode)?;
            for index in index..index + run.count {
                volume.read.dirty.pages.take(ino, index);
                let slot = addresses::make(volume, &node.inode, index)?;
                addresses::set(volume, &node.inode, &slot, to)?;
            }
            let count = i64::try_from(run.count).unwrap_or(i64::MAX);
            volume.count_blocks(ino, if to == BlockAddr::NULL { -count } else { 0 })?;
        }
        index += run.count;
        if index < range.end {
            volume.settle();
        }
    }
    Ok(())
}

/// Reserves the missing blocks of a range; `grows` extends the file.
pub(crate) fn reserve(volume: &mut WriteVolume, ino: Nid, offset: u64, len: u64, grows: bool) -> Result<()> {
    let node = volume.inode(ino)?;
    volume.check_is_writable(&node)?;
    let end = offset.checked_add(len).ok_or(CallerError::TooLarge)?;
    if end > first_byte(node.inode.fanout().blocks_max()) {
        return Err(CallerError::TooLarge.into());
    }
    let (first, last) = (offset / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
    let is_inline = node.inode.inline().contains(InlineFlags::DATA);
    let missing = if is_inline { last - first + 1 } else { pages::missing(volume, &node, first, last)? };
    let nodes = missing / 512 + NODES_PER_WAY + 2;
    let cost = if missing == 0 { 0 } else { missing + nodes };
    // Reserved blocks are written later, if ever; the next checkpoint writes their nodes.
    volume.counters.check(cost)?;
    room::make(volume, nodes.min(cost), nodes, Urgency::Normal)?;
    pages::leave_inline(volume, ino)?;
    let layout = volume.inode(ino)?.inode;
    let (mut index, mut added) = (first, 0);
    while index < last {
        let node = volume.inode(ino)?;
        let run = crate::map::run(volume, &node, index, last - index)?;
        if run.at == BlockAddr::NULL {
            for index in index..index + run.count {
                let slot = addresses::make(volume, &layout, index)?;
                addresses::set(volume, &layout, &slot, BlockAddr::NEW)?;
                added += 1;
            }
        }
        index += run.count;
    }
    volume.count_blocks(ino, added)?;
    volume.forget_extent(&layout)?;
    let fields = volume.edit_fields(ino)?;
    if end > fields.i_size.get() {
        match grows {
            true => fields.i_size = end.into(),
            // Otherwise the next mount would free the blocks behind the end.
            false => fields.i_advise |= Advise::KEEP_SIZE.bits(),
        }
    }
    Ok(())
}
