//! Resumes deletions of subvolumes that the kernel began. Called by `drop_tree`.
//!
//! The kernel takes a tree apart from its beginning, drops the references of blocks and leaves the pointers to them:
//! the root item has the place it reached (`drop_progress`, and the level of the node that this is a key of). Pointers
//! before that place lead to nothing. Behind it the references are complete, but for those of the last round, which the
//! kernel may have dropped before it updated the root item. Here the dead pointers are cut off in one transaction; the
//! rest is an ordinary tree.
//!
//! The kernel changes a shared subtree to counting by address from its top down, so that blocks below a changed one may
//! be unchanged: they are searched for where that can be, which is on the first way.
//!
//! Failure: `Corrupt` for a place that does not exist in the tree, and nothing is changed.

use std::sync::Arc;

use btrfs_disk::{At, Corrupt, Detail, Generation, Key, Logical};

use crate::extent::{RefKey, backrefs, convert_changes};
use crate::tree::{Block, BlockView, Bytes, Host, Tree, children, cut_first, layout, node};
use crate::{Error, Result};

use super::handle::Txn;
use super::host::TxnHost;

/// The first way down on which pointers are left.
#[derive(Debug, Default)]
struct Way {
    /// Nodes from the root on, and how many of the first pointers of each lead to nothing.
    nodes: Vec<(Logical, usize)>,
    /// A shared block at its end that is counted by address already.
    converted: Option<Box<[u8]>>,
}

/// Makes an ordinary tree of one that the kernel has dropped up to `progress`, at `level`.
pub(super) fn cut_dropped(txn: &Txn, tree: &Arc<Tree>, progress: &Key, level: u8) -> Result<()> {
    let host = txn.host();
    let way = find_way(&host, tree, progress, level)?;
    txn.require_commit();
    let changed = cut(txn, &host, tree, &way);
    changed.inspect_err(|error| txn.engine.health.poison(error))
}

fn cut(txn: &Txn, host: &TxnHost<'_>, tree: &Arc<Tree>, way: &Way) -> Result<()> {
    if let Some(bytes) = &way.converted {
        convert_rest(host, tree, &BlockView::new(bytes))?;
    }
    // The nodes down to the last one with dead pointers are copied; nothing below changes.
    let depth = way.nodes.iter().rposition(|(_, gone)| *gone > 0).map_or(0, |last| last + 1);
    let nodes = way.nodes.get(..depth).unwrap_or_default();
    if !nodes.is_empty() {
        let gone: Vec<usize> = nodes.iter().map(|(_, gone)| *gone).collect();
        cut_first(&WithoutDead { host, nodes }, tree, &gone)?;
    }
    txn.update_root_item(tree.id(), |item| {
        item.drop_progress = Key::MIN.into();
        item.drop_level = 0;
    })
}

fn find_way(host: &TxnHost<'_>, tree: &Tree, progress: &Key, level: u8) -> Result<Way> {
    let mut way = Way::default();
    let mut bytes: Box<[u8]> = tree.root_bytes()?;
    let root_level = BlockView::new(&bytes).level;
    if level == 0 || level > root_level {
        return Err(misplaced(tree, Detail::Range(1, u64::from(root_level)), level.into()));
    }
    loop {
        let view = BlockView::new(&bytes);
        let pointers: Vec<_> = children(&bytes).collect();
        let first = if view.level >= level { layout::child_slot(&bytes, progress) } else { 0 };
        let mut gone = first;
        if view.level <= level {
            while let Some((_, at, _)) = pointers.get(gone) {
                if is_held(host, tree, *at, &view)? {
                    break;
                }
                gone += 1;
            }
        }
        let Some((key, at, generation)) = pointers.get(gone).copied() else {
            return Err(misplaced(tree, Detail::Text("a pointer that leads somewhere"), view.level.into()));
        };
        way.nodes.push((view.at, gone));
        let child = tree.read_for_walk(at, view.level.saturating_sub(1), generation, key)?;
        let below = BlockView::new(&child.data);
        let state = host.state_of(tree, &below)?;
        if state.refs > 1 {
            if view.level > level {
                return Err(misplaced(tree, Detail::Text("unshared blocks"), state.refs));
            }
            way.converted = (state.full_backref && state.is_owned).then(|| child.data.clone());
            return Ok(way);
        }
        if below.level == 0 {
            return Ok(way);
        }
        let next = child.data.clone();
        drop(child);
        bytes = next;
    }
}

/// Whether the tree still refers to a block, by its name or by the address of the block that points there.
fn is_held(host: &TxnHost<'_>, tree: &Tree, at: Logical, parent: &BlockView<'_>) -> Result<bool> {
    let engine = host.engine;
    let holders = backrefs(&engine.core.extent, &engine.pending.refs, at)?;
    Ok(holders.iter().any(|known| match known.holder {
        RefKey::TreeRef { owner } => owner == tree.id(),
        RefKey::SharedTree { parent: by } => by == parent.at,
        RefKey::DataRef { .. } | RefKey::SharedData { .. } => false,
    }))
}

/// Changes pointers to counting by address that are still counted in the tree's name below a block that is not.
fn convert_rest(host: &TxnHost<'_>, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
    for (key, at, generation) in children(block.bytes) {
        let child = tree.read_for_walk(at, block.level.saturating_sub(1), generation, key)?;
        let view = BlockView::new(&child.data);
        if view.owner != tree.id() {
            continue;
        }
        if view.level > 0 {
            convert_rest(host, tree, &view)?;
        }
        if !host.state_of(tree, &view)?.full_backref {
            convert_changes(view.bytes, view.at, tree.id(), &mut |change| host.push(change))?;
        }
    }
    Ok(())
}

#[cold]
fn misplaced(tree: &Tree, expected: Detail, found: u64) -> Error {
    let what = "where the deletion of the subvolume stopped";
    Corrupt::new(what, expected, Detail::Number(found)).at(At::Tree(tree.id())).into()
}

/// The transaction, for copies of nodes with dead pointers: those hold no references.
struct WithoutDead<'a> {
    host: &'a TxnHost<'a>,
    nodes: &'a [(Logical, usize)],
}

impl Host for WithoutDead<'_> {
    fn generation(&self) -> Generation {
        self.host.generation
    }

    fn owns(&self, block: &Bytes) -> bool {
        self.host.owns(block)
    }

    fn alloc_block(&self, tree: &Tree, level: u8) -> Result<Logical> {
        self.host.alloc_block(tree, level)
    }

    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, new: &mut [u8]) -> Result<()> {
        let gone = self.nodes.iter().find(|(at, _)| *at == old.at).map_or(0, |(_, gone)| *gone);
        let mut alive = old.bytes.to_vec();
        (0..gone).for_each(|_| node::remove(&mut alive, 0));
        self.host.block_cowed(tree, &BlockView::new(&alive), new)
    }

    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        self.host.block_freed(tree, block)
    }

    fn block_dirtied(&self, block: &Block) {
        self.host.block_dirtied(block);
    }
}
