//! Makes room: splits leaves, nodes and the root on a locked path. Called by edits that insert or grow items.

#![expect(
    clippy::indexing_slicing,
    reason = "steps count from the path itself, slots from blocks that the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::Key;

use crate::Result;

use super::host::Host;
use super::node::Ptr;
use super::root::put_root_above;
use super::share::share_leaf;
use super::write_path::{Path, Step, create};
use super::{layout, leaf, node};

/// Shares the path's leaf with a neighbour or splits it, until `bytes` fit at its slot, where `key` will be inserted.
pub(crate) fn make_room(host: &dyn Host, path: &mut Path<'_>, key: &Key, bytes: usize) -> Result<()> {
    while leaf::free_space(path.leaf_bytes()) < bytes {
        if share_leaf(host, path, bytes)? {
            continue;
        }
        let (slot, count) = (path.slot(), layout::nritems(path.leaf_bytes()));
        if slot == count {
            // Sequential insertion: the full leaf stays full.
            append_leaf(host, path, key)?;
        } else {
            let middle = if slot == 0 { 0 } else { leaf::middle(path.leaf_bytes()) };
            split_leaf(host, path, middle, bytes)?;
        }
    }
    Ok(())
}

/// Splits the path's leaf, which has two items or more. The caller has to search again: the path may lead to the wrong
/// half.
pub(crate) fn halve(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    let middle = leaf::middle(path.leaf_bytes());
    split_leaf(host, path, middle, 0)
}

/// A new empty leaf to the right of the path's, for `key`; the path moves there.
fn append_leaf(host: &dyn Host, path: &mut Path<'_>, key: &Key) -> Result<()> {
    ensure_parent(host, path, path.steps.len() - 1)?;
    let right = create(host, path.tree, 0)?;
    let last = path.steps.len() - 1;
    let ptr = Ptr { key: *key, at: right.at, generation: host.generation() };
    insert_ptr(host, path, last, &ptr)?;
    go_right(path, right, 0);
    Ok(())
}

/// Moves the items from `middle` on to a new leaf to the right; the path goes to the side
/// where the new item belongs, preferring the one with room.
fn split_leaf(host: &dyn Host, path: &mut Path<'_>, middle: usize, bytes: usize) -> Result<()> {
    ensure_parent(host, path, path.steps.len() - 1)?;
    let mut right = create(host, path.tree, 0)?;
    let Step { block, slot } = path.leaf();
    let slot = *slot;
    let moved = layout::nritems(&block.data) - middle;
    leaf::move_items(&mut block.data, middle, moved, &mut right.data, 0);
    let goes_left = slot < middle || (slot == middle && leaf::free_space(&block.data) >= bytes);
    debug_assert!(layout::nritems(&right.data) > 0, "a half has items, or its parent could not name it");
    let first = layout::key_at(&right.data, 0);
    let ptr = Ptr { key: first, at: right.at, generation: host.generation() };
    let last = path.steps.len() - 1;
    insert_ptr(host, path, last, &ptr)?;
    // An insertion between two items that both halves have no room for is an append to
    // the left half, which then gets a leaf of its own.
    if goes_left || (slot == middle && leaf::free_space(&right.data) < bytes) {
        path.upper = Some(first);
    } else {
        go_right(path, right, slot - middle);
    }
    Ok(())
}

fn go_right(path: &mut Path<'_>, right: super::block::WriteLocked, slot: usize) {
    let last = path.steps.len() - 1;
    path.steps[last - 1].slot += 1;
    path.steps[last] = Step { block: right, slot };
}

/// Gives the block at `step` a parent: when it is the root, the tree grows by a level.
fn ensure_parent(host: &dyn Host, path: &mut Path<'_>, step: usize) -> Result<()> {
    if step > 0 {
        return Ok(());
    }
    let old = &path.steps[0].block.data;
    let first = if layout::nritems(old) > 0 { layout::key_at(old, 0) } else { Key::MIN };
    let root = path.root.as_mut().expect("the root stays locked while it may split");
    let top = put_root_above(host, path.tree, root, first)?;
    path.steps.insert(0, Step { block: top, slot: 0 });
    Ok(())
}

/// Inserts a pointer behind the one that leads to the block at `child_step`.
fn insert_ptr(host: &dyn Host, path: &mut Path<'_>, child_step: usize, ptr: &Ptr) -> Result<()> {
    let mut parent = child_step - 1;
    let block = &path.steps[parent].block.data;
    if layout::nritems(block) >= node::max_ptrs(block) {
        let before = path.steps.len();
        split_node(host, path, parent)?;
        // The tree may have grown above.
        parent += path.steps.len() - before;
    }
    let Step { block, slot } = &mut path.steps[parent];
    node::insert(&mut block.data, *slot + 1, ptr);
    Ok(())
}

/// Splits a full node in the middle; the path goes to the half that its slot is in.
fn split_node(host: &dyn Host, path: &mut Path<'_>, step: usize) -> Result<()> {
    let before = path.steps.len();
    ensure_parent(host, path, step)?;
    let step = step + path.steps.len() - before;
    let level = layout::level(&path.steps[step].block.data);
    let mut right = create(host, path.tree, level)?;
    let Step { block, slot } = &mut path.steps[step];
    let slot = *slot;
    let count = layout::nritems(&block.data);
    // Sequential insertion leaves full nodes behind.
    let middle = if slot + 1 == count { count - 1 } else { count / 2 };
    debug_assert!(0 < middle && middle < count, "both halves have pointers");
    node::move_ptrs(&mut block.data, middle, count - middle, &mut right.data, 0);
    let ptr = Ptr { key: layout::key_at(&right.data, 0), at: right.at, generation: host.generation() };
    let before = path.steps.len();
    insert_ptr(host, path, step, &ptr)?;
    let step = step + path.steps.len() - before;
    if slot >= middle {
        path.steps[step - 1].slot += 1;
        path.steps[step] = Step { block: right, slot: slot - middle };
    }
    Ok(())
}
