//! Takes a tree apart from its end, block by block. Called by `txn/drop_tree` and `txn/drop_resume`.

use crate::Result;

use super::balance::empty_root;
use super::block::BlockView;
use super::forest::Tree;
use super::host::Host;
use super::write_path::{Intent, Path, Step, child_for_write, fix_first_key, free, lock_root};
use super::{layout, node};

/// The decision about the last child of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prune {
    /// It belongs to the tree alone: continue inside it.
    Descend,
    /// Other trees have it too, and the tree's reference was dropped: only the pointer is removed.
    Release,
    /// Stop for now.
    Stop,
}

/// Removes the last leaf of a tree, or the last subtree that other trees share. `decide` sees each block on the way
/// under its lock; `on_leaf` sees the removed leaf. False when the tree has become an empty leaf.
pub(crate) fn prune_last(
    host: &dyn Host,
    tree: &Tree,
    mut decide: impl FnMut(&BlockView<'_>) -> Result<Prune>,
    mut on_leaf: impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let mut path = lock_root(host, tree, Intent::Shrink)?;
    while layout::level(path.leaf_bytes()) > 0 {
        let slot = layout::nritems(path.leaf_bytes()).saturating_sub(1);
        path.leaf().slot = slot;
        let expect = tree.child_expect(path.leaf_bytes(), slot);
        let choice = {
            let child = tree.forest().read(&expect)?;
            decide(&BlockView::new(&child.data))?
        };
        match choice {
            Prune::Stop => return Ok(true),
            Prune::Release => return remove_last_ptr(host, &mut path).map(|()| true),
            Prune::Descend => {
                let child = child_for_write(host, tree, &mut path.leaf().block.data, slot)?;
                path.steps.push(Step { block: child, slot: 0 });
            }
        }
    }
    on_leaf(path.leaf_bytes())?;
    if path.steps.len() == 1 {
        layout::set_nritems(&mut path.leaf().block.data, 0);
        return Ok(false);
    }
    if let Some(leaf) = path.steps.pop() {
        free(host, tree, leaf.block)?;
    }
    remove_last_ptr(host, &mut path)?;
    Ok(true)
}

/// Removes the first pointers of the nodes on one way down from the root: of each node as many as `gone` has, which
/// leaves at least one. The way leads through the first remaining pointer. The caller accounts for the blocks that the
/// removed pointers led to.
pub(crate) fn cut_first(host: &dyn Host, tree: &Tree, gone: &[usize]) -> Result<()> {
    let mut path = lock_root(host, tree, Intent::Shrink)?;
    for (depth, count) in gone.iter().enumerate() {
        if depth > 0 {
            let child = child_for_write(host, tree, &mut path.leaf().block.data, 0)?;
            path.steps.push(Step { block: child, slot: 0 });
        }
        let block = &mut path.leaf().block.data;
        for _ in 0..*count {
            node::remove(block, 0);
        }
    }
    let last = path.steps.len() - 1;
    fix_first_key(&mut path, last);
    Ok(())
}

/// Removes the last pointer of the last node of the path; emptied nodes are freed, an emptied root
/// becomes a leaf.
fn remove_last_ptr(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    while let Some(step) = path.steps.last_mut() {
        let slot = step.slot;
        node::remove(&mut step.block.data, slot);
        if layout::nritems(&step.block.data) > 0 {
            return Ok(());
        }
        if path.steps.len() == 1 {
            return empty_root(host, path);
        }
        if let Some(step) = path.steps.pop() {
            free(host, path.tree, step.block)?;
        }
    }
    Ok(())
}
