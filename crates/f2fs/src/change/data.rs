//! Writes contents of files, and targets of new symbolic links. Called by `vfs_impl/data` for writes, and by `inodes`.

#![expect(clippy::arithmetic_side_effects, reason = "offsets within files, checked against the largest file")]

use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize};
use f2fs_disk::flags::InlineFlags;
use f2fs_disk::inode;
use f2fs_disk::node::first_byte;
use f2fs_disk::{BLOCK_SIZE, BlockAddr, Nid};

use super::addresses;
use super::pages::{self, NODES_PER_WAY};
use super::preparation::Prepared;
use super::room::{self, Urgency};
use crate::error::{CallerError, Result};
use crate::read_volume::Node;
use crate::write_volume::WriteVolume;

const BLOCK_BYTES: u64 = 4096;
/// Pages that are written between two checks for space.
const PAGES_AT_ONCE: u64 = 1024;

/// Writes bytes at an offset, which may be behind the end; the size grows as needed. Returns the number of bytes
/// written: fewer if space is short, and an error if there is none.
pub(crate) fn write(
    volume: &mut WriteVolume,
    ino: Nid,
    offset: u64,
    data: &[u8],
    prepared: &mut Prepared,
) -> Result<usize> {
    let node = volume.inode(ino)?;
    volume.check_is_writable(&node)?;
    let end = offset.checked_add(to_u64(data.len())).ok_or(CallerError::TooLarge)?;
    if end > first_byte(node.inode.fanout().blocks_max()) {
        return Err(CallerError::TooLarge.into());
    }
    if node.inode.inline().contains(InlineFlags::DATA) {
        if end <= to_u64(node.inode.inline_size()) {
            room::make(volume, 0, 1, Urgency::Normal)?;
            write_inline(volume, &node, offset, data)?;
            return Ok(data.len());
        }
        room::make(volume, 2 + NODES_PER_WAY, 2, Urgency::Normal)?;
        pages::leave_inline(volume, ino)?;
        if data.len() > BLOCK_SIZE {
            // A further write has to find space of its own.
            volume.settle();
        }
    }
    prepared.keep_if_at(offset);
    let (mut done, mut pages) = (0, PAGES_AT_ONCE);
    while done < data.len() {
        let at = offset + to_u64(done);
        let len = to_usize(pages * BLOCK_BYTES - at % BLOCK_BYTES).min(data.len() - done);
        let part = data.get(done..done + len).unwrap_or_default();
        match write_pages(volume, ino, at, part, prepared) {
            Ok(()) => {
                done += len;
                if done < data.len() {
                    volume.settle();
                }
            }
            // There may be space for a part of it.
            Err(crate::Error::NoSpace { .. }) if len > BLOCK_SIZE => {
                pages = (to_u64(len).div_ceil(BLOCK_BYTES) / 2).max(1);
            }
            Err(crate::Error::NoSpace { .. }) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn write_pages(volume: &mut WriteVolume, ino: Nid, offset: u64, data: &[u8], prepared: &mut Prepared) -> Result<()> {
    let end = offset + to_u64(data.len());
    let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
    let node = volume.inode(ino)?;
    let new = pages::missing(volume, &node, first, last + 1)?;
    room::make(volume, if new == 0 { 0 } else { pages::cost(new) }, pages::cost(last - first + 1), Urgency::Normal)?;
    let layout = node.inode;
    let mut added = 0;
    for piece in pages::pieces(offset, data) {
        let slot = addresses::make(volume, &layout, piece.index)?;
        let at = pages::reserve(volume, &layout, &slot)?;
        added += i64::from(at == BlockAddr::NULL);
        let page = match prepared.take(volume, ino, &piece, at) {
            Some(page) => page,
            None => {
                let mut page = pages::take_at(volume, ino, piece.index, at, piece.is_whole())?;
                piece.put(Arc::make_mut(&mut page));
                page
            }
        };
        volume.put_page(ino, piece.index, page);
    }
    volume.count_blocks(ino, added)?;
    volume.forget_extent(&layout)?;
    if layout.size() < end {
        volume.edit_fields(ino)?.i_size = end.into();
    }
    Ok(())
}

fn write_inline(volume: &mut WriteVolume, node: &Node, offset: u64, data: &[u8]) -> Result<()> {
    let layout = node.inode;
    let block = volume.edit_inode(layout.ino())?;
    let area = layout.inline_area_mut(block).get_mut(to_usize(offset)..).unwrap_or_default();
    area.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    let fields = inode::fields_mut(block);
    fields.i_inline |= InlineFlags::DATA_EXIST.bits();
    let end = offset + to_u64(data.len());
    if fields.i_size.get() < end {
        fields.i_size = end.into();
    }
    Ok(())
}
