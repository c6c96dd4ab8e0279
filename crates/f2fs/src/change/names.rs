//! Adds, removes and replaces names in directories. Called by `vfs_impl/names`, `inodes` and `replay`.

#![expect(clippy::arithmetic_side_effects, reason = "indexes of blocks of directories")]

use std::sync::Arc;

use f2fs_disk::convert::{to_u64, u32_len};
use f2fs_disk::dentry::{DEPTH_MAX, New, Slots, SlotsMut, bucket};
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{self, DiskInode, Kind, NAME_BYTES_MAX};
use f2fs_disk::node::first_byte;
use f2fs_disk::{BLOCK_SIZE, BlockAddr, Corrupt, Detail, Nid};

use super::pages::{self, NODES_PER_WAY};
use super::room::{self, Urgency};
use super::{addresses, size_and_holes};
use crate::dir::{self, Found, Wanted};
use crate::error::{CallerError, Error, Result};
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Blocks that a name may take: one of the directory, nodes above it, and one that inline names move to.
const NAME_BLOCKS: u64 = 2 + NODES_PER_WAY + 1;
/// Most names of an inode.
const LINKS_MAX: u32 = u32::MAX;

/// Refuses invalid names.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        name if name.len() > NAME_BYTES_MAX => Err(CallerError::NameTooLong.into()),
        b"" | b"." | b".." => Err(CallerError::InvalidArgument.into()),
        name if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(CallerError::InvalidArgument.into()),
        _ => Ok(()),
    }
}

/// The place of a name in a directory.
pub(crate) fn find(volume: &WriteVolume, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    volume.check_is_writable(dir)?;
    dir::find(volume, dir, name)
}

/// Adds a new name to a directory.
pub(super) fn add(volume: &mut WriteVolume, dir: Nid, name: &[u8], ino: Nid, kind: Kind) -> Result<()> {
    room::make(volume, NAME_BLOCKS, NAME_BLOCKS, Urgency::Normal)?;
    let hash = Wanted::new(volume, &volume.inode(dir)?, name)?.hash;
    let new = New { name, hash, ino, kind };
    if !add_inline(volume, dir, &new)? {
        add_hashed(volume, dir, &new)?;
    }
    volume.touch_contents(dir)
}

/// Adds a name inline; false if there is no room, and then the directory has blocks.
fn add_inline(volume: &mut WriteVolume, dir: Nid, new: &New<'_>) -> Result<bool> {
    let node = volume.inode(dir)?;
    let layout = node.inode;
    if !layout.inline().contains(InlineFlags::DENTRY) {
        return Ok(false);
    }
    let block = volume.edit_inode(dir)?;
    let mut slots = SlotsMut::inline(layout.inline_area_mut(block));
    if let Some(slot) = slots.room(new.name.len()) {
        slots.put(slot, new);
        return Ok(true);
    }
    leave_inline(volume, dir)?;
    Ok(false)
}

/// Moves inline names to the first block of the directory.
pub(super) fn leave_inline(volume: &mut WriteVolume, dir: Nid) -> Result<()> {
    let node = volume.inode(dir)?;
    let layout = node.inode;
    let mut page = [0; BLOCK_SIZE];
    let mut target = SlotsMut::of_block(&mut page);
    for entry in Slots::inline(layout.inline_area(&node.block)).entries_from(0) {
        let entry = entry.map_err(|error| error.at(f2fs_disk::At::Inode(dir)))?;
        let slot = target.room(entry.name.len()).ok_or_else(|| Error::no_space(1, 0))?;
        let kind = entry.kind.unwrap_or(Kind::File);
        target.put(slot, &New { name: entry.name, hash: entry.hash, ino: entry.ino, kind });
    }
    let block = volume.edit_inode(dir)?;
    layout.inline_area_mut(block).fill(0);
    let fields = inode::fields_mut(block);
    fields.i_inline &= !(InlineFlags::DENTRY.bits() | InlineFlags::DOTS.bits());
    fields.i_size = to_u64(BLOCK_SIZE).into();
    if fields.i_current_depth.get() == 0 {
        fields.i_current_depth = 1.into();
    }
    let layout = volume.inode(dir)?.inode;
    let slot = addresses::make(volume, &layout, 0)?;
    addresses::set(volume, &layout, &slot, BlockAddr::NEW)?;
    volume.count_blocks(dir, 1)?;
    volume.put_page(dir, 0, Arc::new(page));
    Ok(())
}

fn add_hashed(volume: &mut WriteVolume, dir: Nid, new: &New<'_>) -> Result<()> {
    let mut level = 0;
    while level < DEPTH_MAX {
        let layout = volume.inode(dir)?.inode;
        let fields = layout.fields();
        if level == fields.i_current_depth.get() {
            volume.edit_fields(dir)?.i_current_depth = (level + 1).into();
        }
        let (first, count) = bucket(level, fields.i_dir_level, new.hash);
        for index in first..first + count {
            if add_to_block(volume, dir, index, new)? {
                return Ok(());
            }
        }
        level += 1;
    }
    Err(Error::no_space(1, 0))
}

fn add_to_block(volume: &mut WriteVolume, dir: Nid, index: u64, new: &New<'_>) -> Result<bool> {
    let node = volume.inode(dir)?;
    if let Some(block) = dir::block(volume, &node, index)? {
        let mut copy = *block;
        if SlotsMut::of_block(&mut copy).room(new.name.len()).is_none() {
            return Ok(false);
        }
    }
    let layout = node.inode;
    let slot = addresses::make(volume, &layout, index)?;
    let (mut page, is_new) = pages::take(volume, &layout, &slot, index, false)?;
    let mut slots = SlotsMut::of_block(Arc::make_mut(&mut page));
    let place = slots.room(new.name.len());
    if let Some(place) = place {
        slots.put(place, new);
    }
    volume.put_page(dir, index, page);
    volume.count_blocks(dir, i64::from(is_new))?;
    volume.forget_extent(&layout)?;
    let end = first_byte(index + 1);
    if layout.size() < end {
        volume.edit_fields(dir)?.i_size = end.into();
    }
    Ok(place.is_some())
}

/// Changes the slots of a block of names, or of the inode.
fn edit_slots(volume: &mut WriteVolume, dir: Nid, found: &Found, change: impl FnOnce(&mut SlotsMut<'_>)) -> Result<()> {
    let layout = volume.inode(dir)?.inode;
    let Some(index) = found.block else {
        let block = volume.edit_inode(dir)?;
        change(&mut SlotsMut::inline(layout.inline_area_mut(block)));
        return Ok(());
    };
    let slot = addresses::make(volume, &layout, index)?;
    let (mut page, _) = pages::take(volume, &layout, &slot, index, false)?;
    change(&mut SlotsMut::of_block(Arc::make_mut(&mut page)));
    volume.put_page(dir, index, page);
    Ok(())
}

/// Removes a name from a directory.
pub(super) fn remove(volume: &mut WriteVolume, dir: Nid, found: &Found, name: &[u8]) -> Result<()> {
    room::make(volume, 0, NAME_BLOCKS, Urgency::Removal)?;
    volume.chain.lost(dir, name);
    edit_slots(volume, dir, found, |slots| slots.remove(found.slot, found.len))?;
    if let Some(index) = found.block {
        let is_empty =
            volume.page(dir, index).is_some_and(|page| Slots::of_block(page).entries_from(0).next().is_none());
        if is_empty {
            size_and_holes::free_range(volume, dir, index..index + 1)?;
        }
    }
    volume.touch_contents(dir)
}

/// Makes a name lead to another inode.
fn set_target(volume: &mut WriteVolume, dir: Nid, found: &Found, ino: Nid, kind: Kind) -> Result<()> {
    room::make(volume, 0, NAME_BLOCKS, Urgency::Normal)?;
    edit_slots(volume, dir, found, |slots| slots.set_target(found.slot, ino, kind))
}

/// Adds a name of an inode.
pub(crate) fn link(volume: &mut WriteVolume, ino: Nid, dir: Nid, name: &[u8]) -> Result<()> {
    let node = volume.inode(ino)?;
    if node.inode.fields().i_links.get() == LINKS_MAX {
        return Err(CallerError::TooManyLinks.into());
    }
    add(volume, dir, name, ino, node.inode.kind())?;
    volume.chain.bar(ino);
    let was_orphan = volume.orphans.remove(ino);
    let fields = volume.edit_fields(ino)?;
    if was_orphan {
        set_name(fields, dir, name);
    } else {
        fields.i_advise |= Advise::LOST_PINO.bits();
    }
    volume.add_links(ino, 1)?;
    volume.touch_inode(ino)
}

/// Removes a name; true if it was the last one of its inode, which stays as an orphan.
pub(crate) fn unlink(volume: &mut WriteVolume, dir: Nid, found: &Found, name: &[u8]) -> Result<bool> {
    let node = volume.inode(found.ino)?;
    let is_dir = node.inode.kind() == Kind::Directory;
    remove(volume, dir, found, name)?;
    if is_dir {
        volume.add_links(dir, -1)?;
    }
    drop_link(volume, found.ino, is_dir)
}

/// Reduces an inode's link count; true if it reaches zero.
fn drop_link(volume: &mut WriteVolume, ino: Nid, is_dir: bool) -> Result<bool> {
    let links = volume.inode(ino)?.inode.fields().i_links.get();
    let left = if is_dir { 0 } else { links.saturating_sub(1) };
    volume.edit_fields(ino)?.i_links = left.into();
    volume.chain.bar(ino);
    volume.touch_inode(ino)?;
    if left == 0 {
        volume.orphans.all.insert(ino);
    }
    Ok(left == 0)
}

/// True for an empty directory.
pub(crate) fn is_empty_dir(volume: &ReadVolume, dir: &Node) -> Result<bool> {
    let mut is_empty = true;
    dir::list(volume, dir, 0, &mut |listed| {
        is_empty = matches!(listed.name, b"." | b"..");
        Ok(is_empty)
    })?;
    Ok(is_empty)
}

/// Moves a name; an existing target loses its name. Returns an inode that thereby became an orphan.
pub(crate) fn rename(
    volume: &mut WriteVolume,
    (from, old_name): (Nid, &[u8]),
    (to, new_name): (Nid, &[u8]),
    source: &Found,
    target: Option<&Found>,
) -> Result<Option<Nid>> {
    let kind = volume.inode(source.ino)?.inode.kind();
    let is_dir = kind == Kind::Directory;
    let mut lost = None;
    match target {
        Some(target) => {
            let replaced = volume.inode(target.ino)?.inode.kind() == Kind::Directory;
            volume.chain.lost(to, new_name);
            set_target(volume, to, target, source.ino, kind)?;
            volume.touch_contents(to)?;
            if replaced {
                volume.add_links(to, -1)?;
            }
            if drop_link(volume, target.ino, replaced)? {
                lost = Some(target.ino);
            }
        }
        None => add(volume, to, new_name, source.ino, kind)?,
    }
    // Adding may have moved the old name.
    let node = volume.inode(from)?;
    let source_now = dir::find(volume, &node, old_name)?.ok_or(CallerError::NotFound)?;
    remove(volume, from, &source_now, old_name)?;
    if is_dir && from != to {
        set_parent(volume, source.ino, to)?;
        volume.add_links(from, -1)?;
        volume.add_links(to, 1)?;
    }
    set_name(volume.edit_fields(source.ino)?, to, new_name);
    volume.chain.bar(source.ino);
    volume.touch_inode(source.ino)?;
    Ok(lost)
}

/// Exchanges the inodes of two names.
pub(crate) fn exchange(
    volume: &mut WriteVolume,
    (from, old_name): (Nid, &[u8]),
    (to, new_name): (Nid, &[u8]),
    source: &Found,
    target: &Found,
) -> Result<()> {
    let kinds = (volume.inode(source.ino)?.inode.kind(), volume.inode(target.ino)?.inode.kind());
    set_target(volume, from, source, target.ino, kinds.1)?;
    set_target(volume, to, target, source.ino, kinds.0)?;
    if from != to {
        let moved = [(source.ino, kinds.0, from, to), (target.ino, kinds.1, to, from)];
        for (ino, _, left, parent) in moved.into_iter().filter(|(_, kind, ..)| *kind == Kind::Directory) {
            set_parent(volume, ino, parent)?;
            volume.add_links(left, -1)?;
            volume.add_links(parent, 1)?;
        }
    }
    set_name(volume.edit_fields(source.ino)?, to, new_name);
    set_name(volume.edit_fields(target.ino)?, from, old_name);
    for ((dir, name), ino) in [((from, old_name), source.ino), ((to, new_name), target.ino)] {
        let chain = &mut volume.chain;
        chain.lost(dir, name);
        chain.bar(ino);
        volume.touch_inode(ino)?;
    }
    volume.touch_contents(from)?;
    volume.touch_contents(to)
}

/// Changes the parent of a directory.
fn set_parent(volume: &mut WriteVolume, dir: Nid, parent: Nid) -> Result<()> {
    let node = volume.inode(dir)?;
    let found = dir::find(volume, &node, b"..")?.ok_or_else(|| {
        let (expected, found) = (Detail::Text("a name for the directory above"), Detail::Text("none"));
        Corrupt::new("dentry", expected, found).at(f2fs_disk::At::Inode(dir))
    })?;
    set_target(volume, dir, &found, parent, Kind::Directory)
}

/// True if a directory is another one, or below it.
pub(crate) fn is_below(volume: &ReadVolume, dir: Nid, above: Nid) -> Result<bool> {
    let mut at = dir;
    // No valid path is longer; a hostile image may contain a loop.
    for _ in 0..volume.geometry().nid_count {
        if at == above {
            return Ok(true);
        }
        if at == volume.root() {
            return Ok(false);
        }
        let next = dir::lookup(volume, &volume.inode(at)?, b"..")?;
        if next == at {
            return Ok(false);
        }
        at = next;
    }
    Ok(false)
}

/// Sets the name and directory recorded in an inode, under which it was made or moved last.
pub(super) fn set_name(fields: &mut DiskInode, dir: Nid, name: &[u8]) {
    fields.i_pino = dir.0.into();
    fields.i_namelen = u32_len(name.len()).into();
    fields.i_name = [0; inode::NAME_BYTES_MAX];
    fields.i_name.iter_mut().zip(name).for_each(|(to, byte)| *to = *byte);
}
