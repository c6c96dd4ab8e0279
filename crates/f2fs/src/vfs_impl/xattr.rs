//! Reads and changes extended attributes: supported names, and side effects of some. Called by `file_system`.

use f2fs_disk::Nid;
use f2fs_disk::flags::InodeFlags;
use f2fs_disk::inode::Kind;
use vfs::acl::{self, Acl};
use vfs::file_system::{Errno, XattrMode};

use crate::change;
use crate::change::room::{self, Urgency};
use crate::error::{CallerError, Error, Result};
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;
use crate::xattrs;

const SET_GROUP: u32 = 0o2000;
/// Longest name of an attribute, with its family.
const NAME_MAX: usize = 255;

fn is_list(name: &[u8]) -> bool {
    name == acl::ACCESS_NAME || name == acl::DEFAULT_NAME
}

/// Refuses names that the format cannot store.
fn check_family(node: &Node, name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    if is_list(name) {
        return match node.inode.kind() {
            Kind::Symlink => Err(CallerError::NotSupported.into()),
            _ => Ok(()),
        };
    }
    let families: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match families.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name == *prefix => Err(CallerError::InvalidArgument.into()),
        Some(_) => Ok(()),
        None => Err(CallerError::NotSupported.into()),
    }
}

/// The value of an attribute for a program.
pub(super) fn get(volume: &ReadVolume, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
    match xattrs::value(volume, node, name) {
        Err(Error::Caller(CallerError::NoAttribute)) => {
            check_family(node, name)?;
            Err(CallerError::NoAttribute.into())
        }
        found => found,
    }
}

pub(super) fn has_xattr(volume: &ReadVolume, ino: Nid, name: &[u8]) -> Result<bool> {
    match xattrs::value(volume, &volume.inode(ino)?, name) {
        Ok(_) => Ok(true),
        Err(Error::Caller(CallerError::NoAttribute)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// An access list of an inode; a malformed one counts as none.
pub(super) fn list_of(volume: &ReadVolume, ino: Nid, name: &[u8]) -> Result<Option<Acl>> {
    match xattrs::value(volume, &volume.inode(ino)?, name) {
        Ok(value) => Ok(Acl::parse(&value).ok().flatten()),
        Err(Error::Caller(CallerError::NoAttribute)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn set(
    volume: &mut WriteVolume,
    ino: Nid,
    name: &[u8],
    value: &[u8],
    mode: XattrMode,
    clear_set_group: bool,
) -> Result<()> {
    let node = volume.inode(ino)?;
    check_family(&node, name)?;
    if is_list(name) {
        return set_list(volume, &node, name, value, clear_set_group);
    }
    check_may_have(&node, name)?;
    check_changeable(&node)?;
    match (has_xattr(volume, ino, name)?, mode) {
        (true, XattrMode::Create) => return Err(CallerError::Exists.into()),
        (false, XattrMode::Replace) => return Err(CallerError::NoAttribute.into()),
        _ => {}
    }
    room::make(volume, 2, 4, Urgency::Normal)?;
    change::xattrs::put(volume, ino, name, Some(value))?;
    volume.touch_inode(ino)
}

pub(super) fn remove(volume: &mut WriteVolume, ino: Nid, name: &[u8]) -> Result<()> {
    let node = volume.inode(ino)?;
    check_family(&node, name)?;
    check_changeable(&node)?;
    if !has_xattr(volume, ino, name)? {
        // A missing list need not be removed.
        return if is_list(name) { Ok(()) } else { Err(CallerError::NoAttribute.into()) };
    }
    room::make(volume, 2, 4, Urgency::Removal)?;
    change::xattrs::put(volume, ino, name, None)?;
    volume.touch_inode(ino)
}

/// Sets a list, and with the access list the permission bits that it implies.
fn set_list(volume: &mut WriteVolume, node: &Node, name: &[u8], value: &[u8], clear_set_group: bool) -> Result<()> {
    let ino = node.ino();
    let list = Acl::parse(value).map_err(|errno| match errno {
        Errno::EOPNOTSUPP => CallerError::NotSupported,
        _ => CallerError::InvalidArgument,
    })?;
    let is_access = name == acl::ACCESS_NAME;
    if !is_access && node.inode.kind() != Kind::Directory {
        return match list {
            Some(_) => Err(CallerError::AccessDenied.into()),
            None => Ok(()),
        };
    }
    check_changeable(node)?;
    let kept = list.as_ref().filter(|list| !is_access || !list.is_mode_only());
    room::make(volume, 2, 4, Urgency::Normal)?;
    match kept {
        Some(list) => change::xattrs::put(volume, ino, name, Some(&list.to_bytes()))?,
        None if has_xattr(volume, ino, name)? => change::xattrs::put(volume, ino, name, None)?,
        None => {}
    }
    if let (true, Some(list)) = (is_access, &list) {
        let fields = volume.edit_fields(ino)?;
        let mut permissions = list.apply_to(fields.permissions());
        if clear_set_group {
            permissions &= !SET_GROUP;
        }
        fields.set_permissions(permissions);
    }
    volume.touch_inode(ino)
}

/// User attributes exist only for files and directories.
fn check_may_have(node: &Node, name: &[u8]) -> Result<()> {
    match name.starts_with(b"user.") && !matches!(node.inode.kind(), Kind::File | Kind::Directory) {
        true => Err(CallerError::NotPermitted.into()),
        false => Ok(()),
    }
}

fn check_changeable(node: &Node) -> Result<()> {
    match node.inode.flags().intersects(InodeFlags::IMMUTABLE.union(InodeFlags::APPEND)) {
        true => Err(CallerError::NotPermitted.into()),
        false => Ok(()),
    }
}
