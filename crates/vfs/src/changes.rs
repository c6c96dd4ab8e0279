//! Decides which changes of attributes a node's flags and its owner allow, whatever the format, and which times they
//! set. Called by the engines (`vfs_impl/attr`).

use crate::file_system::{Caller, NodeFlags, NodeKind, SetAttr, SetTime, Time};
use crate::privileges::{BareSetGroup, cleared};

/// Nanoseconds of a second.
const SECOND_NS: u32 = 1_000_000_000;
/// Permission bits by which others than the owner write. Those of the group are the mask of an access control list, the
/// most that any entry of it grants.
const OTHERS_WRITE: u32 = 0o022;

/// A time with nanoseconds below a second; `None` for others.
#[must_use]
pub fn checked(time: Time) -> Option<Time> {
    (time.nsec < SECOND_NS).then_some(time)
}

/// Times to set, all known.
#[derive(Debug, Clone, Copy)]
pub struct NewTimes {
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the contents.
    pub mtime: Option<Time>,
    /// Last change of the node.
    pub ctime: Time,
    /// Creation.
    pub btime: Option<Time>,
}

impl NewTimes {
    /// Those that `changes` sets, at `now`; `None` where one has nanoseconds of a second and more.
    #[must_use]
    pub fn of(changes: &SetAttr, now: Time) -> Option<Self> {
        let set = |time: Option<SetTime>| match time {
            None => Some(None),
            Some(SetTime::Now) => Some(Some(now)),
            Some(SetTime::To(time)) => checked(time).map(Some),
        };
        let btime = match changes.btime {
            None => None,
            Some(time) => Some(checked(time)?),
        };
        let ctime = changes.ctime.map_or(Some(now), checked)?;
        Some(Self { atime: set(changes.atime)?, mtime: set(changes.mtime)?, ctime, btime })
    }
}

/// True where a node with these flags may be changed so: of an append-only one, only times may be set to now.
#[must_use]
pub fn is_allowed(flags: NodeFlags, changes: &SetAttr) -> bool {
    let sets_time = |time| matches!(time, Some(SetTime::To(_)));
    let changes_owner = changes.permissions.is_some() || changes.uid.is_some() || changes.gid.is_some();
    let is_past_append = changes_owner
        || changes.size.is_some()
        || changes.btime.is_some()
        || sets_time(changes.atime)
        || sets_time(changes.mtime);
    let is_any = is_past_append || changes.atime.is_some() || changes.mtime.is_some();
    let is_refused =
        (flags.contains(NodeFlags::IMMUTABLE) && is_any) || (flags.contains(NodeFlags::APPEND) && is_past_append);
    !is_refused
}

/// Owner and permission bits of a node.
#[derive(Debug, Clone, Copy)]
pub struct Guarded {
    /// Kind of file.
    pub kind: NodeKind,
    /// Permission bits with set-user, set-group and sticky.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// False for an empty change (`chown(path, -1, -1)`) that would clear set-user or set-group bits of another user's
/// file: any user could disarm `sudo`. Linux requires an owner or `CAP_FOWNER` for that, but leaves it to the server,
/// which is not told of capabilities; root is taken to have it.
///
/// A write that clears the bits sends a request that looks the same. A user who may write to the file clears them in
/// any case.
#[must_use]
pub fn may_clear(caller: &Caller, node: &Guarded, changes: &SetAttr) -> bool {
    let clears_alone = *changes == SetAttr { clear_privileges: true, ctime: changes.ctime, ..SetAttr::default() };
    let may_write = node.permissions & OTHERS_WRITE != 0;
    if !clears_alone || may_write || caller.uid == 0 || caller.uid == node.uid {
        return true;
    }
    let bare = BareSetGroup::for_change(caller, node.gid, changes);
    cleared(node.kind, node.permissions, bare) == node.permissions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_does_not_disarm_what_only_its_owner_writes() {
        let user = |uid| Caller { uid, gid: 9, pid: 1 };
        let node = |permissions| Guarded { kind: NodeKind::File, permissions, uid: 7, gid: 8 };
        let clear = SetAttr { clear_privileges: true, ..SetAttr::default() };
        assert!(!may_clear(&user(5), &node(0o4755), &clear));
        for (uid, permissions) in [(0, 0o4755), (7, 0o4755), (5, 0o4777), (5, 0o755)] {
            assert!(may_clear(&user(uid), &node(permissions), &clear), "{uid} {permissions:o}");
        }
        assert!(may_clear(&user(5), &node(0o4755), &SetAttr { size: Some(0), ..clear }));
    }

    #[test]
    fn flags_forbid_all_or_what_is_no_new_access() {
        let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        let set = SetAttr { mtime: Some(SetTime::To(Time::new(1, 0))), ..SetAttr::default() };
        assert!(is_allowed(NodeFlags::APPEND, &now) && !is_allowed(NodeFlags::APPEND, &set));
        assert!(!is_allowed(NodeFlags::IMMUTABLE, &now) && is_allowed(NodeFlags::empty(), &set));
        let late = SetAttr { btime: Some(Time::new(1, SECOND_NS)), ..SetAttr::default() };
        assert!(NewTimes::of(&late, Time::new(5, 0)).is_none());
        let times = NewTimes::of(&now, Time::new(5, 0)).unwrap();
        assert_eq!((times.mtime, times.ctime, times.atime), (Some(Time::new(5, 0)), Time::new(5, 0), None));
    }
}
