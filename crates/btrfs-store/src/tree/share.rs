//! Moves items of a full leaf to a neighbour that has room, before the leaf is split.
//!
//! Items inserted between others, as inline data of a file whose inode is already there, would leave half-full leaves
//! all over the tree: a volume of small files held two thirds of what fits. Sharing with a neighbour that has to be
//! copied costs no more than the block that the split would make. Called by `split`.

#![expect(
    clippy::indexing_slicing,
    reason = "steps count from the path itself, slots from blocks that the verifier has seen; a panic is our own bug"
)]

use crate::Result;

use super::block::WriteLocked;
use super::host::Host;
use super::write_path::{Path, Step, child_for_write};
use super::{layout, leaf, node};

/// Moves items of the path's leaf to a neighbour, so that `bytes` fit at its slot; false when no neighbour has the
/// room, and then nothing has moved. The path may lead to the neighbour afterwards.
pub(super) fn share_leaf(host: &dyn Host, path: &mut Path<'_>, bytes: usize) -> Result<bool> {
    // A tree that grows at its end leaves full leaves behind without sharing.
    let is_at_end = path.upper.is_none() && path.slot() == layout::nritems(path.leaf_bytes());
    if is_at_end || path.steps.len() < 2 {
        return Ok(false);
    }
    Ok(share_left(host, path, bytes)? || share_right(host, path, bytes)?)
}

/// Items before the slot move to the left neighbour, as far as there is room; all of them, and the new item behind
/// them, where those alone are not enough.
fn share_left(host: &dyn Host, path: &mut Path<'_>, bytes: usize) -> Result<bool> {
    let (block, slot) = (path.leaf_bytes(), path.slot());
    // A leaf without items has no key for its parent.
    let before = slot.min(layout::nritems(block).saturating_sub(1));
    let wanted = bytes.saturating_sub(leaf::free_space(block));
    let fits_there = before == slot;
    let least =
        if leaf::used_by(block, 0, before) >= wanted { wanted } else { leaf::used_by(block, 0, before) + bytes };
    if least > wanted && !fits_there {
        return Ok(false);
    }
    let Some(mut left) = roomy_neighbour(host, path, Side::Left, least)? else { return Ok(false) };
    let room = leaf::free_space(&left.data);
    let block = path.leaf_bytes();
    let count = (0..=before).take_while(|count| leaf::used_by(block, 0, *count) <= room).last().unwrap_or(0);
    let stays = leaf::used_by(block, 0, count) >= wanted;
    let goes = !stays && fits_there && leaf::used_by(block, 0, slot) + bytes <= room;
    if !stays && !goes {
        return Ok(false);
    }
    let count = if goes { slot } else { count };
    let end = layout::nritems(&left.data);
    let last = path.steps.len() - 1;
    let step = &mut path.steps[last];
    leaf::move_items(&mut step.block.data, 0, count, &mut left.data, end);
    let first = layout::key_at(&step.block.data, 0);
    if goes {
        *step = Step { block: left, slot: end + count };
        path.upper = Some(first);
    } else {
        step.slot -= count;
    }
    let parent = &mut path.steps[last - 1];
    node::set_key(&mut parent.block.data, parent.slot, &first);
    parent.slot -= usize::from(goes);
    Ok(true)
}

/// Items behind the slot move to the right neighbour, as far as there is room; all of them, and the new item before
/// them, where those alone are not enough.
fn share_right(host: &dyn Host, path: &mut Path<'_>, bytes: usize) -> Result<bool> {
    let (block, slot) = (path.leaf_bytes(), path.slot());
    let all = layout::nritems(block);
    let wanted = bytes.saturating_sub(leaf::free_space(block));
    let behind = (all - slot).min(all.saturating_sub(1));
    let fits_there = slot > 0;
    let all_behind = leaf::used_by(block, all - behind, behind);
    let least = if all_behind >= wanted { wanted } else { all_behind + bytes };
    if least > wanted && !fits_there {
        return Ok(false);
    }
    let Some(mut right) = roomy_neighbour(host, path, Side::Right, least)? else { return Ok(false) };
    let room = leaf::free_space(&right.data);
    let block = path.leaf_bytes();
    let used_by_last = |count: usize| leaf::used_by(block, all - count, count);
    let count = (0..=behind).take_while(|count| used_by_last(*count) <= room).last().unwrap_or(0);
    let stays = used_by_last(count) >= wanted;
    let goes = !stays && fits_there && all_behind + bytes <= room;
    if !stays && !goes {
        return Ok(false);
    }
    let count = if goes { behind } else { count };
    let last = path.steps.len() - 1;
    leaf::move_items(&mut path.steps[last].block.data, all - count, count, &mut right.data, 0);
    let first = layout::key_at(&right.data, 0);
    let parent = &mut path.steps[last - 1];
    let place = parent.slot + 1;
    node::set_key(&mut parent.block.data, place, &first);
    if goes {
        parent.slot = place;
        let has_next = place + 1 < layout::nritems(&parent.block.data);
        path.upper = if has_next { Some(layout::key_at(&parent.block.data, place + 1)) } else { path.parent_upper };
        path.steps[last] = Step { block: right, slot: 0 };
    } else {
        path.upper = Some(first);
    }
    Ok(true)
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Left,
    Right,
}

/// A neighbour of the path's leaf under the same parent, which is locked; ready for writing if it has room for `bytes`.
fn roomy_neighbour(host: &dyn Host, path: &mut Path<'_>, side: Side, bytes: usize) -> Result<Option<WriteLocked>> {
    let tree = path.tree;
    let last = path.steps.len() - 1;
    let parent = &mut path.steps[last - 1];
    let slot = match side {
        Side::Left => parent.slot.checked_sub(1),
        Side::Right => Some(parent.slot + 1).filter(|slot| *slot < layout::nritems(&parent.block.data)),
    };
    let Some(slot) = slot else { return Ok(None) };
    let has_room = |block: &[u8]| leaf::free_space(block) >= bytes;
    if !has_room(&tree.forest.read(&tree.child_expect(&parent.block.data, slot))?.data) {
        return Ok(None);
    }
    let block = child_for_write(host, tree, &mut parent.block.data, slot)?;
    // It was unlocked for a moment, and may have grown.
    Ok(has_room(&block.data).then_some(block))
}
