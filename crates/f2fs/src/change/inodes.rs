//! Makes and removes inodes. Called by `vfs_impl/names`, and for orphans by `open` and `replay`.

#![expect(clippy::arithmetic_side_effects, reason = "counts of inodes, bounded by the superblock")]

use f2fs_disk::BLOCK_SIZE;
use f2fs_disk::Nid;
use f2fs_disk::convert::to_u64;
use f2fs_disk::dentry::{New, SlotsMut};
use f2fs_disk::flags::{Advise, Features, InlineFlags, InodeFlags};
use f2fs_disk::inode::{self, Inode, Kind};
use f2fs_disk::node::XATTR_OFFSET;

use super::names::{self, set_name};
use super::preparation::Prepared;
use super::room::{self, Urgency};
use super::{data, size_and_holes, xattrs};
use crate::error::{CallerError, Result};
use crate::read_volume::ReadVolume;
use crate::write_volume::WriteVolume;

/// Blocks and nodes that a new inode and its name may take.
const CREATE_BLOCKS: u64 = 16;
/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = BLOCK_SIZE - 1;
/// Flags that a new inode inherits from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMP)
    .union(InodeFlags::PROJINHERIT);

/// A new inode.
#[derive(Debug, Clone)]
pub(crate) struct NewInode<'a> {
    pub(crate) kind: Kind,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) target: &'a [u8],
    /// Attributes by their names in Linux.
    pub(crate) xattrs: Vec<(&'a [u8], Vec<u8>)>,
}

/// Makes an inode in a directory, with a name, or as an orphan without one.
pub(crate) fn create(volume: &mut WriteVolume, dir: Nid, name: Option<&[u8]>, new: &NewInode<'_>) -> Result<Nid> {
    if new.kind == Kind::Symlink {
        match new.target.len() {
            0 => return Err(CallerError::NotFound.into()),
            1..=TARGET_BYTES_MAX => {}
            _ => return Err(CallerError::NameTooLong.into()),
        }
    }
    room::make(volume, CREATE_BLOCKS, CREATE_BLOCKS, Urgency::Normal)?;
    let parent = volume.inode(dir)?;
    volume.check_is_writable(&parent)?;
    let ino = volume.new_nid()?;
    let links = match (new.kind, name) {
        (_, None) => 0,
        (Kind::Directory, _) => 2,
        _ => 1,
    };
    let mut block = inode_block(volume, ino, &parent.inode, new);
    let fields = inode::fields_mut(&mut block);
    fields.i_links = links.into();
    set_name(fields, dir, name.unwrap_or_default());
    if let Some(name) = name.filter(|_| new.kind == Kind::File) {
        fields.i_advise |= temperature(volume, name).bits();
    }
    volume.add_node(ino, ino, block)?;
    volume.counters.add_inodes(1);
    volume.chain.made(ino);
    let filled = fill(volume, ino, dir, new).and_then(|()| match name {
        Some(name) => names::add(volume, dir, name, ino, new.kind),
        None => Ok(()),
    });
    if let Err(error) = filled {
        // No other thread has seen it.
        free(volume, ino)?;
        return Err(error);
    }
    match name {
        Some(_) if new.kind == Kind::Directory => volume.add_links(dir, 1)?,
        Some(_) => {}
        None => {
            volume.orphans.all.insert(ino);
            volume.orphans.unnamed.insert(ino);
        }
    }
    Ok(ino)
}

fn inode_block(volume: &mut WriteVolume, ino: Nid, parent: &Inode, new: &NewInode<'_>) -> f2fs_disk::Block {
    let features = volume.features();
    let now = volume.clock.now();
    let mode = new.kind.mode_bits() | u16::try_from(new.permissions & 0o7777).unwrap_or(0);
    let mut block = inode::new_block(ino, mode, features);
    let inline = volume.policy.inline;
    let generation = volume.clock.next_generation();
    let fields = inode::fields_mut(&mut block);
    (fields.i_uid, fields.i_gid) = (new.uid.into(), new.gid.into());
    fields.i_blocks = 1.into();
    fields.set_atime(now.sec, now.nsec);
    fields.set_mtime(now.sec, now.nsec);
    fields.set_ctime(now.sec, now.nsec);
    fields.i_generation = generation.into();
    fields.i_inline |= if inline.xattr { InlineFlags::XATTR.bits() } else { 0 };
    fields.i_inline |= match new.kind {
        Kind::File | Kind::Symlink if inline.data => InlineFlags::DATA.bits(),
        // Without inline names they are moved to a block when they are made.
        Kind::Directory => InlineFlags::DENTRY.bits(),
        _ => 0,
    };
    let mut inherited = parent.flags().intersection(INHERITED);
    match new.kind {
        Kind::Directory => {
            fields.i_current_depth = 1.into();
            inherited |= parent.flags().intersection(InodeFlags::DIRSYNC.union(InodeFlags::CASEFOLD));
        }
        Kind::File => inherited.remove(InodeFlags::PROJINHERIT),
        _ => inherited = InodeFlags::empty(),
    }
    fields.i_flags = inherited.bits().into();
    if let Some(extra) = inode::extra_mut(&mut block) {
        if !inline.xattr {
            extra.i_inline_xattr_size = 0.into();
        }
        if features.contains(Features::INODE_CRTIME) {
            extra.i_crtime = now.sec.cast_unsigned().into();
            extra.i_crtime_nsec = now.nsec.into();
        }
        if parent.flags().contains(InodeFlags::PROJINHERIT) {
            extra.i_projid = parent.project(features).unwrap_or(0).into();
        }
    }
    block
}

/// Sets the contents by kind: names of itself and its parent, a target, a device number; and attributes.
fn fill(volume: &mut WriteVolume, ino: Nid, dir: Nid, new: &NewInode<'_>) -> Result<()> {
    let layout = volume.inode(ino)?.inode;
    let block = volume.edit_inode(ino)?;
    match new.kind {
        Kind::Directory => {
            let area = layout.inline_area_mut(block);
            let size = area.len();
            let mut slots = SlotsMut::inline(area);
            for (slot, (name, target)) in [(&b"."[..], ino), (b"..", dir)].into_iter().enumerate() {
                slots.put(slot, &New { name, hash: 0, ino: target, kind: Kind::Directory });
            }
            inode::fields_mut(block).i_size = to_u64(size).into();
            if !volume.policy.inline.dentry {
                names::leave_inline(volume, ino)?;
            }
        }
        Kind::Symlink => {
            inode::fields_mut(block).i_size = 0.into();
            data::write(volume, ino, 0, new.target, &mut Prepared::default())?;
        }
        Kind::CharDevice | Kind::BlockDevice => {
            let is_small = new.rdev <= 0xffff;
            if let [old, other, ..] = layout.addresses_mut(block) {
                (*old, *other) = if is_small { (new.rdev.into(), 0.into()) } else { (0.into(), new.rdev.into()) };
            }
        }
        _ => {}
    }
    for (name, value) in &new.xattrs {
        xattrs::put(volume, ino, name, Some(value))?;
    }
    Ok(())
}

/// Whether a file will change rarely or often, by the extension of its name.
fn temperature(volume: &ReadVolume, name: &[u8]) -> Advise {
    let fields = volume.superblock().fields();
    let cold = usize::try_from(fields.extension_count.get()).unwrap_or(0);
    let hot = usize::from(fields.hot_ext_count);
    let is = |entry: &[u8; 8]| {
        let len = entry.iter().position(|byte| *byte == 0).unwrap_or(entry.len());
        has_extension(name, entry.get(..len).unwrap_or_default())
    };
    if fields.extension_list.iter().take(cold).any(is) {
        return Advise::COLD;
    }
    match fields.extension_list.iter().skip(cold).take(hot).any(is) {
        true => Advise::HOT,
        false => Advise::empty(),
    }
}

/// Removes an inode without names, with all its blocks.
pub(crate) fn free(volume: &mut WriteVolume, ino: Nid) -> Result<()> {
    room::make(volume, 0, 8, Urgency::Removal)?;
    let node = volume.inode(ino)?;
    if matches!(node.inode.kind(), Kind::File | Kind::Directory | Kind::Symlink) {
        size_and_holes::free_from(volume, ino, 0)?;
    }
    if let Some(nid) = volume.inode(ino)?.inode.xattr_nid() {
        volume.node(nid, ino, XATTR_OFFSET)?;
        volume.remove_node(nid)?;
    }
    volume.remove_node(ino)?;
    volume.counters.add_inodes(-1);
    volume.orphans.remove(ino);
    Ok(())
}

/// True for a name with an extension that begins as one of the volume's lists does ("mp" stands for mp3 and mp4), even
/// in front of a further one; the name of a hidden file is no extension.
fn has_extension(name: &[u8], extension: &[u8]) -> bool {
    if extension.is_empty() {
        return false;
    }
    if extension == b"*" {
        return true;
    }
    name.windows(extension.len() + 1).skip(1).any(|part| match part {
        [b'.', begin @ ..] => begin.eq_ignore_ascii_case(extension),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_known_by_how_they_begin() {
        // By `is_extension_exist` of the kernel.
        for name in ["a.mp4", "a.MP", "film.mp4.part", "b.c.mpeg", ".x.mp3"] {
            assert!(has_extension(name.as_bytes(), b"mp"), "{name}");
        }
        for name in [".mp4", "mp4", "a.xmp", "amp", "a.m", "a.", ""] {
            assert!(!has_extension(name.as_bytes(), b"mp"), "{name}");
        }
        assert!(has_extension(b"anything", b"*") && !has_extension(b"a.b", b""));
    }
}
