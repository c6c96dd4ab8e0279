//! Moves names: rename with its flags. Called by `memory` for `FileSystem`.

use std::sync::Arc;

use vfs::file_system::{Caller, Errno, NewNode, NodeId, NodeKind, RenameFlags, Result, Time};

use super::names::{add_name, check_can_add, check_can_remove, drop_link, name_of, take_name};
use super::node::Node;
use super::{MemoryFs, Table, find};

/// A verified rename, which can no longer fail.
struct Move<'a> {
    source: (Arc<Node>, &'a [u8]),
    target: (Arc<Node>, &'a [u8]),
    node: Arc<Node>,
    /// The node of the target's name.
    other: Option<Arc<Node>>,
}

impl MemoryFs {
    pub(super) fn move_name(
        &self,
        caller: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        check_flags(flags)?;
        let mut table = self.table.write();
        let Some(change) = plan(&table, from, to, flags)? else {
            return Ok(());
        };
        let now = self.now();
        if flags.contains(RenameFlags::EXCHANGE) {
            return change.exchange(now);
        }
        let whiteout = if flags.contains(RenameFlags::WHITEOUT) {
            let kind = NodeKind::CharDevice;
            let new = NewNode { kind, ..NewNode::default() };
            Some(self.make(caller, &change.source.0, &new, now)?)
        } else {
            None
        };
        change.replace(&mut table, whiteout, now)
    }
}

fn check_flags(flags: RenameFlags) -> Result<()> {
    let others = RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT;
    if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(others) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Checks everything; `None` when both names lead to one node and nothing is to be done.
fn plan<'a>(
    table: &Table,
    from: (NodeId, &'a [u8]),
    to: (NodeId, &'a [u8]),
    flags: RenameFlags,
) -> Result<Option<Move<'a>>> {
    let (source, target) = (find(table, from.0)?, find(table, to.0)?);
    let slot = name_of(source, from.1)?;
    let other = name_of(target, to.1)?;
    let node = find(table, slot.ok_or(Errno::ENOENT)?.node)?;
    if other.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
        return Err(Errno::EEXIST);
    }
    let exchanges = flags.contains(RenameFlags::EXCHANGE);
    if other.is_none() && exchanges {
        return Err(Errno::ENOENT);
    }
    if is_above(table, node.id, target)? {
        return Err(Errno::EINVAL);
    }
    let other = other.map(|other| find(table, other.node)).transpose()?;
    if let Some(other) = other
        && is_above(table, other.id, source)?
    {
        return Err(if exchanges { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if other.is_some_and(|other| other.id == node.id) {
        return Ok(None);
    }
    check_can_remove(source, node)?;
    match other {
        None => check_can_add(target)?,
        Some(other) => check_can_remove(target, other)?,
    }
    if let Some(other) = other.filter(|_| !exchanges) {
        check_can_replace(node, other)?;
    }
    Ok(Some(Move {
        source: (Arc::clone(source), from.1),
        target: (Arc::clone(target), to.1),
        node: Arc::clone(node),
        other: other.cloned(),
    }))
}

/// True when `upper` is `directory` or one of those above it.
fn is_above(table: &Table, upper: NodeId, directory: &Node) -> Result<bool> {
    let mut id = directory.id;
    loop {
        if id == upper {
            return Ok(true);
        }
        let Some(node) = table.get(&id) else {
            return Ok(false);
        };
        let parent = node.state.read().directory()?.parent;
        if parent == id {
            return Ok(false);
        }
        id = parent;
    }
}

fn check_can_replace(node: &Node, other: &Node) -> Result<()> {
    match (node.kind, other.kind) {
        (NodeKind::Directory, NodeKind::Directory) => {
            if other.state.read().directory()?.is_empty() {
                Ok(())
            } else {
                Err(Errno::ENOTEMPTY)
            }
        }
        (NodeKind::Directory, _) => Err(Errno::ENOTDIR),
        (_, NodeKind::Directory) => Err(Errno::EISDIR),
        _ => Ok(()),
    }
}

impl Move<'_> {
    fn replace(&self, table: &mut Table, whiteout: Option<Node>, now: Time) -> Result<()> {
        take_name(&self.source.0, self.source.1, now)?;
        if let Some(other) = &self.other {
            take_name(&self.target.0, self.target.1, now)?;
            drop_link(table, other, now);
        }
        settle(&self.node, &self.target, now)?;
        if let Some(whiteout) = whiteout {
            add_name(&self.source.0, self.source.1, &whiteout, now)?;
            table.insert(whiteout.id, Arc::new(whiteout));
        }
        Ok(())
    }

    fn exchange(&self, now: Time) -> Result<()> {
        let other = self.other.as_ref().ok_or(Errno::ENOENT)?;
        take_name(&self.source.0, self.source.1, now)?;
        take_name(&self.target.0, self.target.1, now)?;
        settle(&self.node, &self.target, now)?;
        settle(other, &self.source, now)
    }
}

/// Gives a node the name that was made free for it.
fn settle(node: &Node, place: &(Arc<Node>, &[u8]), now: Time) -> Result<()> {
    add_name(&place.0, place.1, node, now)?;
    let mut state = node.state.write();
    state.ctime = now;
    if let Ok(directory) = state.directory_mut() {
        directory.parent = place.0.id;
    }
    Ok(())
}
