//! Changes attributes and flags of nodes. Called by `memory` for `FileSystem`.

use vfs::acl::{self, Acl};
use vfs::file_system::{Attr, Caller, Errno, NodeFlags, NodeId, NodeKind, Result, SetAttr, SetTime, Time};

use vfs::privileges::BareSetGroup;

use super::MemoryFs;
use super::data::SIZE_MAX;
use super::node::State;

const PERMISSION_MASK: u32 = 0o7777;
const NANOSECONDS: u32 = 1_000_000_000;

/// Flags that a node can have.
const SUPPORTED: NodeFlags = NodeFlags::SYNC
    .union(PRIVILEGED)
    .union(NodeFlags::NODUMP)
    .union(NodeFlags::NOATIME)
    .union(NodeFlags::DIRSYNC)
    .union(NodeFlags::COMPRESS)
    .union(NodeFlags::NOCOMPRESS)
    .union(NodeFlags::NOCOW);
/// Flags that only root sets and takes away.
const PRIVILEGED: NodeFlags = NodeFlags::IMMUTABLE.union(NodeFlags::APPEND);

impl MemoryFs {
    pub(super) fn change_attributes(&self, caller: &Caller, id: NodeId, changes: &SetAttr) -> Result<Attr> {
        let node = self.node(id)?;
        let mut state = node.state.write();
        check_is_valid(changes)?;
        check_is_allowed(&state, changes)?;
        let bare = BareSetGroup::for_change(caller, state.gid, changes);
        let is_resized = match changes.size {
            Some(size) => set_size(&mut state, size, self.now())?,
            None => false,
        };
        if let Some(permissions) = changes.permissions {
            set_permissions(&mut state, permissions & PERMISSION_MASK)?;
        }
        let (uid, gid) = (changes.uid, changes.gid);
        state.uid = uid.unwrap_or(state.uid);
        state.gid = gid.unwrap_or(state.gid);
        let changes_owner = uid.is_some() || gid.is_some();
        if changes.size.is_some() || (changes_owner && node.kind != NodeKind::Directory) {
            state.drop_capability();
        }
        if changes.clear_privileges {
            state.clear_privileges(node.kind, bare);
        }
        if is_resized || !changes.is_size_alone() {
            set_times(&mut state, changes, self.now());
        }
        Ok(node.attr_of(&state))
    }

    pub(super) fn node_flags(&self, id: NodeId) -> Result<NodeFlags> {
        let node = self.node(id)?;
        check_has_flags(node.kind)?;
        Ok(node.state.read().flags)
    }

    pub(super) fn change_flags(&self, caller: &Caller, id: NodeId, flags: NodeFlags) -> Result<()> {
        let node = self.node(id)?;
        check_has_flags(node.kind)?;
        let mut state = node.state.write();
        if !SUPPORTED.contains(flags) {
            return Err(Errno::EOPNOTSUPP);
        }
        if flags.contains(NodeFlags::COMPRESS) && flags.intersects(NodeFlags::NOCOMPRESS | NodeFlags::NOCOW) {
            return Err(Errno::EINVAL);
        }
        let is_root = caller.uid == 0;
        if !caller.is_known() || (!is_root && caller.uid != state.uid) {
            return Err(Errno::EPERM);
        }
        if !is_root && (state.flags ^ flags).intersects(PRIVILEGED) {
            return Err(Errno::EPERM);
        }
        let meaningful = if node.kind == NodeKind::Directory { flags } else { flags - NodeFlags::DIRSYNC };
        state.flags = meaningful;
        state.ctime = self.now();
        Ok(())
    }
}

/// Flags that a new node takes over from its directory.
pub(super) fn inherited_flags(directory: NodeFlags, kind: NodeKind) -> NodeFlags {
    let inherited = NodeFlags::COMPRESS | NodeFlags::NOCOMPRESS | NodeFlags::NOCOW;
    match kind {
        NodeKind::File | NodeKind::Directory => directory & inherited,
        _ => NodeFlags::empty(),
    }
}

const fn check_has_flags(kind: NodeKind) -> Result<()> {
    match kind {
        NodeKind::File | NodeKind::Directory => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn check_is_valid(changes: &SetAttr) -> Result<()> {
    let times = [given(changes.atime), given(changes.mtime), changes.ctime, changes.btime];
    if times.iter().flatten().any(|time| time.nsec >= NANOSECONDS) {
        return Err(Errno::EINVAL);
    }
    if changes.size.is_some_and(|size| size > SIZE_MAX) {
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// An append-only node lets only its times be set to now, an immutable one nothing.
fn check_is_allowed(state: &State, changes: &SetAttr) -> Result<()> {
    let is_given = changes.permissions.is_some()
        || changes.uid.is_some()
        || changes.gid.is_some()
        || changes.size.is_some()
        || given(changes.atime).or(given(changes.mtime)).is_some()
        || changes.btime.is_some();
    let is_now = [changes.atime, changes.mtime].contains(&Some(SetTime::Now));
    if is_given {
        state.check_changeable()?;
    }
    if is_now {
        state.refuse(NodeFlags::IMMUTABLE)?;
    }
    Ok(())
}

/// A time that is not that of the call.
const fn given(time: Option<SetTime>) -> Option<Time> {
    match time {
        Some(SetTime::To(time)) => Some(time),
        Some(SetTime::Now) | None => None,
    }
}

/// True when it had another size.
fn set_size(state: &mut State, size: u64, now: Time) -> Result<bool> {
    let data = state.data_mut()?;
    let changes = data.size() != size;
    data.set_size(size);
    if changes {
        state.mtime = now;
    }
    Ok(changes)
}

fn set_permissions(state: &mut State, permissions: u32) -> Result<()> {
    if let Some(value) = state.xattrs.get(acl::ACCESS_NAME)
        && let Some(list) = Acl::parse(value)?
    {
        let list = list.chmod(permissions).to_bytes();
        state.xattrs.insert(acl::ACCESS_NAME.to_vec(), list);
    }
    state.permissions = permissions;
    Ok(())
}

fn set_times(state: &mut State, changes: &SetAttr, now: Time) {
    let time = |wanted: Option<SetTime>, old: Time| match wanted {
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
        None => old,
    };
    state.atime = time(changes.atime, state.atime);
    state.mtime = time(changes.mtime, state.mtime);
    state.btime = changes.btime.unwrap_or(state.btime);
    state.ctime = changes.ctime.unwrap_or(now);
}
