//! Names of directories that change.

#![expect(clippy::arithmetic_side_effects, reason = "indexes of blocks of directories")]

use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::dentry::{DEPTH_MAX, New, Slots, SlotsMut, bucket};
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{self, Kind, NAME_BYTES_MAX};
use f2fs_disk::node::first_byte;
use f2fs_disk::{BLOCK_SIZE, BlockAddr, Corrupt, Detail, Nid};

use super::Urgency;
use super::data::NODES_PER_WAY;
use super::inodes::set_name;
use crate::dir::{self, Found, Wanted};
use crate::error::{CallerError, Error, Result};
use crate::store::{Node, Store};

/// Blocks that a name may take: one of the directory, nodes on the way there, and the one that inline names go to.
const NAME_BLOCKS: u64 = 2 + NODES_PER_WAY + 1;
/// Names that an inode can have.
const LINKS_MAX: u32 = u32::MAX;

/// Refuses what cannot be a name.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        name if name.len() > NAME_BYTES_MAX => Err(CallerError::NameTooLong.into()),
        b"" | b"." | b".." => Err(CallerError::InvalidArgument.into()),
        name if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(CallerError::InvalidArgument.into()),
        _ => Ok(()),
    }
}

impl Store {
    /// Where a name stands in a directory.
    pub(crate) fn find_name(&self, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > NAME_BYTES_MAX {
            return Err(CallerError::NameTooLong.into());
        }
        self.check_is_writable(dir)?;
        dir::find(self, dir, name)
    }

    /// Adds a name, which is not there, to a directory.
    pub(super) fn add_name(&mut self, dir: Nid, name: &[u8], ino: Nid, kind: Kind) -> Result<()> {
        self.make_room(NAME_BLOCKS, NAME_BLOCKS, Urgency::Normal)?;
        let hash = Wanted::new(self, &self.inode(dir)?, name)?.hash;
        let new = New { name, hash, ino, kind };
        if !self.add_inline(dir, &new)? {
            self.add_hashed(dir, &new)?;
        }
        self.touch_contents(dir)
    }

    /// Adds a name inline; false, and the directory has blocks from now on, where there is no room.
    fn add_inline(&mut self, dir: Nid, new: &New<'_>) -> Result<bool> {
        let node = self.inode(dir)?;
        let layout = node.inode;
        if !layout.inline().contains(InlineFlags::DENTRY) {
            return Ok(false);
        }
        let block = self.edit_inode(dir)?;
        let mut slots = SlotsMut::inline(layout.inline_area_mut(block));
        if let Some(slot) = slots.room(new.name.len()) {
            slots.put(slot, new);
            return Ok(true);
        }
        self.leave_inline_names(dir)?;
        Ok(false)
    }

    /// Inline names go to the first block of the directory.
    pub(super) fn leave_inline_names(&mut self, dir: Nid) -> Result<()> {
        let node = self.inode(dir)?;
        let layout = node.inode;
        let mut page = [0; BLOCK_SIZE];
        let mut target = SlotsMut::of_block(&mut page);
        for entry in Slots::inline(layout.inline_area(&node.block)).entries_from(0) {
            let entry = entry.map_err(|error| error.at(f2fs_disk::At::Inode(dir)))?;
            let slot = target.room(entry.name.len()).ok_or(Error::NoSpace)?;
            let kind = entry.kind.unwrap_or(Kind::File);
            target.put(slot, &New { name: entry.name, hash: entry.hash, ino: entry.ino, kind });
        }
        let block = self.edit_inode(dir)?;
        layout.inline_area_mut(block).fill(0);
        let fields = inode::fields_mut(block);
        fields.i_inline &= !(InlineFlags::DENTRY.bits() | InlineFlags::DOTS.bits());
        fields.i_size = to_u64(BLOCK_SIZE).into();
        if fields.i_current_depth.get() == 0 {
            fields.i_current_depth = 1.into();
        }
        let layout = self.inode(dir)?.inode;
        let slot = self.slot_made(&layout, 0)?;
        self.set_address(&layout, &slot, BlockAddr::NEW)?;
        self.count_blocks(dir, 1)?;
        self.writer_mut()?.put_page(dir, 0, Arc::new(page));
        Ok(())
    }

    fn add_hashed(&mut self, dir: Nid, new: &New<'_>) -> Result<()> {
        let mut level = 0;
        while level < DEPTH_MAX {
            let layout = self.inode(dir)?.inode;
            let fields = layout.fields();
            if level == fields.i_current_depth.get() {
                self.edit_fields(dir)?.i_current_depth = (level + 1).into();
            }
            let (first, count) = bucket(level, fields.i_dir_level, new.hash);
            for index in first..first + count {
                if self.add_to_block(dir, index, new)? {
                    return Ok(());
                }
            }
            level += 1;
        }
        Err(Error::NoSpace)
    }

    fn add_to_block(&mut self, dir: Nid, index: u64, new: &New<'_>) -> Result<bool> {
        let node = self.inode(dir)?;
        if let Some(block) = dir::block(self, &node, index)? {
            let mut copy = *block;
            if SlotsMut::of_block(&mut copy).room(new.name.len()).is_none() {
                return Ok(false);
            }
        }
        let layout = node.inode;
        let slot = self.slot_made(&layout, index)?;
        let (mut page, is_new) = self.page_to_change(&layout, &slot, index, false)?;
        let mut slots = SlotsMut::of_block(Arc::make_mut(&mut page));
        let place = slots.room(new.name.len());
        if let Some(place) = place {
            slots.put(place, new);
        }
        self.writer_mut()?.put_page(dir, index, page);
        self.count_blocks(dir, i64::from(is_new))?;
        self.forget_extent(dir)?;
        let end = first_byte(index + 1);
        if layout.size() < end {
            self.edit_fields(dir)?.i_size = end.into();
        }
        Ok(place.is_some())
    }

    /// Does something to the slots of a block of names, or of the inode.
    fn edit_slots(&mut self, dir: Nid, found: &Found, change: impl FnOnce(&mut SlotsMut<'_>)) -> Result<()> {
        let layout = self.inode(dir)?.inode;
        let Some(index) = found.block else {
            let block = self.edit_inode(dir)?;
            change(&mut SlotsMut::inline(layout.inline_area_mut(block)));
            return Ok(());
        };
        let slot = self.slot_made(&layout, index)?;
        let (mut page, _) = self.page_to_change(&layout, &slot, index, false)?;
        change(&mut SlotsMut::of_block(Arc::make_mut(&mut page)));
        self.writer_mut()?.put_page(dir, index, page);
        Ok(())
    }

    /// Takes a name out of a directory.
    pub(super) fn remove_name(&mut self, dir: Nid, found: &Found, name: &[u8]) -> Result<()> {
        self.make_room(0, NAME_BLOCKS, Urgency::Removal)?;
        self.writer_mut()?.chain.lost(dir, name);
        self.edit_slots(dir, found, |slots| slots.remove(found.slot, found.len))?;
        if let Some(index) = found.block {
            let is_empty =
                self.page(dir, index).is_some_and(|page| Slots::of_block(page).entries_from(0).next().is_none());
            if is_empty {
                self.free_range(dir, index..index + 1)?;
            }
        }
        self.touch_contents(dir)
    }

    /// A name leads elsewhere from now on.
    fn set_target(&mut self, dir: Nid, found: &Found, ino: Nid, kind: Kind) -> Result<()> {
        self.make_room(0, NAME_BLOCKS, Urgency::Normal)?;
        self.edit_slots(dir, found, |slots| slots.set_target(found.slot, ino, kind))
    }

    /// One more name for an inode.
    pub(crate) fn link(&mut self, ino: Nid, dir: Nid, name: &[u8]) -> Result<()> {
        let node = self.inode(ino)?;
        if node.inode.fields().i_links.get() == LINKS_MAX {
            return Err(CallerError::TooManyLinks.into());
        }
        self.add_name(dir, name, ino, node.inode.kind())?;
        let writer = self.writer_mut()?;
        writer.chain.bar(ino);
        writer.unnamed.remove(&ino);
        let was_orphan = writer.orphans.remove(&ino);
        let fields = self.edit_fields(ino)?;
        if was_orphan {
            set_name(fields, dir, name);
        } else {
            fields.i_advise |= Advise::LOST_PINO.bits();
        }
        self.add_links(ino, 1)?;
        self.touch_inode(ino)
    }

    /// Takes a name away; true where that was the last one of its inode, which stays, as an orphan.
    pub(crate) fn unlink(&mut self, dir: Nid, found: &Found, name: &[u8]) -> Result<bool> {
        let node = self.inode(found.ino)?;
        let is_dir = node.inode.kind() == Kind::Directory;
        self.remove_name(dir, found, name)?;
        if is_dir {
            self.add_links(dir, -1)?;
        }
        self.drop_link(found.ino, is_dir)
    }

    /// An inode has one name less; true where it has none any more.
    fn drop_link(&mut self, ino: Nid, is_dir: bool) -> Result<bool> {
        let links = self.inode(ino)?.inode.fields().i_links.get();
        let left = if is_dir { 0 } else { links.saturating_sub(1) };
        self.edit_fields(ino)?.i_links = left.into();
        self.writer_mut()?.chain.bar(ino);
        self.touch_inode(ino)?;
        if left == 0 {
            self.writer_mut()?.orphans.insert(ino);
        }
        Ok(left == 0)
    }

    /// True for a directory with nothing in it.
    pub(crate) fn is_empty_dir(&self, dir: &Node) -> Result<bool> {
        let mut is_empty = true;
        dir::list(self, dir, 0, &mut |listed| {
            is_empty = matches!(listed.name, b"." | b"..");
            Ok(is_empty)
        })?;
        Ok(is_empty)
    }

    /// Moves a name; what stood at the target, if anything, loses it. Returns an inode that lost its last name so.
    pub(crate) fn rename(
        &mut self,
        (from, old_name): (Nid, &[u8]),
        (to, new_name): (Nid, &[u8]),
        source: &Found,
        target: Option<&Found>,
    ) -> Result<Option<Nid>> {
        let kind = self.inode(source.ino)?.inode.kind();
        let is_dir = kind == Kind::Directory;
        let mut lost = None;
        match target {
            Some(target) => {
                let replaced = self.inode(target.ino)?.inode.kind() == Kind::Directory;
                self.writer_mut()?.chain.lost(to, new_name);
                self.set_target(to, target, source.ino, kind)?;
                self.touch_contents(to)?;
                if replaced {
                    self.add_links(to, -1)?;
                }
                if self.drop_link(target.ino, replaced)? {
                    lost = Some(target.ino);
                }
            }
            None => self.add_name(to, new_name, source.ino, kind)?,
        }
        // Adding may have moved the old name.
        let node = self.inode(from)?;
        let source_now = dir::find(self, &node, old_name)?.ok_or(CallerError::NotFound)?;
        self.remove_name(from, &source_now, old_name)?;
        if is_dir && from != to {
            self.set_parent(source.ino, to)?;
            self.add_links(from, -1)?;
            self.add_links(to, 1)?;
        }
        set_name(self.edit_fields(source.ino)?, to, new_name);
        self.writer_mut()?.chain.bar(source.ino);
        self.touch_inode(source.ino)?;
        Ok(lost)
    }

    /// Two names change what they lead to.
    pub(crate) fn exchange(
        &mut self,
        (from, old_name): (Nid, &[u8]),
        (to, new_name): (Nid, &[u8]),
        source: &Found,
        target: &Found,
    ) -> Result<()> {
        let kinds = (self.inode(source.ino)?.inode.kind(), self.inode(target.ino)?.inode.kind());
        self.set_target(from, source, target.ino, kinds.1)?;
        self.set_target(to, target, source.ino, kinds.0)?;
        if from != to {
            let moved = [(source.ino, kinds.0, from, to), (target.ino, kinds.1, to, from)];
            for (ino, _, left, parent) in moved.into_iter().filter(|(_, kind, ..)| *kind == Kind::Directory) {
                self.set_parent(ino, parent)?;
                self.add_links(left, -1)?;
                self.add_links(parent, 1)?;
            }
        }
        set_name(self.edit_fields(source.ino)?, to, new_name);
        set_name(self.edit_fields(target.ino)?, from, old_name);
        for ((dir, name), ino) in [((from, old_name), source.ino), ((to, new_name), target.ino)] {
            let chain = &mut self.writer_mut()?.chain;
            chain.lost(dir, name);
            chain.bar(ino);
            self.touch_inode(ino)?;
        }
        self.touch_contents(from)?;
        self.touch_contents(to)
    }

    /// The directory above a directory is another one from now on.
    fn set_parent(&mut self, dir: Nid, parent: Nid) -> Result<()> {
        let node = self.inode(dir)?;
        let found = dir::find(self, &node, b"..")?.ok_or_else(|| {
            let (expected, found) = (Detail::Text("a name for the directory above"), Detail::Text("none"));
            Corrupt::new("dentry", expected, found).at(f2fs_disk::At::Inode(dir))
        })?;
        self.set_target(dir, &found, parent, Kind::Directory)
    }

    /// True where a directory is another one, or below it.
    pub(crate) fn is_below(&self, dir: Nid, above: Nid) -> Result<bool> {
        let mut at = dir;
        // No path is longer, whatever the image says.
        for _ in 0..self.geometry().nid_count {
            if at == above {
                return Ok(true);
            }
            if at == self.root() {
                return Ok(false);
            }
            let next = dir::lookup(self, &self.inode(at)?, b"..")?;
            if next == at {
                return Ok(false);
            }
            at = next;
        }
        Ok(false)
    }
}
