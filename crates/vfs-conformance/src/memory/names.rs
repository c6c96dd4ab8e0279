//! Looks up, lists, makes, links and removes names. Called by `memory` for `FileSystem`.

use std::sync::Arc;

use vfs::acl::{self, Acl};
use vfs::file_system::{
    Caller, DirEntry, DirSink, Entry, Errno, Handle, NewNode, NodeFlags, NodeId, NodeKind, OpenFlags, Result, Time,
};

use super::attributes::inherited_flags;
use super::data::Data;
use super::directory::{BEHIND_DOT, BEHIND_DOT_DOT, Directory, Slot};
use super::node::{Body, Node, State};
use super::{MemoryFs, NAME_BYTES_MAX, Table, find, handle, remove_if_unused};

/// Names that one node may have.
const LINK_COUNT_MAX: u32 = 65_535;
const SET_GROUP: u32 = 0o2000;
const PERMISSION_MASK: u32 = 0o7777;
const SYMLINK_PERMISSIONS: u32 = 0o777;

/// The kind of name to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remove {
    Directory,
    Other,
}

impl MemoryFs {
    pub(super) fn look_up(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let table = self.table.read();
        if name == b"." {
            let node = find(&table, parent)?;
            return match node.attr().nlink {
                0 => Err(Errno::ESTALE),
                _ => Ok(node.entry()),
            };
        }
        let above = {
            let state = find(&table, parent)?.state.read();
            let directory = state.directory()?;
            match name {
                b".." => directory.parent,
                _ => {
                    check_name(name)?;
                    directory.get(name).ok_or(Errno::ENOENT)?.node
                }
            }
        };
        let node = table.get(&above).ok_or(Errno::ENOENT)?;
        Ok(node.entry())
    }

    pub(super) fn list(&self, id: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Result<()> {
        let table = self.table.read();
        let node = find(&table, id)?;
        {
            let state = node.state.read();
            let directory = state.directory()?;
            if list_dots(node, directory, from, with_nodes, sink) {
                list_names(&table, directory, from, with_nodes, sink);
            }
        }
        node.touch(self.atime, self.now());
        Ok(())
    }

    pub(super) fn make_named(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let mut table = self.table.write();
        let directory = Arc::clone(find(&table, parent)?);
        check_is_free(&directory, name)?;
        let now = self.now();
        let node = self.make(caller, &directory, new, now)?;
        add_name(&directory, name, &node, now)?;
        let entry = node.entry();
        table.insert(node.id, Arc::new(node));
        Ok(entry)
    }

    pub(super) fn make_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Result<(Entry, Handle)> {
        let mut table = self.table.write();
        let directory = find(&table, parent)?;
        directory.state.read().directory()?;
        directory.state.read().refuse(NodeFlags::IMMUTABLE)?;
        let node = self.make(caller, directory, new, self.now())?;
        {
            let mut state = node.state.write();
            state.nlink = 0;
            state.is_linkable = !flags.contains(OpenFlags::EXCLUSIVE);
        }
        node.open();
        let entry = node.entry();
        table.insert(node.id, Arc::new(node));
        Ok((entry, handle::new(flags)))
    }

    pub(super) fn add_link(&self, id: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let table = self.table.write();
        let node = find(&table, id)?;
        let directory = find(&table, parent)?;
        check_is_free(directory, name)?;
        let now = self.now();
        {
            let mut state = node.state.write();
            state.check_changeable()?;
            if node.kind == NodeKind::Directory {
                return Err(Errno::EPERM);
            }
            if state.nlink == 0 && !state.is_linkable {
                return Err(Errno::ENOENT);
            }
            if state.nlink >= LINK_COUNT_MAX {
                return Err(Errno::EMLINK);
            }
            state.nlink += 1;
            state.is_linkable = false;
            state.ctime = now;
        }
        add_name(directory, name, node, now)?;
        Ok(node.entry())
    }

    pub(super) fn remove_name(&self, parent: NodeId, name: &[u8], what: Remove) -> Result<()> {
        let mut table = self.table.write();
        let directory = Arc::clone(find(&table, parent)?);
        let slot = name_of(&directory, name)?.ok_or(Errno::ENOENT)?;
        let node = Arc::clone(find(&table, slot.node)?);
        check_can_remove(&directory, &node)?;
        check_kind(&node, what)?;
        let now = self.now();
        take_name(&directory, name, now)?;
        drop_link(&mut table, &node, now);
        Ok(())
    }

    /// A node with one name, which it does not have yet.
    pub(super) fn make(&self, caller: &Caller, parent: &Node, new: &NewNode<'_>, now: Time) -> Result<Node> {
        let body = match new.kind {
            NodeKind::File => Body::File(Data::new(Arc::clone(&self.space))),
            NodeKind::Directory => Body::Directory(Directory::new(parent.id)),
            NodeKind::Symlink => Body::Symlink(new.target.to_vec()),
            _ => Body::Special,
        };
        let mut state = State::new(body, now);
        if matches!(new.kind, NodeKind::CharDevice | NodeKind::BlockDevice) {
            state.rdev = new.rdev;
        }
        inherit(&mut state, caller, &parent.state.read(), new)?;
        Ok(Node::new(self.new_node_id(), new.kind, state))
    }
}

/// Owner, permissions, lists and flags.
fn inherit(state: &mut State, caller: &Caller, parent: &State, new: &NewNode<'_>) -> Result<()> {
    state.uid = caller.uid;
    state.gid = caller.gid;
    let mut permissions = new.permissions & PERMISSION_MASK;
    if parent.permissions & SET_GROUP != 0 {
        state.gid = parent.gid;
        if new.kind == NodeKind::Directory {
            permissions |= SET_GROUP;
        }
    }
    state.flags = inherited_flags(parent.flags, new.kind);
    if new.kind == NodeKind::Symlink {
        state.permissions = SYMLINK_PERMISSIONS;
        return Ok(());
    }
    let default = parent.xattrs.get(acl::DEFAULT_NAME);
    let list = default.map(|value| Acl::parse(value)).transpose()?;
    let (Some(Some(list)), Some(default)) = (list, default) else {
        state.permissions = acl::without_default(permissions, new.umask);
        return Ok(());
    };
    let inherited = list.inherit(permissions);
    state.permissions = inherited.permissions;
    if let Some(access) = inherited.access {
        let value = access.to_bytes();
        state.xattrs.insert(acl::ACCESS_NAME.to_vec(), value);
    }
    if new.kind == NodeKind::Directory {
        let name = acl::DEFAULT_NAME.to_vec();
        state.xattrs.insert(name, default.clone());
    }
    Ok(())
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Where a name leads; it may be free.
pub(super) fn name_of(directory: &Node, name: &[u8]) -> Result<Option<Slot>> {
    let state = directory.state.read();
    let names = state.directory()?;
    check_name(name)?;
    Ok(names.get(name))
}

fn check_is_free(directory: &Node, name: &[u8]) -> Result<()> {
    if matches!(name, b"." | b"..") || name_of(directory, name)?.is_some() {
        return Err(Errno::EEXIST);
    }
    check_can_add(directory)
}

pub(super) fn check_can_add(directory: &Node) -> Result<()> {
    let state = directory.state.read();
    if state.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    state.refuse(NodeFlags::IMMUTABLE)
}

pub(super) fn check_can_remove(directory: &Node, node: &Node) -> Result<()> {
    directory.state.read().check_changeable()?;
    node.state.read().check_changeable()
}

fn check_kind(node: &Node, what: Remove) -> Result<()> {
    match (what, &node.state.read().body) {
        (Remove::Other, Body::Directory(_)) => Err(Errno::EISDIR),
        (Remove::Directory, Body::Directory(names)) if !names.is_empty() => Err(Errno::ENOTEMPTY),
        (Remove::Other, _) | (Remove::Directory, Body::Directory(_)) => Ok(()),
        (Remove::Directory, _) => Err(Errno::ENOTDIR),
    }
}

pub(super) fn add_name(directory: &Node, name: &[u8], node: &Node, now: Time) -> Result<()> {
    let mut state = directory.state.write();
    state.directory_mut()?.add(name, node.id, node.kind);
    state.changed(now);
    Ok(())
}

pub(super) fn take_name(directory: &Node, name: &[u8], now: Time) -> Result<()> {
    let mut state = directory.state.write();
    state.directory_mut()?.remove(name);
    state.changed(now);
    Ok(())
}

/// One name less leads to the node.
pub(super) fn drop_link(table: &mut Table, node: &Node, now: Time) {
    {
        let mut state = node.state.write();
        state.nlink -= 1;
        state.ctime = now;
    }
    remove_if_unused(table, node);
}

/// Lists `.` and `..`; false when the sink is full.
fn list_dots(node: &Node, directory: &Directory, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> bool {
    let dots: [(&[u8], NodeId, u64); 2] = [(b".", node.id, BEHIND_DOT), (b"..", directory.parent, BEHIND_DOT_DOT)];
    dots.iter().filter(|dot| dot.2 > from).all(|dot| {
        let entry = DirEntry { name: dot.0, ino: dot.1.0, kind: NodeKind::Directory, next: dot.2 };
        if with_nodes { sink.add_with_node(&entry, None) } else { sink.add(&entry) }
    })
}

fn list_names(table: &Table, directory: &Directory, from: u64, with_nodes: bool, sink: &mut dyn DirSink) {
    for (place, name, slot) in directory.behind(from.max(BEHIND_DOT_DOT)) {
        let entry = DirEntry { name, ino: slot.node.0, kind: slot.kind, next: place };
        let is_taken = match table.get(&slot.node).filter(|_| with_nodes) {
            Some(node) => {
                let taken = sink.add_with_node(&entry, Some(&node.entry()));
                if !taken {
                    node.drop_references(1);
                }
                taken
            }
            None => sink.add(&entry),
        };
        if !is_taken {
            break;
        }
    }
}
