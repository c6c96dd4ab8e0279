//! Inodes that come and go.

#![expect(clippy::arithmetic_side_effects, reason = "counts of inodes, bounded by the superblock")]

use f2fs_disk::BLOCK_SIZE;
use f2fs_disk::Nid;
use f2fs_disk::convert::{to_u64, u32_len};
use f2fs_disk::dentry::{New, SlotsMut};
use f2fs_disk::flags::{Advise, Features, InlineFlags, InodeFlags};
use f2fs_disk::inode::{self, DiskInode, Inode, Kind};
use f2fs_disk::node::XATTR_OFFSET;
use vfs::file_system::Time;

use super::Urgency;
use crate::error::{CallerError, Result};
use crate::store::Store;

/// Blocks and nodes that a new inode and its name may take.
const CREATE_BLOCKS: u64 = 16;
/// Longest target of a symbolic link.
const TARGET_BYTES_MAX: usize = BLOCK_SIZE - 1;
/// Flags that a new inode gets from its directory.
const INHERITED: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMP)
    .union(InodeFlags::PROJINHERIT);

/// An inode to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewInode<'a> {
    pub(crate) kind: Kind,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) target: &'a [u8],
    /// Attributes by the names that Linux has for them.
    pub(crate) xattrs: Vec<(&'a [u8], Vec<u8>)>,
}

impl Store {
    /// The time by the clock.
    pub(crate) fn now(&self) -> Time {
        self.writer.as_ref().map_or_else(Time::default, |writer| {
            let (sec, nsec) = writer.env.now();
            Time { sec, nsec }
        })
    }

    /// Makes an inode in a directory, under a name, or without one and with no links.
    pub(crate) fn create(&mut self, dir: Nid, name: Option<&[u8]>, new: &NewInode<'_>) -> Result<Nid> {
        if new.kind == Kind::Symlink {
            match new.target.len() {
                0 => return Err(CallerError::NotFound.into()),
                1..=TARGET_BYTES_MAX => {}
                _ => return Err(CallerError::NameTooLong.into()),
            }
        }
        self.make_room(CREATE_BLOCKS, CREATE_BLOCKS, Urgency::Normal)?;
        let parent = self.inode(dir)?;
        self.check_is_writable(&parent)?;
        let ino = self.new_nid()?;
        let links = match (new.kind, name) {
            (_, None) => 0,
            (Kind::Directory, _) => 2,
            _ => 1,
        };
        let mut block = self.inode_block(ino, &parent.inode, new);
        let fields = inode::fields_mut(&mut block);
        fields.i_links = links.into();
        set_name(fields, dir, name.unwrap_or_default());
        if let Some(name) = name.filter(|_| new.kind == Kind::File) {
            fields.i_advise |= self.temperature(name).bits();
        }
        self.add_node(ino, ino, block)?;
        let writer = self.writer_mut()?;
        writer.valid_inodes += 1;
        writer.chain.made(ino);
        let filled = self.fill(ino, dir, new).and_then(|()| match name {
            Some(name) => self.add_name(dir, name, ino, new.kind),
            None => Ok(()),
        });
        if let Err(error) = filled {
            // Nobody has seen it.
            self.free_inode(ino)?;
            return Err(error);
        }
        match name {
            Some(_) if new.kind == Kind::Directory => self.add_links(dir, 1)?,
            Some(_) => {}
            None => {
                let writer = self.writer_mut()?;
                writer.orphans.insert(ino);
                writer.unnamed.insert(ino);
            }
        }
        Ok(ino)
    }

    fn inode_block(&mut self, ino: Nid, parent: &Inode, new: &NewInode<'_>) -> f2fs_disk::Block {
        let features = self.features();
        let now = self.now();
        let mode = new.kind.mode_bits() | u16::try_from(new.permissions & 0o7777).unwrap_or(0);
        let mut block = inode::new_block(ino, mode, features);
        let inline = self.writer.as_ref().map(|writer| writer.policy.inline).unwrap_or_default();
        let generation = self.next_generation();
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
            // Without inline names they leave it when they are made.
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

    fn next_generation(&mut self) -> u32 {
        let Some(writer) = self.writer.as_deref_mut() else { return 0 };
        writer.generation = writer.generation.wrapping_add(1);
        writer.generation
    }

    /// What makes the kind of an inode: names of itself and above, a target, a device number; and its attributes.
    fn fill(&mut self, ino: Nid, dir: Nid, new: &NewInode<'_>) -> Result<()> {
        let layout = self.inode(ino)?.inode;
        let block = self.edit_inode(ino)?;
        match new.kind {
            Kind::Directory => {
                let area = layout.inline_area_mut(block);
                let size = area.len();
                let mut slots = SlotsMut::inline(area);
                for (slot, (name, target)) in [(&b"."[..], ino), (b"..", dir)].into_iter().enumerate() {
                    slots.put(slot, &New { name, hash: 0, ino: target, kind: Kind::Directory });
                }
                inode::fields_mut(block).i_size = to_u64(size).into();
                if !self.writer()?.policy.inline.dentry {
                    self.leave_inline_names(ino)?;
                }
            }
            Kind::Symlink => {
                inode::fields_mut(block).i_size = 0.into();
                self.write_data(ino, 0, new.target)?;
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
            self.put_xattr(ino, name, Some(value))?;
        }
        Ok(())
    }

    /// Whether the end of a name says that the file will change rarely, or often.
    fn temperature(&self, name: &[u8]) -> Advise {
        let fields = self.superblock().fields();
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

    /// The contents changed now, those of a directory too.
    pub(crate) fn touch_contents(&mut self, ino: Nid) -> Result<()> {
        let now = self.now();
        self.edit_fields(ino)?.set_mtime(now.sec, now.nsec);
        self.touch_inode(ino)
    }

    /// The inode itself changed now.
    pub(crate) fn touch_inode(&mut self, ino: Nid) -> Result<()> {
        let now = self.now();
        self.edit_fields(ino)?.set_ctime(now.sec, now.nsec);
        Ok(())
    }

    /// Adds to the count of an inode's names.
    pub(super) fn add_links(&mut self, ino: Nid, more: i32) -> Result<()> {
        let fields = self.edit_fields(ino)?;
        fields.i_links = fields.i_links.get().saturating_add_signed(more).into();
        Ok(())
    }

    /// Removes an inode with all that it has. It has no name any more.
    pub(crate) fn free_inode(&mut self, ino: Nid) -> Result<()> {
        self.make_room(0, 8, Urgency::Removal)?;
        let node = self.inode(ino)?;
        if matches!(node.inode.kind(), Kind::File | Kind::Directory | Kind::Symlink) {
            self.free_from(ino, 0)?;
        }
        if let Some(nid) = self.inode(ino)?.inode.xattr_nid() {
            self.node(nid, ino, XATTR_OFFSET)?;
            self.remove_node(nid)?;
        }
        self.remove_node(ino)?;
        let writer = self.writer_mut()?;
        writer.valid_inodes = writer.valid_inodes.saturating_sub(1);
        writer.orphans.remove(&ino);
        writer.unnamed.remove(&ino);
        Ok(())
    }
}

/// True for a name with an extension that begins as one of the volume's lists does ("mp" stands for mp3 and mp4), also
/// in front of a further one; what a hidden file is called is none.
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

/// The name under which, and the directory where, an inode was made or moved to last.
pub(super) fn set_name(fields: &mut DiskInode, dir: Nid, name: &[u8]) {
    fields.i_pino = dir.0.into();
    fields.i_namelen = u32_len(name.len()).into();
    fields.i_name = [0; inode::NAME_BYTES_MAX];
    fields.i_name.iter_mut().zip(name).for_each(|(to, byte)| *to = *byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_known_by_how_they_begin() {
        // As `is_extension_exist` of the kernel says.
        for name in ["a.mp4", "a.MP", "film.mp4.part", "b.c.mpeg", ".x.mp3"] {
            assert!(has_extension(name.as_bytes(), b"mp"), "{name}");
        }
        for name in [".mp4", "mp4", "a.xmp", "amp", "a.m", "a.", ""] {
            assert!(!has_extension(name.as_bytes(), b"mp"), "{name}");
        }
        assert!(has_extension(b"anything", b"*") && !has_extension(b"a.b", b""));
    }
}
