//! Removes the tree of a deleted subvolume, in steps that can be resumed.
//!
//! Each step removes the last leaf or the last subtree that other trees share, by ordinary edits, so that the rest is a
//! valid tree after every commit and a crash loses nothing but time. A shared subtree that is counted in the name of
//! the deleted tree is first changed to counting by address, from the bottom up: below a block that counts by address
//! all blocks do. Called by `Store` for one step of a deletion.

use std::cell::Cell;
use std::sync::Arc;

use btrfs_disk::key::item_type::{ORPHAN_ITEM, ROOT_ITEM};
use btrfs_disk::{Key, TreeId};

use crate::Result;
use crate::extent::{Counting, DropPlan, RefChange, Sign, child_changes, convert_changes, on_drop};
use crate::quota::Event;
use crate::tree::{BlockView, Host, Prune, Tree, children, prune_last};

use super::drop_resume::cut_dropped;
use super::handle::Txn;
use super::host::TxnHost;

/// Object id of orphan items in the root tree (`-5`).
const ORPHAN_OBJECTID: u64 = 0u64.wrapping_sub(5);

/// How far the removal of a deleted subvolume's tree has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropProgress {
    /// Call again.
    More,
    /// The tree and its root item are gone.
    Done,
}

/// Takes up to `block_budget` blocks away from the tree `id`.
pub(crate) fn step(txn: &Txn, id: TreeId, block_budget: u32) -> Result<DropProgress> {
    let slot = txn.engine.trees.slot(id)?;
    txn.engine.pending.staged.forget_tree(id);
    let (progress, level) = {
        let item = slot.item.lock();
        (item.drop_progress.get(), item.drop_level)
    };
    if progress != Key::MIN {
        // Another program began this deletion.
        cut_dropped(txn, &slot.tree, &progress, level)?;
        return Ok(DropProgress::More);
    }
    txn.track(take_away(txn, &slot.tree, block_budget))
}

fn take_away(txn: &Txn, tree: &Arc<Tree>, block_budget: u32) -> Result<DropProgress> {
    let host = txn.host();
    let budget = Cell::new(block_budget);
    while budget.get() > 0 {
        budget.set(budget.get() - 1);
        let decide = |child: &BlockView<'_>| decide(&host, tree, child, &budget);
        let on_leaf = |leaf: &[u8]| {
            let how = (Counting::Normal, Sign::Drop);
            child_changes(leaf, BlockView::new(leaf).at, tree.id(), how, &mut |change| host.push(change))
                .inspect_err(|error| txn.engine.health.poison(error))
        };
        if !prune_last(&host, tree, decide, on_leaf)? {
            remove_root(txn, &host, tree)?;
            return Ok(DropProgress::Done);
        }
    }
    Ok(DropProgress::More)
}

/// The decision about a child: called under its lock, so that no thread copies it meanwhile.
fn decide(host: &TxnHost<'_>, tree: &Tree, child: &BlockView<'_>, budget: &Cell<u32>) -> Result<Prune> {
    match on_drop(&host.state_of(tree, child)?) {
        DropPlan::Descend(_) => return Ok(Prune::Descend),
        DropPlan::Convert if !convert(host, tree, child, budget)? => return Ok(Prune::Stop),
        DropPlan::Convert | DropPlan::Release => {}
    }
    host.note_subtree(tree, child)?;
    host.push(RefChange::DropTree { at: child.at, level: child.level, owner: tree.id(), parent: None })?;
    Ok(Prune::Release)
}

/// Changes a subtree from counting in the tree's name to counting by address; false when
/// the budget ran out before the top was reached.
fn convert(host: &TxnHost<'_>, tree: &Tree, block: &BlockView<'_>, budget: &Cell<u32>) -> Result<bool> {
    for (key, at, generation) in children(block.bytes) {
        let child = tree.read_for_walk(at, block.level.saturating_sub(1), generation, key)?;
        let view = BlockView::new(&child.data);
        let is_counted_here = view.owner == tree.id() && !host.state_of(tree, &view)?.full_backref;
        if is_counted_here && !convert(host, tree, &view, budget)? {
            return Ok(false);
        }
    }
    if budget.get() == 0 {
        return Ok(false);
    }
    budget.set(budget.get() - 1);
    convert_changes(block.bytes, block.at, tree.id(), &mut |change| host.push(change))?;
    Ok(true)
}

/// The tree is empty: removes its last block and its root item.
fn remove_root(txn: &Txn, host: &TxnHost<'_>, tree: &Tree) -> Result<()> {
    let root_tree = &txn.engine.trees.root_tree;
    txn.remove(root_tree, &Key::new(ORPHAN_OBJECTID, ORPHAN_ITEM, tree.id().0))?;
    remove_tree(txn, host, tree)
}

/// Removes a tree that is not a subvolume's.
pub(crate) fn remove_whole(txn: &Txn, tree: &Tree) -> Result<()> {
    txn.require_commit();
    txn.remove_range(tree, &Key::MIN, &Key::MAX, |_, _| ())?;
    txn.track(remove_tree(txn, &txn.host(), tree))
}

/// Removes the last block of a tree, and its root item.
fn remove_tree(txn: &Txn, host: &TxnHost<'_>, tree: &Tree) -> Result<()> {
    let bytes = tree.root_bytes()?;
    let view = BlockView::new(&bytes);
    let slot = txn.engine.trees.slot(tree.id())?;
    let root_tree = &txn.engine.trees.root_tree;
    txn.remove(root_tree, &Key::new(tree.id().0, ROOT_ITEM, slot.key_offset))?;
    // After the steps that can fail without having changed anything.
    host.block_freed(tree, &view)?;
    txn.engine.trees.forget(tree.id());
    if txn.engine.quota.is_on() && tree.id().is_subvolume() {
        txn.engine.quota.lock().note_event(Event::Gone(tree.id()));
    }
    Ok(())
}
