//! Contents of files, and the pages of directories.

#![expect(clippy::arithmetic_side_effects, reason = "offsets within files, checked against the largest file")]

use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize};
use f2fs_disk::flags::{Advise, InlineFlags, InodeFlags};
use f2fs_disk::inode::{self, Inode, Kind};
use f2fs_disk::node::first_byte;
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid};

use super::addresses::Slot;
use crate::dir;
use crate::error::{CallerError, Result, Unsupported};
use crate::map;
use crate::store::{Node, Store};

const BLOCK_BYTES: u64 = 4096;
/// Nodes on the way to a block of a file.
pub(super) const NODES_PER_WAY: u64 = 4;
/// Pages that are written between two looks at the room that is left.
const PAGES_AT_ONCE: u64 = 1024;

impl Store {
    /// Refuses to change contents, or names in it, of what is only read.
    pub(crate) fn check_is_writable(&self, node: &Node) -> Result<()> {
        let advise = node.inode.advise();
        let has_flag = node.inode.kind() == Kind::Directory && node.inode.flags().contains(InodeFlags::CASEFOLD);
        let is_folded = has_flag && !(dir::ignores_case(self, node) && dir::knows_case(self));
        let is_guarded = advise.intersects(Advise::ENCRYPT.union(Advise::VERITY));
        let released = node.inode.inline().contains(InlineFlags::COMPRESS_RELEASED);
        if is_folded || is_guarded || released || node.inode.compressed().is_some() {
            return Err(Unsupported::Change(node.ino()).into());
        }
        Ok(())
    }

    /// Writes bytes at an offset, which may be behind the end; the size grows as needed. Returns how many bytes were
    /// written: fewer where there was no room for more, and an error where there was none for any.
    pub(crate) fn write_data(&mut self, ino: Nid, offset: u64, data: &[u8]) -> Result<usize> {
        let node = self.inode(ino)?;
        self.check_is_writable(&node)?;
        let end = offset.checked_add(to_u64(data.len())).ok_or(CallerError::TooLarge)?;
        if end > first_byte(node.inode.fanout().blocks_max()) {
            return Err(CallerError::TooLarge.into());
        }
        if node.inode.inline().contains(InlineFlags::DATA) {
            if end <= to_u64(node.inode.inline_size()) {
                self.make_room(0, 1, super::Urgency::Normal)?;
                self.write_inline(&node, offset, data)?;
                return Ok(data.len());
            }
            self.make_room(2 + NODES_PER_WAY, 2, super::Urgency::Normal)?;
            self.leave_inline(ino)?;
            if data.len() > BLOCK_SIZE {
                // What is written behind it needs room of its own.
                self.settle()?;
            }
        }
        let (mut done, mut pages) = (0, PAGES_AT_ONCE);
        while done < data.len() {
            let at = offset + to_u64(done);
            let len = to_usize(pages * BLOCK_BYTES - at % BLOCK_BYTES).min(data.len() - done);
            let part = data.get(done..done + len).unwrap_or_default();
            match self.write_pages(ino, at, part) {
                Ok(()) => {
                    done += len;
                    if done < data.len() {
                        self.settle()?;
                    }
                }
                // There may be room for a part of it.
                Err(crate::Error::NoSpace) if len > BLOCK_SIZE => {
                    pages = (to_u64(len).div_ceil(BLOCK_BYTES) / 2).max(1);
                }
                Err(crate::Error::NoSpace) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Blocks and nodes that a range of a file may need.
    pub(super) fn cost(pages: u64) -> u64 {
        pages + pages / 512 + NODES_PER_WAY + 2
    }

    fn write_pages(&mut self, ino: Nid, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + to_u64(data.len());
        let (first, last) = (offset / BLOCK_BYTES, (end - 1) / BLOCK_BYTES);
        let new = self.missing_blocks(ino, first, last + 1)?;
        self.make_room(
            if new == 0 { 0 } else { Self::cost(new) },
            Self::cost(last - first + 1),
            super::Urgency::Normal,
        )?;
        let layout = self.inode(ino)?.inode;
        let mut added = 0;
        for index in first..=last {
            let start = first_byte(index);
            let (from, to) = (offset.max(start) - start, end.min(start + BLOCK_BYTES) - start);
            let slot = self.slot_made(&layout, index)?;
            let is_whole = to - from == BLOCK_BYTES;
            let (mut page, is_new) = self.page_to_change(&layout, &slot, index, is_whole)?;
            let source = to_usize(start + from - offset);
            let bytes = data.get(source..source + to_usize(to - from)).unwrap_or_default();
            let target = Arc::make_mut(&mut page).get_mut(to_usize(from)..to_usize(to)).unwrap_or_default();
            target.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            added += i64::from(is_new);
            self.writer_mut()?.put_page(ino, index, page);
        }
        self.count_blocks(ino, added)?;
        self.forget_extent(ino)?;
        if layout.size() < end {
            self.edit_fields(ino)?.i_size = end.into();
        }
        Ok(())
    }

    /// Blocks of a range that have no place yet, as far as that is easily known: all of those in holes.
    pub(super) fn missing_blocks(&self, ino: Nid, first: u64, end: u64) -> Result<u64> {
        let node = self.inode(ino)?;
        let (mut index, mut missing) = (first, 0);
        while index < end {
            let run = map::run(self, &node, index, end - index)?;
            if run.at == BlockAddr::NULL {
                missing += run.count;
            }
            index += run.count;
        }
        Ok(missing)
    }

    /// A page with what the file has there, taken out of those that changed or read; whether its block was reserved by
    /// this, which the caller counts. Nothing is read for one that is written as a whole.
    pub(super) fn page_to_change(
        &mut self,
        layout: &Inode,
        slot: &Slot,
        index: u64,
        is_whole: bool,
    ) -> Result<(Arc<Block>, bool)> {
        let at = self.address_in(layout, slot)?;
        if at == BlockAddr::NULL {
            self.set_address(layout, slot, BlockAddr::NEW)?;
        }
        let writer = self.writer_mut()?;
        let known = writer.pages.get_mut(&layout.ino()).and_then(|pages| pages.remove(&index));
        if let Some(page) = known {
            writer.page_count -= 1;
            return Ok((page, false));
        }
        let page = match at {
            at if at.is_block() && !is_whole => {
                map::check_is_data(self, layout.ino(), index, at)?;
                Arc::new(self.blocks.read(at)?)
            }
            _ => Arc::new([0; BLOCK_SIZE]),
        };
        Ok((page, at == BlockAddr::NULL))
    }

    fn write_inline(&mut self, node: &Node, offset: u64, data: &[u8]) -> Result<()> {
        let layout = node.inode;
        let block = self.edit_inode(layout.ino())?;
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

    /// Inline contents go to a block of their own. The caller has made room for that.
    pub(super) fn leave_inline(&mut self, ino: Nid) -> Result<()> {
        let node = self.inode(ino)?;
        let layout = node.inode;
        if !layout.inline().contains(InlineFlags::DATA) {
            return Ok(());
        }
        let len = to_usize(layout.size()).min(layout.inline_size());
        let bytes = layout.inline_area(&node.block).get(..len).unwrap_or_default().to_vec();
        let block = self.edit_inode(ino)?;
        layout.inline_area_mut(block).fill(0);
        let fields = inode::fields_mut(block);
        fields.i_inline &= !(InlineFlags::DATA.bits() | InlineFlags::DATA_EXIST.bits());
        if bytes.is_empty() {
            return Ok(());
        }
        let layout = self.inode(ino)?.inode;
        let slot = self.slot_made(&layout, 0)?;
        let (mut page, is_new) = self.page_to_change(&layout, &slot, 0, true)?;
        Arc::make_mut(&mut page).iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        self.writer_mut()?.put_page(ino, 0, page);
        self.count_blocks(ino, i64::from(is_new))
    }
}
