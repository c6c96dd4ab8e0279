//! Reads and changes extended attributes, and the access control lists among them. Called by `memory` for `FileSystem`.

use vfs::acl::{self, Acl};
use vfs::file_system::{Errno, NodeId, NodeKind, Result, XattrMode};

use super::node::{Node, State};
use super::{MemoryFs, NAME_BYTES_MAX};

/// Longest value in Linux.
const VALUE_BYTES_MAX: usize = 65_536;
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const SET_GROUP: u32 = 0o2000;

impl MemoryFs {
    pub(super) fn xattr(&self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        check_name(&node, name)?;
        let state = node.state.read();
        state.xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    pub(super) fn xattr_names(&self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        Ok(self.node(id)?.state.read().xattrs.keys().cloned().collect())
    }

    pub(super) fn change_xattr(
        &self,
        id: NodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        clear_set_group: bool,
    ) -> Result<()> {
        let node = self.node(id)?;
        check_name(&node, name)?;
        let mut state = node.state.write();
        state.check_changeable()?;
        if is_acl(name) {
            set_acl(&mut state, node.kind, name, value)?;
        } else {
            set_plain(&mut state, name, value, mode)?;
        }
        if clear_set_group {
            state.permissions &= !SET_GROUP;
        }
        state.ctime = self.now();
        Ok(())
    }

    pub(super) fn delete_xattr(&self, id: NodeId, name: &[u8]) -> Result<()> {
        let node = self.node(id)?;
        check_name(&node, name)?;
        let mut state = node.state.write();
        state.check_changeable()?;
        state.xattrs.remove(name).ok_or(Errno::ENODATA)?;
        state.ctime = self.now();
        Ok(())
    }
}

fn is_acl(name: &[u8]) -> bool {
    name == acl::ACCESS_NAME || name == acl::DEFAULT_NAME
}

fn check_name(node: &Node, name: &[u8]) -> Result<()> {
    if is_acl(name) {
        return match node.kind {
            NodeKind::Symlink => Err(Errno::EOPNOTSUPP),
            _ => Ok(()),
        };
    }
    let suffix = PREFIXES.iter().find_map(|prefix| name.strip_prefix(*prefix));
    match suffix {
        None => Err(Errno::EOPNOTSUPP),
        Some([]) => Err(Errno::EINVAL),
        Some(_) if name.len() > NAME_BYTES_MAX => Err(Errno::ERANGE),
        Some(_) => Ok(()),
    }
}

fn set_plain(state: &mut State, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let exists = state.xattrs.contains_key(name);
    match mode {
        XattrMode::Create if exists => return Err(Errno::EEXIST),
        XattrMode::Replace if !exists => return Err(Errno::ENODATA),
        _ => state.xattrs.insert(name.to_vec(), value.to_vec()),
    };
    Ok(())
}

/// An access list that says no more than permission bits is kept in these.
fn set_acl(state: &mut State, kind: NodeKind, name: &[u8], value: &[u8]) -> Result<()> {
    let list = Acl::parse(value)?;
    if name == acl::DEFAULT_NAME && kind != NodeKind::Directory {
        return if list.is_some() { Err(Errno::EACCES) } else { Ok(()) };
    }
    let kept = match list {
        Some(list) if name == acl::ACCESS_NAME => {
            state.permissions = list.apply_to(state.permissions);
            (!list.is_mode_only()).then_some(list)
        }
        list => list,
    };
    match kept {
        Some(list) => state.xattrs.insert(name.to_vec(), list.to_bytes()),
        None => state.xattrs.remove(name),
    };
    Ok(())
}
