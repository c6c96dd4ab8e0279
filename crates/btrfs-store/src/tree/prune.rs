//! Taking a tree apart from its end, block by block.

use crate::Result;

use super::balance::empty_root;
use super::block::BlockView;
use super::forest::Tree;
use super::host::Host;
use super::write_path::{Intent, Path, Step, child_for_write, fix_first_key, free, lock_root};
use super::{node, raw};

/// What becomes of the last child of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prune {
    /// It belongs to the tree alone: go on inside it.
    Descend,
    /// Others have it too, and the tree's reference was dropped: only the pointer goes.
    Release,
    /// Not now.
    Stop,
}

/// Takes the last leaf of a tree away, or the last subtree that others share. `decide` sees
/// each block on the way under its lock; `on_leaf` sees the leaf that goes. False when the
/// tree has become an empty leaf.
pub(crate) fn prune_last(
    host: &dyn Host,
    tree: &Tree,
    mut decide: impl FnMut(&BlockView<'_>) -> Result<Prune>,
    mut on_leaf: impl FnMut(&[u8]) -> Result<()>,
) -> Result<bool> {
    let mut path = lock_root(host, tree, Intent::Shrink)?;
    while raw::level(path.leaf_bytes()) > 0 {
        let slot = raw::nritems(path.leaf_bytes()).saturating_sub(1);
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
        raw::set_nritems(&mut path.leaf().block.data, 0);
        return Ok(false);
    }
    if let Some(leaf) = path.steps.pop() {
        free(host, tree, leaf.block)?;
    }
    remove_last_ptr(host, &mut path)?;
    Ok(true)
}

/// Takes the first pointers away of the nodes on one way down from the root: of each as many as `gone` says, at least
/// one less than it has. The way leads through the first that is left. What they lead to is the caller's business.
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

/// Removes the last pointer of the last node of the path; emptied nodes go, an emptied root
/// becomes a leaf.
fn remove_last_ptr(host: &dyn Host, path: &mut Path<'_>) -> Result<()> {
    while let Some(step) = path.steps.last_mut() {
        let slot = step.slot;
        node::remove(&mut step.block.data, slot);
        if raw::nritems(&step.block.data) > 0 {
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
