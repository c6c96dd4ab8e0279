//! Reads and changes extended attributes: the families of names, and the effects of some of them. A list is an access
//! control list. Called by `file_system`.

use std::sync::Arc;

use vfs::NodeId;
use vfs::acl::{self, Acl};
use vfs::file_system::{Errno, XattrMode};
use vfs::privileges::CAPABILITY_NAME;

use super::BtrfsFs;
use super::flags::is_list;
use crate::balance::BalanceStatus;
use crate::error::{CallerError, Result};
use crate::file::shared_extents;
use crate::inode::{
    Absent, COMPRESSION_NAME, CompressionProperty, FileType, Inode, InodeFlags, MODE_PERMISSION_MASK, MODE_SET_GROUP,
};
use crate::open_volume::{FileSharing, QuotaPage, SpaceUsage};

/// Items that a list or a property changes: itself, and the inode.
const SET_ITEMS: u32 = 2;

/// The family of an attribute, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Bytes without a meaning here.
    Plain,
    /// For regular files and directories only.
    User,
    /// An access control list.
    List,
    /// A property of btrfs, or a value that is computed here.
    Property,
}

impl Family {
    fn of(name: &[u8]) -> Result<Self> {
        if is_list(name) {
            return Ok(Self::List);
        }
        let families: [(&[u8], Self); 4] = [
            (b"user.", Self::User),
            (b"trusted.", Self::Plain),
            (b"security.", Self::Plain),
            (b"btrfs.", Self::Property),
        ];
        match families.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            Some((prefix, _)) if name == *prefix => Err(CallerError::InvalidArgument.into()),
            Some((_, family)) => Ok(*family),
            None => Err(CallerError::NotSupported.into()),
        }
    }
}

/// An attribute that is computed; it is not listed, and cannot be set: the number of the subvolume that a file is in,
/// which `stat` does not tell.
const SUBVOLUME_NAME: &[u8] = b"btrfs.subvolid";

impl BtrfsFs {
    pub(super) fn xattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        let inode = self.inode(node)?;
        if name == SUBVOLUME_NAME {
            return Ok(inode.tree_id().0.to_string().into_bytes());
        }
        if name == SpaceUsage::XATTR.as_bytes() {
            return Ok(self.volume.usage().to_string().into_bytes());
        }
        if name == BalanceStatus::XATTR.as_bytes() {
            return Ok(self.balance_status()?.to_string().into_bytes());
        }
        if let Some(from) = name.strip_prefix(QuotaPage::XATTR_PREFIX.as_bytes()) {
            let from = str::from_utf8(from).ok().and_then(|text| text.parse().ok());
            let from = from.ok_or(CallerError::InvalidArgument)?;
            return Ok(QuotaPage::text(self.volume.quotas()?.as_ref(), from).into_bytes());
        }
        if let Some(from) = name.strip_prefix(FileSharing::XATTR_PREFIX.as_bytes()) {
            return self.sharing(&inode, from);
        }
        if let Family::List = Family::of(name)?
            && inode.kind().is_symlink()
        {
            return Err(CallerError::NotSupported.into());
        }
        let what = absent_of(name);
        if what.is_some_and(|what| inode.absent.contains(what)) {
            return Err(CallerError::NoAttribute.into());
        }
        let _names = inode.read_names();
        let value = self.namespace().get_xattr(&inode, name)?;
        if let (None, Some(what)) = (&value, what) {
            inode.absent.insert(what);
        }
        value.ok_or_else(|| CallerError::NoAttribute.into())
    }

    /// The shared extents of a file, from a byte in it that is given in decimal.
    fn sharing(&self, inode: &Arc<Inode>, from: &[u8]) -> Result<Vec<u8>> {
        let from = str::from_utf8(from).ok().and_then(|text| text.parse().ok());
        let (Some(from), FileType::File) = (from, inode.kind()) else {
            return Err(CallerError::InvalidArgument.into());
        };
        let (extents, next) = shared_extents(self.core(), inode, from, FileSharing::EXTENTS_MAX)?;
        let (subvolume, inode) = (inode.tree_id().0, inode.ino().0);
        Ok(FileSharing { subvolume, inode, extents, next }.to_string().into_bytes())
    }

    pub(super) fn xattr_names(&self, node: NodeId) -> Result<Vec<Vec<u8>>> {
        self.namespace().list_xattrs(&*self.inode(node)?)
    }

    pub(super) fn put_xattr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_set_group: bool,
    ) -> Result<()> {
        let inode = self.live_inode(node)?;
        inode.check_writable()?;
        let set = match Family::of(name)? {
            Family::Property if inode.check_not_read_only().is_err() => Err(CallerError::AccessDenied.into()),
            Family::List => self.set_list(&inode, name, value, clear_set_group),
            Family::Property => self.set_property(&inode, name, value),
            Family::User if !has_user_attributes(&inode) => Err(CallerError::NotPermitted.into()),
            Family::User | Family::Plain => self.namespace().set_xattr(&inode, name, value, mode),
        };
        set.and_then(|()| self.sync_marked(&inode))
    }

    pub(super) fn drop_xattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        let inode = self.live_inode(node)?;
        inode.check_writable()?;
        let removed = match Family::of(name)? {
            Family::List if inode.kind().is_symlink() => Err(CallerError::NotSupported.into()),
            // There is no such property, set or not.
            Family::Property if name != COMPRESSION_NAME => Err(CallerError::InvalidArgument.into()),
            Family::Property => {
                if self.namespace().get_xattr(&inode, name)?.is_none() {
                    return Err(CallerError::NoAttribute.into());
                }
                self.set_property(&inode, name, &[])
            }
            Family::List => match self.namespace().remove_xattr(&inode, name) {
                // A list that is not there need not be removed.
                Err(error) if error.caller_error() == Some(CallerError::NoAttribute) => Ok(()),
                result => result,
            },
            Family::User | Family::Plain => self.namespace().remove_xattr(&inode, name),
        };
        removed.and_then(|()| self.sync_marked(&inode))
    }

    /// Sets a list, and with the access list the permission bits that follow from it.
    fn set_list(&self, inode: &Arc<Inode>, name: &[u8], value: &[u8], clear_set_group: bool) -> Result<()> {
        if inode.kind().is_symlink() {
            return Err(CallerError::NotSupported.into());
        }
        let list = Acl::parse(value).map_err(refusal)?;
        let is_access = name == acl::ACCESS_NAME;
        if !is_access && !inode.kind().is_dir() {
            return match list {
                Some(_) => Err(CallerError::AccessDenied.into()),
                None => Ok(()),
            };
        }
        check_changeable(inode)?;
        let kept = list.as_ref().filter(|list| !is_access || !list.is_mode_only());
        let bytes = kept.map(Acl::to_bytes);
        let reservation = self.namespace().reserve(SET_ITEMS)?;
        let _names = inode.lock_names();
        let now = self.core().now();
        self.namespace().apply(reservation, |txn| {
            self.put(txn, inode, name, bytes.as_deref())?;
            inode.change(txn, |state| {
                if let (true, Some(list)) = (is_access, &list) {
                    let mut permissions = list.apply_to(state.mode & MODE_PERMISSION_MASK);
                    if clear_set_group {
                        permissions &= !MODE_SET_GROUP;
                    }
                    state.mode = state.type_bits() | permissions;
                }
                state.ctime = now;
            });
            Ok(())
        })
    }

    /// Sets a property, or removes it when there is no value; the flags follow from it.
    fn set_property(&self, inode: &Arc<Inode>, name: &[u8], value: &[u8]) -> Result<()> {
        if name != COMPRESSION_NAME {
            return Err(CallerError::InvalidArgument.into());
        }
        check_changeable(inode)?;
        let compression = CompressionProperty::parse(value).ok_or(CallerError::InvalidArgument)?;
        // The property affects files and directories only; for others the kernel accepts it and stores nothing.
        if !has_user_attributes(inode) {
            return Ok(());
        }
        let is_uncompressible = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        if !value.is_empty() && inode.state().flags.intersects(is_uncompressible) {
            return Err(CallerError::InvalidArgument.into());
        }
        let reservation = self.namespace().reserve(SET_ITEMS)?;
        let _names = inode.lock_names();
        let now = self.core().now();
        self.namespace().apply(reservation, |txn| {
            let value = (!value.is_empty()).then_some(value);
            self.put(txn, inode, name, value)?;
            if let Some(feature) = compression.feature() {
                txn.add_incompat(feature.bits());
            }
            inode.change(txn, |state| {
                let (compress, never) = compression.flags();
                state.flags.set(InodeFlags::COMPRESS, compress);
                state.flags.set(InodeFlags::NOCOMPRESS, never);
                state.ctime = now;
            });
            Ok(())
        })
    }
}

/// The attributes whose absence an inode caches.
fn absent_of(name: &[u8]) -> Option<Absent> {
    if name == CAPABILITY_NAME {
        Some(Absent::Capability)
    } else if name == acl::ACCESS_NAME {
        Some(Absent::AccessAcl)
    } else if name == acl::DEFAULT_NAME {
        Some(Absent::DefaultAcl)
    } else {
        None
    }
}

fn has_user_attributes(inode: &Inode) -> bool {
    matches!(inode.kind(), FileType::File | FileType::Directory)
}

fn check_changeable(inode: &Inode) -> Result<()> {
    let flags = inode.state().flags;
    if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(CallerError::NotPermitted.into());
    }
    Ok(())
}

/// Why a list was refused.
fn refusal(errno: Errno) -> CallerError {
    match errno {
        Errno::EOPNOTSUPP => CallerError::NotSupported,
        _ => CallerError::InvalidArgument,
    }
}
