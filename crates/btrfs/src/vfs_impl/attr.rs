//! Sets attributes of an inode, and makes the changes that follow from it. Called by `file_system`. Other modules of
//! `vfs_impl` use the helpers for times, access lists and extended attributes.

use std::sync::Arc;

use btrfs_store::Txn;
use btrfs_store::ablation::{Mutation, mutated};
use vfs::NodeId;
use vfs::acl::{self, Acl};
use vfs::changes::{self, Guarded, NewTimes};
use vfs::file_system::{Attr, Caller, SetAttr, Time};
use vfs::privileges::BareSetGroup;

use super::flags::node_flags;
use super::stat::attr_of;
use super::{BtrfsFs, privileges};
use crate::error::{CallerError, Result};
use crate::file;
use crate::inode::{Absent, EMPTY_SUBVOL_INO, FileType, Inode, InodeState, MODE_PERMISSION_MASK, Timestamp};

/// Items that a change of attributes changes: the inode, its list, its capabilities.
const SET_ITEMS: u32 = 3;

/// Refuses nanoseconds of a second and more.
pub(super) fn checked(time: Time) -> Result<Timestamp> {
    Ok(changes::checked(time).ok_or(CallerError::InvalidArgument)?)
}

impl BtrfsFs {
    pub(super) fn attr_of_node(&self, node: NodeId) -> Result<Attr> {
        let inode = self.inode(node)?;
        Ok(attr_of(&inode.metadata(), self.nodes.shown(node)))
    }

    pub(super) fn change_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Result<Attr> {
        let inode = self.live_inode(node)?;
        check_may_change(caller, &inode, changes)?;
        let mut times = NewTimes::of(changes, self.core().now()).ok_or(CallerError::InvalidArgument)?;
        if changes.is_size_alone() {
            let state = inode.state();
            if changes.size == Some(state.size) {
                (times.mtime, times.ctime) = (Some(state.mtime), state.ctime);
            }
        }
        if let Some(size) = changes.size {
            check_sizeable(&inode)?;
            file::set_size(self.core(), &inode, size)?;
        }
        self.apply_attr(caller, &inode, changes, &times)?;
        self.sync_marked(&inode)?;
        Ok(attr_of(&inode.metadata(), self.nodes.shown(node)))
    }

    /// Changes all attributes but the size, in one transaction.
    fn apply_attr(&self, caller: &Caller, inode: &Arc<Inode>, changes: &SetAttr, times: &NewTimes) -> Result<()> {
        let drops_capability =
            changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some() || changes.clear_privileges;
        let has_capability = drops_capability && privileges::has_capability(self, inode)?;
        let may_have_list = changes.permissions.is_some() && !inode.absent.contains(Absent::AccessAcl);
        let reservation = self.namespace().reserve(SET_ITEMS)?;
        let _names = (has_capability || may_have_list).then(|| inode.lock_names());
        let list = match changes.permissions {
            Some(permissions) if may_have_list => {
                self.access_list(inode)?.map(|list| list.chmod(permissions).to_bytes())
            }
            _ => None,
        };
        self.namespace().apply(reservation, |txn| {
            if let Some(list) = &list {
                self.put(txn, inode, acl::ACCESS_NAME, Some(list))?;
            }
            if has_capability {
                self.put(txn, inode, vfs::privileges::CAPABILITY_NAME, None)?;
            }
            let (changes, times) = heeded(changes, times);
            inode.change(txn, |state| set_fields(caller, inode.kind(), state, &changes, &times));
            Ok(())
        })
    }

    pub(super) fn put(&self, txn: &Txn, inode: &Inode, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.namespace().put_xattr(txn, inode, name, value)
    }

    /// The access control list of an inode. The caller holds its `names` lock.
    pub(super) fn access_list(&self, inode: &Inode) -> Result<Option<Acl>> {
        if inode.absent.contains(Absent::AccessAcl) {
            return Ok(None);
        }
        let value = self.namespace().get_xattr(inode, acl::ACCESS_NAME)?;
        if value.is_none() {
            inode.absent.insert(Absent::AccessAcl);
        }
        Ok(value.and_then(|value| Acl::parse(&value).ok().flatten()))
    }
}

/// The requested changes, without those that a deliberate bug ([`Mutation`]) ignores. Tests turn such bugs on.
fn heeded(changes: &SetAttr, times: &NewTimes) -> (SetAttr, NewTimes) {
    let (mut changes, mut times) = (*changes, *times);
    if mutated(Mutation::ModeIgnored) {
        changes.permissions = None;
    }
    if mutated(Mutation::OwnerIgnored) {
        (changes.uid, changes.gid) = (None, None);
    }
    if mutated(Mutation::TimesIgnored) {
        times = NewTimes { atime: None, mtime: None, btime: None, ..times };
    }
    (changes, times)
}

fn set_fields(caller: &Caller, kind: FileType, state: &mut InodeState, changes: &SetAttr, times: &NewTimes) {
    let mut permissions = changes.permissions.unwrap_or(state.mode & MODE_PERMISSION_MASK);
    if changes.clear_privileges {
        let bare = BareSetGroup::for_change(caller, state.gid, changes);
        permissions = vfs::privileges::cleared(kind, permissions, bare);
    }
    state.mode = state.type_bits() | (permissions & MODE_PERMISSION_MASK);
    state.uid = changes.uid.unwrap_or(state.uid);
    state.gid = changes.gid.unwrap_or(state.gid);
    state.atime = times.atime.unwrap_or(state.atime);
    state.mtime = times.mtime.unwrap_or(state.mtime);
    state.otime = times.btime.unwrap_or(state.otime);
    state.ctime = times.ctime;
}

/// Refuses changes that the subvolume, the flags of the inode or its owner do not permit.
fn check_may_change(caller: &Caller, inode: &Inode, changes: &SetAttr) -> Result<()> {
    inode.check_writable()?;
    let (flags, guarded) = {
        let state = inode.state();
        let permissions = state.mode & MODE_PERMISSION_MASK;
        (node_flags(state.flags), Guarded { kind: inode.kind(), permissions, uid: state.uid, gid: state.gid })
    };
    let may = inode.ino() != EMPTY_SUBVOL_INO
        && changes::is_allowed(flags, changes)
        && changes::may_clear(caller, &guarded, changes);
    match may {
        true => Ok(()),
        false => Err(CallerError::NotPermitted.into()),
    }
}

fn check_sizeable(inode: &Inode) -> Result<()> {
    match inode.kind() {
        FileType::File => Ok(()),
        FileType::Directory => Err(CallerError::IsADirectory.into()),
        _ => Err(CallerError::InvalidArgument.into()),
    }
}
