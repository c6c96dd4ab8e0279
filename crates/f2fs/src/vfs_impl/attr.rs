//! Reads and changes attributes of nodes: mode, owner, times, flags. Called by `file_system`.

use f2fs_disk::Nid;
use f2fs_disk::flags::{Advise, Features, InlineFlags, InodeFlags};
use f2fs_disk::inode::{self, DiskInode, Inode, Kind, Timestamp};
use vfs::acl;
use vfs::changes::{self, Guarded, NewTimes};
use vfs::file_system::{Attr, Caller, Entry, Home, NodeFlags, NodeId, NodeKind, SetAttr, Time};
use vfs::privileges::{self, BareSetGroup, CAPABILITY_NAME};

use super::check_is_file;
use super::xattr::{has_xattr, list_of};
use crate::change::room::{self, Urgency};
use crate::change::{names, size_and_holes, xattrs};
use crate::dir::knows_case;
use crate::error::{CallerError, Result};
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Flags of `FS_IOC_GETFLAGS` that come from other fields of an inode (linux/fs.h).
const FS_ENCRYPT_FL: u32 = 0x800;
const FS_VERITY_FL: u32 = 0x10_0000;
const FS_NOCOW_FL: u32 = 0x80_0000;
const FS_INLINE_DATA_FL: u32 = 0x1000_0000;
/// Blocks of 4 KiB in units of 512 bytes.
const SECTORS_PER_BLOCK: u64 = 8;
const SECTOR_BYTES: u64 = 512;
/// Preferred size of I/O.
const BLOCK_BYTES: u32 = 4096;

/// The attributes that `stat` reports.
pub(super) fn attr_of(volume: &ReadVolume, node: &Node) -> Attr {
    let (inode, features) = (&node.inode, volume.features());
    let fields = inode.fields();
    Attr {
        ino: u64::from(inode.ino().0),
        kind: kind(inode.kind()),
        permissions: fields.permissions(),
        nlink: fields.i_links.get(),
        uid: fields.i_uid.get(),
        gid: fields.i_gid.get(),
        rdev: inode.device(&node.block),
        size: inode.size(),
        blocks: sectors(inode),
        block_bytes: BLOCK_BYTES,
        atime: time(inode.atime()),
        mtime: time(inode.mtime()),
        ctime: time(inode.ctime()),
        btime: inode.crtime(features).map(time).unwrap_or_default(),
        // Storage flags are no flags of the node; `lsattr` shows them.
        flags: NodeFlags::from_bits_retain(inode.flags().bits()),
        home: Home { subvolume: 0, ino: u64::from(inode.ino().0), generation: u64::from(fields.i_generation.get()) },
    }
}

pub(super) fn entry_of(volume: &ReadVolume, node: &Node) -> Entry {
    // The server's node number is the inode number, except that the root's is fixed.
    let id = if node.ino() == volume.root() { NodeId::ROOT } else { NodeId(u64::from(node.ino().0)) };
    let generation = if id == NodeId::ROOT { 0 } else { u64::from(node.inode.fields().i_generation.get()) };
    Entry { node: id, generation, attr: attr_of(volume, node) }
}

/// Changes attributes, all of them or none.
pub(super) fn change_attr(volume: &mut WriteVolume, caller: &Caller, ino: Nid, changes: &SetAttr) -> Result<()> {
    let node = volume.inode(ino)?;
    let fields = node.inode.fields();
    let guarded = Guarded {
        kind: kind(node.inode.kind()),
        permissions: fields.permissions(),
        uid: fields.i_uid.get(),
        gid: fields.i_gid.get(),
    };
    let node_flags = NodeFlags::from_bits_retain(node.inode.flags().bits());
    if !changes::is_allowed(node_flags, changes) || !changes::may_clear(caller, &guarded, changes) {
        return Err(CallerError::NotPermitted.into());
    }
    let mut times = NewTimes::of(changes, volume.clock.now()).ok_or(CallerError::InvalidArgument)?;
    if changes.is_size_alone() && changes.size == Some(node.inode.size()) {
        (times.mtime, times.ctime) = (Some(time(node.inode.mtime())), time(node.inode.ctime()));
    } else if changes.is_size_alone() {
        times.mtime = Some(times.mtime.unwrap_or(times.ctime));
    }
    let owner_changes = changes.uid.is_some() || changes.gid.is_some();
    let drops_capability = changes.size.is_some() || owner_changes || changes.clear_privileges;
    if let Some(size) = changes.size {
        check_is_file(&node)?;
        size_and_holes::set_size(volume, ino, size)?;
        // The size changes first, since it needs space of its own.
        volume.settle();
    }
    room::make(volume, 4, 4, Urgency::Removal)?;
    if drops_capability && has_xattr(volume, ino, CAPABILITY_NAME)? {
        xattrs::put(volume, ino, CAPABILITY_NAME, None)?;
    }
    if let Some(permissions) = changes.permissions
        && let Some(list) = list_of(volume, ino, acl::ACCESS_NAME)?
    {
        xattrs::put(volume, ino, acl::ACCESS_NAME, Some(&list.chmod(permissions).to_bytes()))?;
    }
    let features = volume.features();
    let block = volume.edit_inode(ino)?;
    set_fields(inode::fields_mut(block), caller, changes, &times);
    if let (Some(btime), Some(extra)) = (times.btime, inode::extra_mut(block))
        && node.inode.crtime(features).is_some()
    {
        extra.i_crtime = btime.sec.cast_unsigned().into();
        extra.i_crtime_nsec = btime.nsec.into();
        // A replay would not record it.
        volume.chain.bar(ino);
    }
    Ok(())
}

fn set_fields(fields: &mut DiskInode, caller: &Caller, changes: &SetAttr, times: &NewTimes) {
    let mut permissions = changes.permissions.unwrap_or(fields.permissions());
    if changes.clear_privileges {
        let bare = BareSetGroup::for_change(caller, fields.i_gid.get(), changes);
        let kind = Kind::from_mode(fields.i_mode.get()).map_or(NodeKind::File, kind);
        permissions = privileges::cleared(kind, permissions, bare);
    }
    fields.set_permissions(permissions);
    if let Some(uid) = changes.uid {
        fields.i_uid = uid.into();
    }
    if let Some(gid) = changes.gid {
        fields.i_gid = gid.into();
    }
    if let Some(atime) = times.atime {
        fields.set_atime(atime.sec, atime.nsec);
    }
    if let Some(mtime) = times.mtime {
        fields.set_mtime(mtime.sec, mtime.nsec);
    }
    fields.set_ctime(times.ctime.sec, times.ctime.nsec);
}

/// Flags that `chattr` may set, and that are stored unchanged.
const SETTABLE: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::CASEFOLD);

/// Sets the flags of an inode.
pub(super) fn change_flags(volume: &mut WriteVolume, caller: &Caller, ino: Nid, wanted: NodeFlags) -> Result<()> {
    let node = volume.inode(ino)?;
    if !matches!(node.inode.kind(), Kind::File | Kind::Directory) {
        return Err(CallerError::NotSupported.into());
    }
    let had = flags(&node.inode);
    let guarded = NodeFlags::IMMUTABLE | NodeFlags::APPEND;
    let is_owner = caller.uid == node.inode.fields().i_uid.get();
    if !caller.is_known() || (caller.uid != 0 && (!is_owner || (had ^ wanted).intersects(guarded))) {
        return Err(CallerError::NotPermitted.into());
    }
    // Flags from other fields may be set to the value that was read.
    let settable = NodeFlags::from_bits_retain(SETTABLE.bits());
    if !wanted.difference(settable).difference(had).is_empty() {
        return Err(CallerError::NotSupported.into());
    }
    let mut wanted = InodeFlags::from_bits_retain(wanted.bits()).intersection(SETTABLE);
    if node.inode.kind() == Kind::File {
        wanted.remove(InodeFlags::DIRSYNC);
    }
    if wanted.contains(InodeFlags::CASEFOLD) != node.inode.flags().contains(InodeFlags::CASEFOLD) {
        check_can_fold(volume, &node)?;
    }
    room::make(volume, 0, 2, Urgency::Removal)?;
    let kept = node.inode.flags().difference(SETTABLE);
    volume.edit_fields(ino)?.i_flags = kept.union(wanted).bits().into();
    volume.touch_inode(ino)
}

/// Refuses to change whether a non-empty directory ignores case: its names would no longer be found.
fn check_can_fold(volume: &ReadVolume, node: &Node) -> Result<()> {
    if !volume.features().contains(Features::CASEFOLD) || !knows_case(volume) {
        return Err(CallerError::NotSupported.into());
    }
    if node.inode.kind() != Kind::Directory {
        return Err(CallerError::NotADirectory.into());
    }
    match names::is_empty_dir(volume, node)? {
        true => Ok(()),
        false => Err(CallerError::NotEmpty.into()),
    }
}

/// Without the block of the inode, but with inline contents, as in the kernel's `stat`.
fn sectors(inode: &Inode) -> u64 {
    let stored = inode.fields().i_blocks.get().saturating_sub(1).saturating_mul(SECTORS_PER_BLOCK);
    let is_inline = inode.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY))
        && matches!(inode.kind(), Kind::File | Kind::Directory);
    let inline = if is_inline { inode.size().div_ceil(SECTOR_BYTES) } else { 0 };
    stored.saturating_add(inline)
}

pub(super) fn flags(inode: &Inode) -> NodeFlags {
    let mut bits = inode.flags().bits();
    let derived = [
        (inode.advise().contains(Advise::ENCRYPT), FS_ENCRYPT_FL),
        (inode.advise().contains(Advise::VERITY), FS_VERITY_FL),
        (inode.inline().contains(InlineFlags::PIN_FILE), FS_NOCOW_FL),
        (inode.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY)), FS_INLINE_DATA_FL),
    ];
    for (_, flag) in derived.into_iter().filter(|(is_set, _)| *is_set) {
        bits |= flag;
    }
    NodeFlags::from_bits_retain(bits)
}

pub(super) fn time(time: Timestamp) -> Time {
    Time { sec: time.sec, nsec: time.nsec }
}

pub(super) const fn kind(kind: Kind) -> NodeKind {
    match kind {
        Kind::Fifo => NodeKind::Fifo,
        Kind::CharDevice => NodeKind::CharDevice,
        Kind::Directory => NodeKind::Directory,
        Kind::BlockDevice => NodeKind::BlockDevice,
        Kind::File => NodeKind::File,
        Kind::Symlink => NodeKind::Symlink,
        Kind::Socket => NodeKind::Socket,
    }
}
