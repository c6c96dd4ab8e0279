//! Frees empty blocks after a removal, merges small ones with a neighbour, and lowers the root. Called by edits that
//! remove items.

#![expect(
    clippy::indexing_slicing,
    reason = "steps count from the path itself, slots from blocks that the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::Generation;

use crate::Result;

use super::block::WriteLocked;
use super::forest::RootPtr;
use super::host::Host;
use super::write_path::{Path, Step, child_for_write, create, fix_first_key, free};
use super::{layout, leaf, node};

/// Puts the path's leaf in order after items were removed from `slot` on.
pub(crate) fn after_remove(host: &dyn Host, path: &mut Path<'_>, slot: usize) -> Result<()> {
    let last = path.steps.len() - 1;
    if last == 0 {
        return Ok(());
    }
    if layout::nritems(path.leaf_bytes()) == 0 {
        let step = path.steps.pop().expect("a path ends in a leaf");
        free(host, path.tree, step.block)?;
        return remove_ptr(host, path, last - 1);
    }
    if slot == 0 {
        fix_first_key(path, last);
    }
    if leaf::used(path.leaf_bytes()) < layout::capacity(path.leaf_bytes()) / 3 {
        merge_leaf(host, path)?;
    }
    Ok(())
}

/// Removes the pointer at the slot of the node at `step`, and puts that node in order.
fn remove_ptr(host: &dyn Host, path: &mut Path<'_>, step: usize) -> Result<()> {
    path.steps.truncate(step + 1);
    let slot = path.steps[step].slot;
    node::remove(&mut path.steps[step].block.data, slot);
    let count = layout::nritems(&path.steps[step].block.data);
    let is_root = step == 0 && path.root.is_some();
    if count == 0 && is_root {
        return empty_root(host, path);
    }
    if count == 0 && step > 0 {
        let gone = path.steps.pop().expect("the path has this step");
        free(host, path.tree, gone.block)?;
        return remove_ptr(host, path, step - 1);
    }
    if slot == 0 {
        fix_first_key(path, step);
    }
    if is_root {
        return if count == 1 { lower_root(host, path) } else { Ok(()) };
    }
    // A root that has one child was put there for a snapshot (`Tree::raise`); it goes once that child has only one,
    // too.
    if count == 1 && step == 1 && path.root.is_some() && layout::nritems(&path.steps[0].block.data) == 1 {
        lower_root(host, path)?;
        return lower_root(host, path);
    }
    let max = node::max_ptrs(&path.steps[step].block.data);
    if step > 0 && count < max / 4 { merge_node(host, path, step) } else { Ok(()) }
}

/// The last item was removed: an empty leaf takes the root's place. (A new block, since the extent tree records the
/// level.)
pub(crate) fn empty_root(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    let top = path.steps.remove(0);
    let leaf = create(host, path.tree, 0)?;
    if let Some(root) = path.root.as_mut() {
        **root = RootPtr { at: leaf.at, level: 0, generation: host.generation() };
    }
    path.steps.insert(0, Step { block: leaf, slot: 0 });
    path.tree.note_changed();
    free(host, path.tree, top.block)
}

/// Replaces a root by its only child.
fn lower_root(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    let top = path.steps.remove(0);
    let level = layout::level(&top.block.data);
    let (at, generation) = node::child(&top.block.data, 0);
    if let Some(root) = path.root.as_mut() {
        **root = RootPtr { at, level: level - 1, generation: Generation(generation.0) };
    }
    path.tree.note_changed();
    free(host, path.tree, top.block)
}

/// A neighbour of the block at `step` that can take the contents of both.
enum Neighbour {
    Left(WriteLocked),
    Right(WriteLocked),
}

/// Joins the path's leaf with a neighbour where an eighth stays free, so that the next insert does not split it again.
fn merge_leaf(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    let last = path.steps.len() - 1;
    let used = leaf::used(path.leaf_bytes());
    let capacity = layout::capacity(path.leaf_bytes());
    let Some(neighbour) = neighbour(host, path, last, |other| leaf::used(other) + used <= capacity - capacity / 8)
    else {
        return Ok(());
    };
    let mut step = path.steps.pop().expect("a path ends in a leaf");
    let count = layout::nritems(&step.block.data);
    let parent = &mut path.steps[last - 1];
    match neighbour {
        Neighbour::Left(mut left) => {
            let end = layout::nritems(&left.data);
            leaf::move_items(&mut step.block.data, 0, count, &mut left.data, end);
        }
        Neighbour::Right(mut right) => {
            node::set_key(&mut parent.block.data, parent.slot + 1, &layout::key_at(&step.block.data, 0));
            leaf::move_items(&mut step.block.data, 0, count, &mut right.data, 0);
        }
    }
    free(host, path.tree, step.block)?;
    remove_ptr(host, path, last - 1)
}

fn merge_node(host: &dyn Host, path: &mut Path<'_>, step: usize) -> Result<()> {
    let count = layout::nritems(&path.steps[step].block.data);
    let max = node::max_ptrs(&path.steps[step].block.data);
    let Some(neighbour) = neighbour(host, path, step, |other| layout::nritems(other) + count <= max) else {
        return Ok(());
    };
    let mut small = path.steps.pop().expect("the path has this step");
    let parent = &mut path.steps[step - 1];
    match neighbour {
        Neighbour::Left(mut left) => {
            let end = layout::nritems(&left.data);
            node::move_ptrs(&mut small.block.data, 0, count, &mut left.data, end);
        }
        Neighbour::Right(mut right) => {
            node::set_key(&mut parent.block.data, parent.slot + 1, &layout::key_at(&small.block.data, 0));
            node::move_ptrs(&mut small.block.data, 0, count, &mut right.data, 0);
        }
    }
    free(host, path.tree, small.block)?;
    remove_ptr(host, path, step - 1)
}

/// The left or right neighbour under the same parent, if `fits`, locked for writing. One that cannot be read or copied
/// is skipped: the removal is done, and joining blocks can wait.
fn neighbour(host: &dyn Host, path: &mut Path<'_>, step: usize, fits: impl Fn(&[u8]) -> bool) -> Option<Neighbour> {
    let tree = path.tree;
    let parent = &mut path.steps[step - 1];
    let slot = parent.slot;
    let candidates = [slot.checked_sub(1), (slot + 1 < layout::nritems(&parent.block.data)).then_some(slot + 1)];
    for candidate in candidates.into_iter().flatten() {
        let expect = tree.child_expect(&parent.block.data, candidate);
        if !tree.forest.read(&expect).is_ok_and(|block| fits(&block.data)) {
            continue;
        }
        let Ok(block) = child_for_write(host, tree, &mut parent.block.data, candidate) else {
            continue;
        };
        // It was unlocked for a moment, and may have grown.
        if fits(&block.data) {
            return Some(if candidate < slot { Neighbour::Left(block) } else { Neighbour::Right(block) });
        }
    }
    None
}
