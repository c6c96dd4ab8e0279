//! Serves control operations (`ioctl`) of the format's own: the part of the kernel's interface that a server can offer.
//! Called by `file_system`.
//!
//! A descriptor in an argument belongs to the caller's process and means nothing here. Where the
//! kernel wants one for the source of a snapshot, [`FLAG_BY_ID`] says that its number stands in the
//! field for the transaction, which the kernel leaves unused.
//!
//! The kernel has checked neither permissions for these, nor whether the mount is writable: commands that change
//! something are refused unless the mount was made for them ([`FsOptions::user_subvol_ioctls`]), and are in
//! `control_change`. Searches of trees are in `control_look`.
//!
//! The kernel copies as many bytes as a command's number has, and never memory that an argument points to. So some are
//! refused: `TREE_SEARCH_V2`, whose answer would stand behind the argument, does not exist (`ENOTTY`: programs use the
//! first version then); nor do `INO_PATHS`, `LOGICAL_INO` and the wait of `SUBVOL_SYNC_WAIT` (programs check themselves
//! whether a subvolume is gone). `SPACE_INFO` is not supported.
//!
//! [`FsOptions::user_subvol_ioctls`]: super::FsOptions::user_subvol_ioctls

use btrfs_disk::convert::to_usize;
use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::{RootItem, Timespec};
use btrfs_disk::{Generation, TreeId};
use vfs::NodeId;
use vfs::file_system::{Control, ControlAnswer, Errno, Result};

use super::BtrfsFs;
use crate::error::CallerError;
use crate::inode::Inode;

/// Magic number of all commands.
const MAGIC: u32 = 0x94;
/// Bytes of arguments with a name.
pub(super) const ARGS_BYTES: u32 = 4096;
/// Offset of the name in the first version of those.
const NAME_OFFSET: usize = 8;
/// Offset of the name, or a number, in the second version.
pub(super) const NAME_V2_OFFSET: usize = 56;
/// Flags of the second version.
pub(super) const FLAG_READ_ONLY: u64 = 1 << 1;
pub(super) const FLAG_BY_ID: u64 = 1 << 4;
/// Bytes of the description of a device, of the path in it, and of the unused part before that.
const DEV_INFO_BYTES: u32 = 4096;
const DEV_PATH_BYTES: usize = 1024;
const DEV_UNUSED_BYTES: usize = 377 * 8;

const READ: u32 = 2;
const WRITE: u32 = 1;

/// A command's number as Linux builds it.
const fn command(direction: u32, number: u32, bytes: u32) -> u32 {
    (direction << 30) | (bytes << 16) | (MAGIC << 8) | number
}

const SNAP_CREATE: u32 = command(WRITE, 1, ARGS_BYTES);
const DEFRAG: u32 = command(WRITE, 2, ARGS_BYTES);
const SYNC: u32 = command(0, 8, 0);
const SUBVOL_CREATE: u32 = command(WRITE, 14, ARGS_BYTES);
const SNAP_DESTROY: u32 = command(WRITE, 15, ARGS_BYTES);
const TREE_SEARCH: u32 = command(READ | WRITE, 17, ARGS_BYTES);
const INO_LOOKUP: u32 = command(READ | WRITE, 18, ARGS_BYTES);
const SPACE_INFO: u32 = command(READ | WRITE, 20, 16);
const DEV_INFO: u32 = command(READ | WRITE, 30, DEV_INFO_BYTES);
const SET_RECEIVED_SUBVOL: u32 = command(READ | WRITE, 37, RECEIVED_BYTES);
const GET_SUBVOL_ROOTREF: u32 = command(READ | WRITE, 61, ARGS_BYTES);
const INO_LOOKUP_USER: u32 = command(READ | WRITE, 62, ARGS_BYTES);
const DEFRAG_RANGE: u32 = command(WRITE, 16, 48);
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
pub(super) const RECEIVED_BYTES: u32 = 200;
/// Bytes of a subvolume's name in its description.
const SUBVOL_NAME_BYTES: usize = 256;
/// The valid fields of the description of a volume: checksum type, generation, metadata UUID.
const FS_INFO_FLAGS: u64 = 0b111;

impl BtrfsFs {
    pub(super) fn control_node(&self, control: &Control<'_>) -> Result<ControlAnswer> {
        let inode = self.answer(self.inode(control.node))?;
        let (caller, args) = (&control.caller, Args(control.input));
        if changes(control.command) && !self.options.user_subvol_ioctls {
            return Err(Errno::EPERM);
        }
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
            GET_SUBVOL_INFO => Ok(self.answer(self.subvolume_info(inode.tree_id()))?),
            // For privileged callers alone. Privileges are unknown here, but the owner of the device can change the
            // image anyway.
            DEFAULT_SUBVOL | TREE_SEARCH if !control.owns_device => Err(Errno::EPERM),
            DEFAULT_SUBVOL => self.set_default(args.number(0)?),
            TREE_SEARCH => self.search_tree(&inode, &args),
            SET_RECEIVED_SUBVOL => self.set_received(caller, &inode, &args),
            SPACE_INFO => Err(Errno::EOPNOTSUPP),
            DEV_INFO => self.device_info(&args),
            GET_SUBVOL_ROOTREF => return self.subvolumes_below(&inode, &args),
            INO_LOOKUP => self.path_in_tree(&inode, &args, control.owns_device),
            INO_LOOKUP_USER => self.path_for_user(control, &inode, &args),
            SYNC | WAIT_SYNC => Ok(self.answer(self.volume.sync()).map(|()| Vec::new())?),
            START_SYNC => self.start_sync(),
            DEFRAG => self.defragment_by(caller, control.node, None),
            DEFRAG_RANGE => self.defragment_by(caller, control.node, Some(&args)),
            FS_INFO => Ok(self.volume_info()),
            GET_FSLABEL => Ok(self.label()),
            _ => Err(Errno::ENOTTY),
        }?;
        match answer.len() <= control.output_bytes_max {
            true => Ok(answer.into()),
            false => Err(Errno::EOVERFLOW),
        }
    }

    /// True for commands that copy, freeze or delete the contents of files.
    pub(super) fn control_takes(&self, control: &Control<'_>) -> bool {
        const TAKES: [u32; 5] = [SNAP_CREATE_V2, SUBVOL_SETFLAGS, SNAP_DESTROY, SNAP_DESTROY_V2, SET_RECEIVED_SUBVOL];
        self.options.user_subvol_ioctls && TAKES.contains(&control.command)
    }

    /// The name that a command creates or removes, with its directory.
    pub(super) fn control_changes(&self, control: &Control<'_>) -> Option<(NodeId, Vec<u8>)> {
        let args = Args(control.input);
        let name = match control.command {
            SUBVOL_CREATE | SNAP_DESTROY => args.name(NAME_OFFSET),
            SNAP_DESTROY_V2 if args.check_flags(FLAG_BY_ID) == Ok(FLAG_BY_ID) => {
                let id = TreeId(args.number(NAME_V2_OFFSET).ok()?);
                let link = self.namespace().root_links.of(id).ok()??;
                let parent = self.nodes.number(link.parent, link.dir)?;
                return Some((NodeId(parent), link.name.into_vec()));
            }
            SUBVOL_CREATE_V2 | SNAP_CREATE_V2 | SNAP_DESTROY_V2 => args.name(NAME_V2_OFFSET),
            _ => return None,
        };
        Some((control.node, name.ok()?.to_vec()))
    }

    fn subvolume_flags(&self, inode: &Inode) -> Result<Vec<u8>> {
        check_is_subvolume(inode)?;
        let item = self.root_item(inode.tree_id())?;
        let is_read_only = item.root_flags().contains(RootFlags::SUBVOL_RDONLY);
        let flags = if is_read_only { FLAG_READ_ONLY } else { 0 };
        Ok(flags.to_le_bytes().to_vec())
    }

    fn device_info(&self, args: &Args<'_>) -> Result<Vec<u8>> {
        let store = &self.core().store;
        let fsid = store.superblock().fields().fsid;
        let (id, uuid): (u64, [u8; 16]) = (args.number(0)?, args.field(8)?);
        let is_it = |device: &btrfs_store::DeviceState| device.id.0 == id && (uuid == [0; 16] || uuid == device.uuid.0);
        let device = store.devices().into_iter().find(is_it).ok_or(Errno::ENODEV)?;
        let mut out = Output::new(DEV_INFO_BYTES);
        out.number(id).padded(&device.uuid.0, device.uuid.0.len());
        out.number(device.used_bytes).number(device.total_bytes);
        out.padded(&fsid.0, fsid.0.len()).padded(&[], DEV_UNUSED_BYTES);
        let name = device.name.as_bytes();
        out.padded(name.get(..DEV_PATH_BYTES - 1).unwrap_or(name), DEV_PATH_BYTES);
        Ok(out.done())
    }

    fn start_sync(&self) -> Result<Vec<u8>> {
        let Generation(running) = self.core().store.generation();
        self.answer(self.volume.sync())?;
        Ok(running.to_le_bytes().to_vec())
    }

    fn root_item(&self, id: TreeId) -> Result<RootItem> {
        Ok(self.answer(self.core().store.root_item(id).map_err(Into::into))?)
    }

    fn subvolume_info(&self, id: TreeId) -> crate::Result<Vec<u8>> {
        let item = self.core().store.root_item(id)?;
        let link = self.namespace().root_links.of(id)?;
        let (name, parent, dir) = link.map_or((Box::default(), 0, 0), |link| (link.name, link.parent.0, link.dir.0));
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
        out.number(store.devices().iter().map(|device| device.id.0).max().unwrap_or(0));
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

/// True for a command that changes something.
fn changes(command: u32) -> bool {
    const CHANGES: [u32; 11] = [
        DEFRAG,
        DEFRAG_RANGE,
        SUBVOL_CREATE,
        SUBVOL_CREATE_V2,
        SNAP_CREATE,
        SNAP_CREATE_V2,
        SNAP_DESTROY,
        SNAP_DESTROY_V2,
        SUBVOL_SETFLAGS,
        DEFAULT_SUBVOL,
        SET_RECEIVED_SUBVOL,
    ];
    CHANGES.contains(&command)
}

/// The argument of a command.
pub(super) struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// The name at an offset, up to the first zero.
    pub(super) fn name(&self, offset: usize) -> Result<&'a [u8]> {
        let bytes = self.0.get(offset..).ok_or(Errno::EINVAL)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.get(..end.unwrap_or(bytes.len())).ok_or(Errno::EINVAL)
    }

    pub(super) fn number(&self, offset: usize) -> Result<u64> {
        Ok(u64::from_le_bytes(self.field(offset)?))
    }

    pub(super) fn number_32(&self, offset: usize) -> Result<u32> {
        Ok(u32::from_le_bytes(self.field(offset)?))
    }

    pub(super) fn field<const BYTES: usize>(&self, offset: usize) -> Result<[u8; BYTES]> {
        let bytes = self.0.get(offset..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().ok_or(Errno::EINVAL)
    }

    /// The flags of the second version; none but `known` may be set.
    pub(super) fn check_flags(&self, known: u64) -> Result<u64> {
        const FLAGS_OFFSET: usize = 16;
        let flags = self.number(FLAGS_OFFSET)?;
        match flags & !known {
            0 => Ok(flags),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// An answer of fixed size, padded with zeros.
pub(super) struct Output {
    bytes: Vec<u8>,
    size: usize,
}

impl Output {
    pub(super) fn new(size: u32) -> Self {
        let size = to_usize(u64::from(size));
        Self { bytes: Vec::with_capacity(size), size }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(super) fn padded(&mut self, bytes: &[u8], len: usize) -> &mut Self {
        let end = self.bytes.len() + len;
        self.bytes.extend_from_slice(bytes.get(..len).unwrap_or(bytes));
        self.bytes.resize(end, 0);
        self
    }

    pub(super) fn time(&mut self, time: Timespec) -> &mut Self {
        self.bytes(&time.sec.get().to_le_bytes());
        self.number(u64::from(time.nsec.get()))
    }

    pub(super) fn done(mut self) -> Vec<u8> {
        self.bytes.resize(self.size, 0);
        self.bytes
    }
}

pub(super) fn check_is_subvolume(inode: &Inode) -> Result<()> {
    match inode.is_subvolume_root() {
        true => Ok(()),
        false => Err(CallerError::InvalidArgument.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_linux() {
        assert_eq!(SUBVOL_CREATE, 0x5000_940e);
        assert_eq!(DEFRAG, 0x5000_9402);
        assert_eq!(DEFRAG_RANGE, 0x4030_9410);
        assert_eq!(SNAP_CREATE_V2, 0x5000_9417);
        assert_eq!(INO_LOOKUP, 0xd000_9412);
        assert_eq!(START_SYNC, 0x8008_9418);
        assert_eq!(SYNC, 0x9408);
        assert_eq!(FS_INFO, 0x8400_941f);
        assert_eq!(TREE_SEARCH, 0xd000_9411);
        assert_eq!(SPACE_INFO, 0xc010_9414);
        assert_eq!(DEV_INFO, 0xd000_941e);
        assert_eq!(SET_RECEIVED_SUBVOL, 0xc0c8_9425);
        assert_eq!(GET_SUBVOL_ROOTREF, 0xd000_943d);
        assert_eq!(INO_LOOKUP_USER, 0xd000_943e);
        assert_eq!(GET_SUBVOL_INFO, 0x81f8_943c);
        assert_eq!(SNAP_DESTROY_V2, 0x5000_943f);
    }
}
