//! Control operations (`ioctl`) of the format's own: the part of the kernel's interface that a
//! server can offer.
//!
//! A descriptor in an argument belongs to the caller's process and means nothing here. Where the
//! kernel wants one for the source of a snapshot, [`FLAG_BY_ID`] says that its number stands in the
//! field for the transaction, which the kernel leaves unused.
//!
//! The kernel that calls has not looked at permission bits for these: [`may_change`] does, by owner
//! and group alone, since nobody tells a server what other groups the caller is in.

use std::sync::Arc;

use btrfs_disk::convert::to_usize;
use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::{RootItem, Timespec};
use btrfs_disk::{Generation, TreeId};
use vfs::NodeId;
use vfs::file_system::{Caller, Control, Errno, Result};

use super::BtrfsFs;
use super::names::WhatIsInIt;
use crate::error::CallerError;
use crate::inode::{Inode, MODE_SET_GROUP, ROOT_DIR_INO};
use crate::subvol::{self, NewSubvolume, SnapshotMode};

/// Magic number of all commands.
const MAGIC: u32 = 0x94;
/// Bytes of the arguments that name something.
const ARGS_BYTES: u32 = 4096;
/// Where the name is in the first version of those.
const NAME_OFFSET: usize = 8;
/// Where the name, or a number, is in the second version.
const NAME_V2_OFFSET: usize = 56;
/// Flags of the second version.
const FLAG_READ_ONLY: u64 = 1 << 1;
const FLAG_BY_ID: u64 = 1 << 4;
/// Permission bits of a new subvolume's root directory, before the mask that nobody tells.
const SUBVOLUME_PERMISSIONS: u32 = 0o755;

const READ: u32 = 2;
const WRITE: u32 = 1;

/// A command's number as Linux builds it.
const fn command(direction: u32, number: u32, bytes: u32) -> u32 {
    (direction << 30) | (bytes << 16) | (MAGIC << 8) | number
}

const SNAP_CREATE: u32 = command(WRITE, 1, ARGS_BYTES);
const SYNC: u32 = command(0, 8, 0);
const SUBVOL_CREATE: u32 = command(WRITE, 14, ARGS_BYTES);
const SNAP_DESTROY: u32 = command(WRITE, 15, ARGS_BYTES);
const INO_LOOKUP: u32 = command(READ | WRITE, 18, ARGS_BYTES);
const DEFAULT_SUBVOL: u32 = command(WRITE, 19, 8);
const WAIT_SYNC: u32 = command(WRITE, 22, 8);
const SNAP_CREATE_V2: u32 = command(WRITE, 23, ARGS_BYTES);
const START_SYNC: u32 = command(READ, 24, 8);
const SUBVOL_CREATE_V2: u32 = command(WRITE, 24, ARGS_BYTES);
const SUBVOL_GETFLAGS: u32 = command(READ, 25, 8);
const SUBVOL_SETFLAGS: u32 = command(WRITE, 26, 8);
const FS_INFO: u32 = command(READ, 31, FS_INFO_BYTES);
const GET_FSLABEL: u32 = command(READ, 49, LABEL_BYTES);
const GET_SUBVOL_INFO: u32 = command(READ, 60, SUBVOL_INFO_BYTES);
const SNAP_DESTROY_V2: u32 = command(WRITE, 63, ARGS_BYTES);

const FS_INFO_BYTES: u32 = 1024;
const LABEL_BYTES: u32 = 256;
const SUBVOL_INFO_BYTES: u32 = 504;
/// Bytes of a subvolume's name in its description.
const SUBVOL_NAME_BYTES: usize = 256;
/// What of the description of a volume is filled in: checksum type, generation, metadata UUID.
const FS_INFO_FLAGS: u64 = 0b111;

impl BtrfsFs {
    pub(super) fn control_node(&self, control: &Control<'_>) -> Result<Vec<u8>> {
        let inode = self.answer(self.inode(control.node))?;
        let (caller, args) = (&control.caller, Args(control.input));
        let answer = match control.command {
            SUBVOL_CREATE => self.create_subvolume(caller, &inode, args.name(NAME_OFFSET)?),
            SUBVOL_CREATE_V2 => {
                args.check_flags(0)?;
                self.create_subvolume(caller, &inode, args.name(NAME_V2_OFFSET)?)
            }
            SNAP_CREATE => Err(Errno::EOPNOTSUPP),
            SNAP_CREATE_V2 => self.create_snapshot(caller, &inode, &args),
            SNAP_DESTROY => self.destroy(caller, &inode, args.name(NAME_OFFSET)?),
            SNAP_DESTROY_V2 => self.destroy_v2(caller, &inode, &args),
            SUBVOL_GETFLAGS => self.subvolume_flags(&inode),
            SUBVOL_SETFLAGS => self.set_subvolume_flags(caller, &inode, args.number(0)?),
            GET_SUBVOL_INFO => self.answer(self.subvolume_info(inode.tree_id())),
            DEFAULT_SUBVOL => self.set_default(caller, &inode, args.number(0)?),
            INO_LOOKUP => self.find_tree(&inode, &args),
            SYNC | WAIT_SYNC => self.answer(self.volume.sync()).map(|()| Vec::new()),
            START_SYNC => self.start_sync(),
            FS_INFO => Ok(self.volume_info()),
            GET_FSLABEL => Ok(self.label()),
            _ => Err(Errno::ENOTTY),
        }?;
        match answer.len() <= control.output_bytes_max {
            true => Ok(answer),
            false => Err(Errno::EOVERFLOW),
        }
    }

    /// The name that a command makes or removes, with its directory.
    pub(super) fn control_changes(&self, control: &Control<'_>) -> Option<(NodeId, Vec<u8>)> {
        let args = Args(control.input);
        let name = match control.command {
            SUBVOL_CREATE | SNAP_DESTROY => args.name(NAME_OFFSET),
            SNAP_DESTROY_V2 if args.check_flags(FLAG_BY_ID) == Ok(FLAG_BY_ID) => {
                let id = TreeId(args.number(NAME_V2_OFFSET).ok()?);
                let link = self.namespace().root_parent(id).ok()??;
                let parent = self.nodes.number(link.parent, link.dir)?;
                return Some((NodeId(parent), link.name.into_vec()));
            }
            SUBVOL_CREATE_V2 | SNAP_CREATE_V2 | SNAP_DESTROY_V2 => args.name(NAME_V2_OFFSET),
            _ => return None,
        };
        Some((control.node, name.ok()?.to_vec()))
    }

    fn create_subvolume(&self, caller: &Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        check_new_name(name)?;
        may_change(caller, dir)?;
        let gid = {
            let state = dir.state();
            let inherits = state.mode & MODE_SET_GROUP != 0;
            if inherits { state.gid } else { caller.gid }
        };
        let new = NewSubvolume {
            permissions: SUBVOLUME_PERMISSIONS,
            uid: caller.uid,
            gid,
        };
        let made = subvol::create(self.namespace(), dir, name, new);
        self.answer(made.and_then(|_| self.sync_marked(dir)))?;
        Ok(Vec::new())
    }

    /// A snapshot of the subvolume with the given number. The kernel wants a descriptor of it.
    fn create_snapshot(&self, caller: &Caller, dir: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        const TRANSID_OFFSET: usize = 8;
        let flags = args.check_flags(FLAG_READ_ONLY | FLAG_BY_ID)?;
        if flags & FLAG_BY_ID == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        may_change(caller, dir)?;
        let source = TreeId(args.number(TRANSID_OFFSET)?);
        let root = self.answer(self.core().root_dir(source))?;
        check_owns(caller, &root)?;
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

    fn destroy(&self, caller: &Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<Vec<u8>> {
        check_is_root(caller)?;
        self.answer(self.remove_subvolume(dir, name, WhatIsInIt::Anything))?;
        Ok(Vec::new())
    }

    fn destroy_v2(&self, caller: &Caller, dir: &Arc<Inode>, args: &Args<'_>) -> Result<Vec<u8>> {
        if args.check_flags(FLAG_BY_ID)? & FLAG_BY_ID == 0 {
            return self.destroy(caller, dir, args.name(NAME_V2_OFFSET)?);
        }
        check_is_root(caller)?;
        let id = TreeId(args.number(NAME_V2_OFFSET)?);
        let link = self.answer(self.namespace().root_parent(id))?;
        let link = link.ok_or(Errno::ENOENT)?;
        let parent = self.answer(self.core().inode(link.parent, link.dir))?;
        self.destroy(caller, &parent, &link.name)
    }

    fn subvolume_flags(&self, inode: &Inode) -> Result<Vec<u8>> {
        check_is_subvolume(inode)?;
        let item = self.root_item(inode.tree_id())?;
        let is_read_only = item.root_flags().contains(RootFlags::SUBVOL_RDONLY);
        let flags = if is_read_only { FLAG_READ_ONLY } else { 0 };
        Ok(flags.to_le_bytes().to_vec())
    }

    fn set_subvolume_flags(&self, caller: &Caller, inode: &Inode, flags: u64) -> Result<Vec<u8>> {
        check_is_subvolume(inode)?;
        check_owns(caller, inode)?;
        if flags & !FLAG_READ_ONLY != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let is_read_only = flags & FLAG_READ_ONLY != 0;
        let set = subvol::set_read_only(self.namespace(), inode.tree_id(), is_read_only);
        self.answer(set.and_then(|()| self.commit()))?;
        Ok(Vec::new())
    }

    /// A snapshot and a read-only flag are durable when the command returns, as in the kernel.
    /// New and deleted subvolumes, and the choice of the default, wait for the next commit in both.
    fn commit(&self) -> crate::Result<()> {
        self.core().store.commit()?;
        Ok(())
    }

    fn set_default(&self, caller: &Caller, inode: &Inode, id: u64) -> Result<Vec<u8>> {
        check_is_root(caller)?;
        let id = if id == 0 { inode.tree_id() } else { TreeId(id) };
        self.answer(subvol::set_default_subvolume(self.namespace(), id))?;
        Ok(Vec::new())
    }

    /// Which subvolume an inode is in: what the command is used for. The path that it can tell
    /// too takes a privilege, and is not told.
    fn find_tree(&self, inode: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        let (tree, object) = (args.number(0)?, args.number(8)?);
        if object != ROOT_DIR_INO.0 {
            return Err(Errno::EPERM);
        }
        let tree = if tree == 0 {
            inode.tree_id()
        } else {
            TreeId(tree)
        };
        self.answer(self.core().root(tree))?;
        let mut out = Output::new(ARGS_BYTES);
        out.number(tree.0).number(object);
        Ok(out.done())
    }

    fn start_sync(&self) -> Result<Vec<u8>> {
        let Generation(running) = self.core().store.generation();
        self.answer(self.volume.sync())?;
        Ok(running.to_le_bytes().to_vec())
    }

    fn root_item(&self, id: TreeId) -> Result<RootItem> {
        self.answer(self.core().store.root_item(id).map_err(Into::into))
    }

    fn subvolume_info(&self, id: TreeId) -> crate::Result<Vec<u8>> {
        let item = self.core().store.root_item(id)?;
        let link = self.namespace().root_parent(id)?;
        let (name, parent, dir) = link.map_or((Box::default(), 0, 0), |link| {
            (link.name, link.parent.0, link.dir.0)
        });
        let mut out = Output::new(SUBVOL_INFO_BYTES);
        out.number(id.0).padded(&name, SUBVOL_NAME_BYTES);
        out.number(parent).number(dir);
        out.number(item.generation.get()).number(item.flags.get());
        for uuid in [item.uuid, item.parent_uuid, item.received_uuid] {
            out.padded(&uuid.0, uuid.0.len());
        }
        for transid in [item.ctransid, item.otransid, item.stransid, item.rtransid] {
            out.number(transid.get());
        }
        for time in [item.ctime, item.otime, item.stime, item.rtime] {
            out.time(time);
        }
        Ok(out.done())
    }

    fn volume_info(&self) -> Vec<u8> {
        let store = &self.core().store;
        let superblock = store.superblock();
        let fields = superblock.fields();
        let mut out = Output::new(FS_INFO_BYTES);
        out.number(fields.dev_item.devid.get());
        out.number(fields.num_devices.get());
        out.padded(&fields.fsid.0, fields.fsid.0.len());
        for size in [fields.nodesize, fields.sectorsize, fields.sectorsize] {
            out.bytes(&size.get().to_le_bytes());
        }
        let csum_bytes = u16::try_from(store.sizes().csum).unwrap_or(0);
        out.bytes(&fields.csum_type.get().to_le_bytes());
        out.bytes(&csum_bytes.to_le_bytes());
        out.number(FS_INFO_FLAGS).number(fields.generation.get());
        out.padded(&fields.metadata_uuid.0, fields.metadata_uuid.0.len());
        out.done()
    }

    fn label(&self) -> Vec<u8> {
        let mut out = Output::new(LABEL_BYTES);
        out.bytes(self.core().store.superblock().fields().label_bytes());
        out.done()
    }
}

/// What the caller gave.
struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// The name at an offset, up to the first zero.
    fn name(&self, offset: usize) -> Result<&'a [u8]> {
        let bytes = self.0.get(offset..).ok_or(Errno::EINVAL)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.get(..end.unwrap_or(bytes.len())).ok_or(Errno::EINVAL)
    }

    fn number(&self, offset: usize) -> Result<u64> {
        let bytes = self.0.get(offset..).and_then(|bytes| bytes.first_chunk());
        Ok(u64::from_le_bytes(*bytes.ok_or(Errno::EINVAL)?))
    }

    /// The flags of the second version; none but `known` may be set.
    fn check_flags(&self, known: u64) -> Result<u64> {
        const FLAGS_OFFSET: usize = 16;
        let flags = self.number(FLAGS_OFFSET)?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// An answer of fixed size; what is not filled in is zeros.
struct Output {
    bytes: Vec<u8>,
    size: usize,
}

impl Output {
    fn new(size: u32) -> Self {
        let size = to_usize(u64::from(size));
        Self {
            bytes: Vec::with_capacity(size),
            size,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    fn padded(&mut self, bytes: &[u8], len: usize) -> &mut Self {
        let end = self.bytes.len() + len;
        self.bytes
            .extend_from_slice(bytes.get(..len).unwrap_or(bytes));
        self.bytes.resize(end, 0);
        self
    }

    fn time(&mut self, time: Timespec) -> &mut Self {
        self.bytes(&time.sec.get().to_le_bytes());
        self.number(u64::from(time.nsec.get()))
    }

    fn done(mut self) -> Vec<u8> {
        self.bytes.resize(self.size, 0);
        self.bytes
    }
}

/// Refuses, with the kernel's errors, what is no name.
fn check_new_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::EACCES),
        b"." | b".." => Err(Errno::EEXIST),
        _ => Ok(()),
    }
}

fn check_is_root(caller: &Caller) -> Result<()> {
    match caller.uid {
        0 => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

fn check_owns(caller: &Caller, inode: &Inode) -> Result<()> {
    match caller.uid {
        0 => Ok(()),
        uid if uid == inode.state().uid => Ok(()),
        _ => Err(Errno::EPERM),
    }
}

fn check_is_subvolume(inode: &Inode) -> Result<()> {
    match inode.is_subvolume_root() {
        true => Ok(()),
        false => Err(CallerError::InvalidArgument.into()),
    }
}

/// Refuses a caller who may not add names to a directory.
fn may_change(caller: &Caller, dir: &Inode) -> Result<()> {
    const WRITE_AND_SEARCH: u32 = 0o3;
    let state = dir.state();
    let shift = match caller {
        _ if caller.uid == 0 => return Ok(()),
        _ if caller.uid == state.uid => 6,
        _ if caller.gid == state.gid => 3,
        _ => 0,
    };
    match (state.mode >> shift) & WRITE_AND_SEARCH {
        WRITE_AND_SEARCH => Ok(()),
        _ => Err(Errno::EACCES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        assert_eq!(SUBVOL_CREATE, 0x5000_940e);
        assert_eq!(SNAP_CREATE_V2, 0x5000_9417);
        assert_eq!(INO_LOOKUP, 0xd000_9412);
        assert_eq!(START_SYNC, 0x8008_9418);
        assert_eq!(SYNC, 0x9408);
        assert_eq!(FS_INFO, 0x8400_941f);
        assert_eq!(GET_SUBVOL_INFO, 0x81f8_943c);
        assert_eq!(SNAP_DESTROY_V2, 0x5000_943f);
    }
}
