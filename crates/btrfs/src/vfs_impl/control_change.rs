//! Carries out control operations that change something: making, deleting and freezing subvolumes; defragmentation.
//! Called by `control`.
//!
//! The kernel's btrfs decides by the caller's capabilities and groups, by mount flags and by its own permissions
//! whether these are allowed; FUSE reports only the caller's user and group. So every caller counts as unprivileged,
//! root too, and as a possible member of any group: an operation allowed here is also allowed by btrfs with the option
//! `user_subvol_rm_allowed`, to every user who can reach the directory through a writable mount. Through a
//! mount that is read-only (`mount --bind -o ro`, `mount -o remount,ro`) btrfs allows nothing, which
//! cannot be seen here; nor can it be seen whether the caller could reach the source of a snapshot.
//! That is why a mount does these only if it is asked to ([`super::FsOptions::user_subvol_ioctls`]).

use std::sync::Arc;

use btrfs_disk::items::Timespec;
use btrfs_disk::{Generation, TreeId};
use codec::CompressionType;

use vfs::NodeId;
use vfs::file_system::{Caller, EXTENT_BYTES_DEFAULT, Errno, Result};

use super::BtrfsFs;
use super::control::{Args, FLAG_BY_ID, FLAG_READ_ONLY, NAME_V2_OFFSET, Output, RECEIVED_BYTES, check_is_subvolume};
use super::names::Removable;
use crate::file::Layout;
use crate::inode::{Compression, Inode, InodeFlags};
use crate::subvol::{self, Received, SnapshotMode};

/// Only owners remove names from such a directory.
const MODE_STICKY: u32 = 0o1_000;

pub(super) const READ: u16 = 4;
const WRITE: u16 = 2;
pub(super) const SEARCH: u16 = 1;

impl BtrfsFs {
    pub(super) fn create_subvolume(&self, caller: &Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        check_new_name(name)?;
        self.check_may(caller, dir, WRITE | SEARCH)?;
        self.answer(self.add_subvolume(caller, dir, name))?;
        Ok(Vec::new())
    }

    /// Makes a snapshot of the subvolume with the given number. The kernel wants a descriptor of it.
    pub(super) fn create_snapshot(&self, caller: &Caller, dir: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        const TRANSID_OFFSET: usize = 8;
        let flags = args.check_flags(FLAG_READ_ONLY | FLAG_BY_ID)?;
        if flags & FLAG_BY_ID == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let source = TreeId(args.number(TRANSID_OFFSET)?);
        let root = self.answer(self.core().root_dir(source))?;
        check_owns(caller, &root)?;
        self.check_may(caller, dir, WRITE | SEARCH)?;
        self.check_may(caller, &root, READ)?;
        let mode = match flags & FLAG_READ_ONLY {
            0 => SnapshotMode::ReadWrite,
            _ => SnapshotMode::ReadOnly,
        };
        let name = args.name(NAME_V2_OFFSET)?;
        check_new_name(name)?;
        let made = subvol::snapshot(self.namespace(), source, dir, name, mode);
        self.answer(made.and_then(|_| self.commit()))?;
        Ok(Vec::new())
    }

    pub(super) fn destroy(&self, caller: &Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        // In the kernel's order of checks, for the same errors.
        self.check_may(caller, dir, SEARCH)?;
        let found = self.answer(self.find(dir, name))?;
        let root = self.answer(self.namespace().inode(found))?;
        check_is_subvolume(&root)?;
        self.answer(root.check_writable())?;
        self.check_may(caller, &root, WRITE | SEARCH)?;
        self.check_may(caller, dir, WRITE | SEARCH)?;
        let (dir_state, owner) = (dir.state(), root.state().uid);
        let is_sticky = dir_state.mode & MODE_STICKY != 0;
        if dir_state.flags.contains(InodeFlags::APPEND)
            || (is_sticky && caller.uid != owner && caller.uid != dir_state.uid)
        {
            return Err(Errno::EPERM);
        }
        drop(dir_state);
        self.answer(self.remove_subvolume(dir, name, Removable::Any))?;
        Ok(Vec::new())
    }

    pub(super) fn destroy_v2(&self, caller: &Caller, dir: &Arc<Inode>, args: &Args<'_>) -> Result<Vec<u8>> {
        if args.check_flags(FLAG_BY_ID)? & FLAG_BY_ID == 0 {
            return self.destroy(caller, dir, args.name(NAME_V2_OFFSET)?);
        }
        let id = TreeId(args.number(NAME_V2_OFFSET)?);
        let link = self.answer(self.namespace().root_links.of(id))?;
        let link = link.ok_or(Errno::ENOENT)?;
        let parent = self.answer(self.core().inode(link.parent, link.dir))?;
        self.destroy(caller, &parent, &link.name)
    }

    pub(super) fn set_subvolume_flags(&self, caller: &Caller, inode: &Inode, flags: u64) -> Result<Vec<u8>> {
        check_owns(caller, inode)?;
        check_is_subvolume(inode)?;
        if flags & !FLAG_READ_ONLY != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_read_only = flags & FLAG_READ_ONLY != 0;
        let set = subvol::set_read_only(self.namespace(), inode.tree_id(), is_read_only);
        self.answer(set.and_then(|()| self.commit()))?;
        Ok(Vec::new())
    }

    /// Defragments a file, with the parameters in `args` or as a whole. As in the kernel, write permission suffices.
    pub(super) fn defragment_by(&self, caller: &Caller, node: NodeId, args: Option<&Args<'_>>) -> Result<Vec<u8>> {
        let inode = self.answer(self.live_inode(node))?;
        self.check_may(caller, &inode, WRITE)?;
        let mut range = 0..u64::MAX;
        let mut layout = Layout { compression: None, extent_bytes: EXTENT_BYTES_DEFAULT };
        if let Some(args) = args {
            layout.compression = wanted_compression(args)?;
            let (start, len, extent_bytes) = (args.number(0)?, args.number(8)?, args.number_32(24)?);
            range = start..start.saturating_add(len);
            if extent_bytes > 0 {
                layout.extent_bytes = u64::from(extent_bytes);
            }
        }
        self.answer(self.lay_out(&inode, range, layout))?;
        Ok(Vec::new())
    }

    /// Chooses the subvolume that is mounted by default; 0 is the top level.
    pub(super) fn set_default(&self, number: u64) -> Result<Vec<u8>> {
        let id = if number == 0 { TreeId::FS } else { TreeId(number) };
        if !id.is_subvolume() {
            return Err(Errno::ENOENT);
        }
        self.answer(subvol::set_default_subvolume(self.namespace(), id))?;
        Ok(Vec::new())
    }

    /// Records what a subvolume was received from. It stays writable: the receiver freezes it with another command.
    pub(super) fn set_received(&self, caller: &Caller, inode: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        check_owns(caller, inode)?;
        check_is_subvolume(inode)?;
        let time = |at| Ok::<_, Errno>((args.number(at)?.cast_signed(), args.number_32(at + 8)?));
        let (uuid, sent, (sec, nsec)) = (args.field(0)?, args.number(16)?, time(32)?);
        let sent_at = Timespec { sec: sec.into(), nsec: nsec.into() };
        let received = Received { uuid, sent: Generation(sent) };
        let noted = subvol::note_received(self.namespace(), inode.tree_id(), &received, sent_at);
        let item = self.answer(noted)?;
        let mut out = Output::new(RECEIVED_BYTES);
        out.padded(&item.received_uuid.0, 16).number(sent).number(item.rtransid.get());
        out.time(item.stime).time(item.rtime);
        Ok(out.done())
    }

    /// A snapshot and a read-only flag are durable when the command returns, as in the kernel.
    /// New and deleted subvolumes wait for the next commit in both.
    fn commit(&self) -> crate::Result<()> {
        self.core().store.commit()?;
        Ok(())
    }

    /// Refuses a caller unless permission bits or the access control list certainly grant `wanted`.
    pub(super) fn check_may(&self, caller: &Caller, inode: &Inode, wanted: u16) -> Result<()> {
        check_known(caller)?;
        let list = {
            let _names = inode.read_names();
            self.answer(self.access_list(inode))?
        };
        let state = inode.state();
        let (mode, wanted_bits) = (state.mode, u32::from(wanted));
        let grants = |shift: u32| (mode >> shift) & wanted_bits == wanted_bits;
        let may = match list {
            _ if caller.uid == state.uid => grants(6),
            Some(list) => list.surely_grants(caller.uid, caller.gid, state.gid, wanted),
            None if caller.gid == state.gid => grants(3),
            // Whether or not the caller is in the group.
            None => grants(3) && grants(0),
        };
        if may { Ok(()) } else { Err(Errno::EACCES) }
    }
}

/// The compression that the arguments of a defragmentation name: a flag, a number, and with another flag a level.
fn wanted_compression(args: &Args<'_>) -> Result<Option<Compression>> {
    const COMPRESS: u64 = 1;
    const START_IO: u64 = 2;
    const LEVEL: u64 = 4;
    let flags = args.number(16)?;
    if flags & !(COMPRESS | START_IO | LEVEL) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & COMPRESS == 0 {
        return Ok(None);
    }
    let said = args.number_32(28)?;
    let [kind, level, ..] = said.to_le_bytes();
    let (kind, level) = if flags & LEVEL == 0 { (said, 0) } else { (u32::from(kind), level.cast_signed()) };
    let kind = match u8::try_from(kind) {
        Ok(0) => Some(CompressionType::Zlib),
        Ok(raw) => CompressionType::from_raw(raw),
        Err(_) => None,
    };
    let found = kind.and_then(|kind| Compression::new(kind, i32::from(level)));
    found.map(Some).ok_or(Errno::EINVAL)
}

/// Refuses invalid names, with the kernel's errors.
fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::EACCES),
        b"." | b".." => Err(Errno::EEXIST),
        _ => Ok(()),
    }
}

/// Refuses the overflow user: an image may have files of that number.
fn check_known(caller: &Caller) -> Result<()> {
    if caller.is_known() { Ok(()) } else { Err(Errno::EPERM) }
}

fn check_owns(caller: &Caller, inode: &Inode) -> Result<()> {
    check_known(caller)?;
    if caller.uid == inode.state().uid { Ok(()) } else { Err(Errno::EPERM) }
}
