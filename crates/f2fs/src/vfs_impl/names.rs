//! Creates, removes and renames nodes. Called by `file_system`.

use f2fs_disk::Nid;
use f2fs_disk::flags::InodeFlags;
use f2fs_disk::inode::Kind;
use vfs::acl;
use vfs::file_system::{Caller, NewNode, NodeId, NodeKind, RenameFlags};

use super::references::Held;
use super::xattr::list_of;
use super::{named, node_of};
use crate::change::inodes::{self, NewInode};
use crate::change::names::{self, check_name};
use crate::dir::Found;
use crate::error::{CallerError, Result};
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

const PERMISSION_BITS: u32 = 0o7777;
const SET_GROUP: u16 = 0o2000;
/// Permission bits of a symbolic link, which have no effect.
const SYMLINK_PERMISSIONS: u32 = 0o777;

/// The kind of an inode for that of a node.
const fn kind_of(kind: NodeKind) -> Kind {
    match kind {
        NodeKind::Fifo => Kind::Fifo,
        NodeKind::CharDevice => Kind::CharDevice,
        NodeKind::Directory => Kind::Directory,
        NodeKind::BlockDevice => Kind::BlockDevice,
        NodeKind::File => Kind::File,
        NodeKind::Symlink => Kind::Symlink,
        NodeKind::Socket => Kind::Socket,
    }
}

/// Refuses a directory that takes no more names.
fn check_can_add(volume: &WriteVolume, dir: &Node) -> Result<()> {
    if dir.inode.kind() != Kind::Directory {
        return Err(CallerError::NotADirectory.into());
    }
    if dir.inode.flags().contains(InodeFlags::IMMUTABLE) {
        return Err(CallerError::NotPermitted.into());
    }
    if volume.is_orphan(dir.ino()) {
        return Err(CallerError::NotFound.into());
    }
    Ok(())
}

/// Refuses to remove a name if the directory's or the node's flags forbid it.
fn check_can_remove(dir: &Node, node: Option<&Node>) -> Result<()> {
    let guards = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
    let is_guarded = |node: &Node| node.inode.flags().intersects(guards);
    match is_guarded(dir) || node.is_some_and(is_guarded) {
        true => Err(CallerError::NotPermitted.into()),
        false => Ok(()),
    }
}

fn found(volume: &WriteVolume, dir: &Node, name: &[u8]) -> Result<Found> {
    Ok(names::find(volume, dir, name)?.ok_or(CallerError::NotFound)?)
}

/// Makes a node, with a name or without one.
pub(super) fn create(
    volume: &mut WriteVolume,
    caller: &Caller,
    parent: NodeId,
    name: Option<&[u8]>,
    new: &NewNode<'_>,
) -> Result<Nid> {
    let dir = node_of(volume, parent)?;
    if let Some(name) = name {
        if name.len() > f2fs_disk::inode::NAME_BYTES_MAX {
            return Err(CallerError::NameTooLong.into());
        }
        if dir.inode.kind() == Kind::Directory && names::find(volume, &dir, name)?.is_some() {
            return Err(CallerError::Exists.into());
        }
        check_name(name)?;
    }
    check_can_add(volume, &dir)?;
    let requested = new.permissions & PERMISSION_BITS;
    let mut xattrs: Vec<(&[u8], Vec<u8>)> = Vec::new();
    let mut permissions = match (new.kind, list_of(volume, dir.ino(), acl::DEFAULT_NAME)?) {
        (NodeKind::Symlink, _) => SYMLINK_PERMISSIONS,
        (_, None) => acl::without_default(requested, new.umask),
        (kind, Some(list)) => {
            let inherited = list.inherit(requested);
            xattrs.extend(inherited.access.map(|access| (acl::ACCESS_NAME, access.to_bytes())));
            if kind == NodeKind::Directory {
                xattrs.push((acl::DEFAULT_NAME, list.to_bytes()));
            }
            inherited.permissions
        }
    };
    let fields = dir.inode.fields();
    let gives_group = fields.i_mode.get() & SET_GROUP != 0;
    if gives_group && new.kind == NodeKind::Directory {
        permissions |= u32::from(SET_GROUP);
    }
    let gid = if gives_group { fields.i_gid.get() } else { caller.gid };
    let kind = kind_of(new.kind);
    let new = NewInode { kind, permissions, uid: caller.uid, gid, rdev: new.rdev, target: new.target, xattrs };
    inodes::create(volume, dir.ino(), name, &new)
}

pub(super) fn link(volume: &mut WriteVolume, node: NodeId, parent: NodeId, name: &[u8]) -> Result<Nid> {
    let (node, dir) = (node_of(volume, node)?, node_of(volume, parent)?);
    if name.len() > f2fs_disk::inode::NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    if names::find(volume, &dir, name)?.is_some() {
        return Err(CallerError::Exists.into());
    }
    check_name(name)?;
    check_can_add(volume, &dir)?;
    let guards = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);
    if node.inode.kind() == Kind::Directory || node.inode.flags().intersects(guards) {
        return Err(CallerError::NotPermitted.into());
    }
    if volume.is_orphan(node.ino()) && !volume.orphans.unnamed.contains(&node.ino()) {
        return Err(CallerError::NotFound.into());
    }
    names::link(volume, node.ino(), dir.ino(), name)?;
    Ok(node.ino())
}

/// Removes a name of a directory or another node; returns the inode if it was its last name.
pub(super) fn remove(volume: &mut WriteVolume, parent: NodeId, name: &[u8], is_dir: bool) -> Result<Option<Nid>> {
    let dir = node_of(volume, parent)?;
    if is_dir && name == b"." {
        return Err(CallerError::InvalidArgument.into());
    }
    if is_dir && name == b".." {
        return Err(CallerError::NotEmpty.into());
    }
    let found = found(volume, &dir, name)?;
    let node = named(volume, found.ino)?;
    match (node.inode.kind(), is_dir) {
        (Kind::Directory, false) => return Err(CallerError::IsADirectory.into()),
        (Kind::Directory, true) | (_, false) => {}
        (_, true) => return Err(CallerError::NotADirectory.into()),
    }
    check_can_remove(&dir, Some(&node))?;
    if is_dir && !names::is_empty_dir(volume, &node)? {
        return Err(CallerError::NotEmpty.into());
    }
    let is_last = names::unlink(volume, dir.ino(), &found, name)?;
    Ok(is_last.then_some(found.ino))
}

/// Moves a name; returns the inode that thereby lost its last one.
pub(super) fn rename(
    volume: &mut WriteVolume,
    caller: &Caller,
    (from, old_name): (NodeId, &[u8]),
    (to, new_name): (NodeId, &[u8]),
    flags: RenameFlags,
) -> Result<Option<Nid>> {
    let exchanges = flags.contains(RenameFlags::EXCHANGE);
    if !RenameFlags::all().contains(flags) || (exchanges && flags != RenameFlags::EXCHANGE) {
        return Err(CallerError::InvalidArgument.into());
    }
    check_name(old_name)?;
    check_name(new_name)?;
    let (from_dir, to_dir) = (node_of(volume, from)?, node_of(volume, to)?);
    let source = found(volume, &from_dir, old_name)?;
    let target = names::find(volume, &to_dir, new_name)?;
    let moved = named(volume, source.ino)?;
    check_can_remove(&from_dir, Some(&moved))?;
    if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
        return Err(CallerError::Exists.into());
    }
    let is_dir = moved.inode.kind() == Kind::Directory;
    if is_dir && from_dir.ino() != to_dir.ino() && names::is_below(volume, to_dir.ino(), source.ino)? {
        return Err(CallerError::InvalidArgument.into());
    }
    let (old, new) = ((from_dir.ino(), old_name), (to_dir.ino(), new_name));
    if exchanges {
        let target = target.ok_or(CallerError::NotFound)?;
        let other = named(volume, target.ino)?;
        check_can_remove(&to_dir, Some(&other))?;
        let other_is_dir = other.inode.kind() == Kind::Directory;
        if other_is_dir && from_dir.ino() != to_dir.ino() && names::is_below(volume, from_dir.ino(), target.ino)? {
            return Err(CallerError::InvalidArgument.into());
        }
        if source.ino != target.ino {
            names::exchange(volume, old, new, &source, &target)?;
        }
        return Ok(None);
    }
    check_can_add(volume, &to_dir)?;
    if let Some(target) = &target {
        if target.ino == source.ino {
            return Ok(None);
        }
        check_replaceable(volume, &to_dir, target, is_dir)?;
    }
    let whiteout = NewInode {
        kind: Kind::CharDevice,
        permissions: 0,
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        target: &[],
        xattrs: Vec::new(),
    };
    let lost = names::rename(volume, old, new, &source, target.as_ref())?;
    if flags.contains(RenameFlags::WHITEOUT) {
        inodes::create(volume, from_dir.ino(), Some(old_name), &whiteout)?;
    }
    Ok(lost)
}

fn check_replaceable(volume: &ReadVolume, dir: &Node, target: &Found, by_dir: bool) -> Result<()> {
    let node = named(volume, target.ino)?;
    check_can_remove(dir, Some(&node))?;
    match (by_dir, node.inode.kind() == Kind::Directory) {
        (true, false) => Err(CallerError::NotADirectory.into()),
        (false, true) => Err(CallerError::IsADirectory.into()),
        (true, true) if !names::is_empty_dir(volume, &node)? => Err(CallerError::NotEmpty.into()),
        _ => Ok(()),
    }
}

/// Removes an inode without names, unless a server refers to it.
pub(super) fn drop_if_free(volume: &mut WriteVolume, held: &Held, ino: Option<Nid>) -> Result<()> {
    match ino.filter(|ino| volume.is_orphan(*ino) && held.is_free(*ino)) {
        Some(ino) => inodes::free(volume, ino),
        None => Ok(()),
    }
}
