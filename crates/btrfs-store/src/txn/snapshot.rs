//! Makes new trees: empty ones, and copies of a root that share everything below it. Called by handles.

use std::sync::Arc;

use btrfs_disk::items::RootItem;
use btrfs_disk::{Logical, TreeId};

use crate::Result;
use crate::extent::{Counting, Sign, child_changes};
use crate::quota::Event;
use crate::tree::{RootPtr, Tree};

use super::host::TxnHost;

/// An empty tree; its root item is written by the commit.
pub(super) fn create_tree(host: &TxnHost<'_>, id: TreeId, item: &RootItem) -> Result<Arc<Tree>> {
    let root = Tree::create_root(host, host.engine.trees.forest(), id, None)?;
    if host.engine.quota.is_on() && id.is_subvolume() {
        host.engine.quota.lock().note_event(Event::Made(id));
    }
    adopt(host, id, 0, item, root, false)
}

/// A tree whose root block is a copy of `source`'s, so that both share the children: few of them, or this would take
/// longer the more is in the tree.
pub(super) fn snapshot_tree(host: &TxnHost<'_>, source: &Tree, id: TreeId, item: &RootItem) -> Result<Arc<Tree>> {
    // Quotas suppose that all but the roots is shared.
    if !host.engine.quota.is_on() {
        source.raise(host)?;
    }
    let bytes = source.root_bytes()?;
    let root = Tree::create_root(host, host.engine.trees.forest(), id, Some(&bytes))?;
    let how = (Counting::Normal, Sign::Add);
    child_changes(&bytes, Logical(root.at.0), id, how, &mut |change| host.push(change))?;
    if host.engine.quota.is_on() {
        let copied = Event::Copied { source: source.id(), copy: id, source_root: source.root_ptr().at };
        host.engine.quota.lock().note_event(copied);
    }
    source.set_last_snapshot(host.generation);
    source.note_changed();
    let tree = adopt(host, id, host.generation.0, item, root, true)?;
    tree.set_block_count(source.block_count());
    Ok(tree)
}

fn adopt(
    host: &TxnHost<'_>,
    id: TreeId,
    key_offset: u64,
    item: &RootItem,
    root: RootPtr,
    is_snapshot: bool,
) -> Result<Arc<Tree>> {
    let mut item = *item;
    item.bytenr = root.at.0.into();
    item.level = root.level;
    item.generation = root.generation.0.into();
    item.generation_v2 = root.generation.0.into();
    item.bytes_used = host.engine.nodesize().into();
    if is_snapshot {
        item.last_snapshot = host.generation.0.into();
    }
    let slot = host.engine.trees.adopt(id, key_offset, item);
    slot.tree.note_changed();
    Ok(Arc::clone(&slot.tree))
}
