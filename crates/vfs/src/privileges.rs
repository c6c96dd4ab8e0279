//! Decides which privileges a node loses when it is written to or its owner changes. Called by the engines
//! (`vfs_impl`), and `access`.
//!
//! A program that runs with its owner's rights must lose them when another user changes it. Besides the set-user and
//! set-group bits that is [`CAPABILITY_NAME`], which every write, change of size and change of owner removes.

use crate::file_system::{Caller, NodeKind, SetAttr, WriteFlags};

/// Attribute with the capabilities that a program gets.
pub const CAPABILITY_NAME: &[u8] = b"security.capability";

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Whether a change keeps a set-group bit that comes without group execution. (Such a bit is no privilege: it once
/// marked files for mandatory locks. Linux still removes it when the writer is not in the file's group.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BareSetGroup {
    /// In the file's group, or privileged.
    Kept,
    /// The writer is not in the group, or it is not known.
    Cleared,
}

impl BareSetGroup {
    /// For a change of attributes by `caller` of a node in the group `gid`. A change of owner comes here
    /// from privileged callers too; for any other change the kernel asks to clear the bits only where
    /// the caller has no privileges.
    #[must_use]
    pub const fn for_change(caller: &Caller, gid: u32, changes: &SetAttr) -> Self {
        let is_owner = changes.uid.is_some() || changes.gid.is_some();
        if !caller.is_known() {
            return Self::Cleared;
        }
        if caller.gid == gid || (is_owner && caller.uid == 0) { Self::Kept } else { Self::Cleared }
    }

    /// For a write with these flags.
    #[must_use]
    pub const fn for_write(flags: WriteFlags) -> Self {
        if flags.contains(WriteFlags::BY_MEMBER) { Self::Kept } else { Self::Cleared }
    }
}

/// The permission bits that are left. On a directory both bits mean something else, and stay.
#[must_use]
pub const fn cleared(kind: NodeKind, permissions: u32, bare: BareSetGroup) -> u32 {
    if matches!(kind, NodeKind::Directory) {
        return permissions;
    }
    let left = permissions & !SET_USER;
    if left & GROUP_EXECUTE == 0 && matches!(bare, BareSetGroup::Kept) { left } else { left & !SET_GROUP }
}

/// True for permissions with a bit that [`cleared`] takes from some writers and leaves to others.
#[must_use]
pub const fn has_bare_set_group(permissions: u32) -> bool {
    permissions & (SET_GROUP | GROUP_EXECUTE) == SET_GROUP
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_known_is_in_no_group() {
        let caller = |uid, gid| Caller { uid, gid, pid: 1 };
        let owner = SetAttr { uid: Some(0), ..SetAttr::default() };
        let size = SetAttr { size: Some(0), ..SetAttr::default() };
        for (caller, gid, changes, expected) in [
            (caller(7, 9), 9, &size, BareSetGroup::Kept),
            (caller(7, 9), 8, &size, BareSetGroup::Cleared),
            (caller(0, 9), 8, &owner, BareSetGroup::Kept),
            (caller(0, 9), 8, &size, BareSetGroup::Cleared),
            (caller(Caller::UNKNOWN, Caller::UNKNOWN), Caller::UNKNOWN, &size, BareSetGroup::Cleared),
            (caller(Caller::UNKNOWN, Caller::UNKNOWN), Caller::UNKNOWN, &owner, BareSetGroup::Cleared),
            (caller(Caller::UNKNOWN, 9), 9, &size, BareSetGroup::Cleared),
        ] {
            assert_eq!(BareSetGroup::for_change(&caller, gid, changes), expected, "{caller:?}");
        }
    }

    #[test]
    fn only_a_member_keeps_set_group_without_group_execution() {
        for (kind, before, kept, cleared_to) in [
            (NodeKind::File, 0o6777, 0o777, 0o777),
            (NodeKind::File, 0o6767, 0o2767, 0o767),
            (NodeKind::File, 0o2666, 0o2666, 0o666),
            (NodeKind::File, 0o1777, 0o1777, 0o1777),
            (NodeKind::Directory, 0o6777, 0o6777, 0o6777),
        ] {
            assert_eq!(cleared(kind, before, BareSetGroup::Kept), kept, "{before:o}");
            let differs = kind == NodeKind::File && kept != cleared_to;
            assert_eq!(has_bare_set_group(before) && kind == NodeKind::File, differs, "{before:o}");
            assert_eq!(cleared(kind, before, BareSetGroup::Cleared), cleared_to, "{before:o}");
        }
    }
}
