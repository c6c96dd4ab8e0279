//! Counts quotas in a commit: compares, for each touched extent, which subvolumes reached it before and after. Called
//! by `commit`; `host` and `drop_tree` note touched extents.
//!
//! ```text
//! before: the subvolumes that reached each touched extent, by the committed trees and the extent tree,
//!   which is still theirs (the commit brings the extent tree up to date)
//! after:  the subvolumes that reach it now; the difference is counted, and the groups are written
//! ```
//!
//! A snapshot reaches everything below its root without any reference change there: snapshots come first in their
//! transaction, so a snapshot's numbers follow from its source's, and extents that the source reached before count as
//! reached by the snapshot too. A subvolume that is dropped gives up shared subtrees as a whole: the blocks below are
//! noted one by one, up to a limit, beyond which the numbers are marked inconsistent.
//!
//! Simple quotas need none of this: extents record their owner, and are counted when they are allocated and freed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use btrfs_disk::{Key, Logical, TreeId};

use super::engine::Engine;
use super::host::TxnHost;
use crate::Result;
use crate::accounting::{Reach, State};
use crate::extent::{Counted, Counting, ExtentKind, RefChange, Sign, child_changes, each_extent};
use crate::quota::{Event, Groups, Roots};
use crate::space::Run;
use crate::tree::{BlockView, Edit, RootPtr, Tree, children};

/// Blocks below shared subtrees of a deleted subvolume that are visited, before the numbers are given up.
const DROPPED_BLOCKS_MAX: usize = 4096;

/// The facts of the committed state.
pub(super) struct Before {
    touched: Vec<(Logical, ExtentKind, Roots)>,
    events: Vec<Event>,
    is_rescan: bool,
}

impl Before {
    /// The subvolumes that reached an extent when the transaction had only taken its snapshots.
    fn with_copies(&self, at: Logical, roots: &Roots) -> Roots {
        let mut all: Option<BTreeSet<TreeId>> = None;
        for event in &self.events {
            if let Event::Copied { source, copy, source_root } = event
                && *source_root != at
                && roots.contains(source)
            {
                all.get_or_insert_with(|| (**roots).clone()).insert(*copy);
            }
        }
        all.map_or_else(|| Rc::clone(roots), Rc::new)
    }
}

impl Engine {
    /// The subvolumes that reach the touched extents, in the committed state; nothing with quotas off. To be called
    /// before the extent tree changes.
    pub(super) fn quotas_before(&self) -> Option<Before> {
        if !self.quota.is_on() {
            if self.pending.touched.count() > 0 {
                drop(self.pending.touched.take_sorted());
            }
            return None;
        }
        let (events, is_rescan) = self.quota.change(|groups| (groups.take_events(), groups.take_rescan()));
        if self.quota.is_simple() {
            // The blocks of a new subvolume are counted as soon as the extent tree has them.
            self.quota.change(|groups| self.apply_events(groups, &events));
        }
        let touched = self.pending.touched.take_sorted();
        let mut before = Before { touched: Vec::new(), events, is_rescan };
        if !is_rescan && !touched.is_empty() {
            let (at, generation, level) = self.superblock.lock().root();
            let found = self.with_reach(RootPtr { at, level, generation }, |reach| {
                touched.into_iter().map(|(at, kind)| Ok((at, kind, reach.roots(at, kind)?))).collect()
            });
            match found {
                Ok(found) => before.touched = found,
                Err(error) => self.quota.change(|groups| groups.set_inconsistent(error.to_string())),
            }
        }
        Some(before)
    }

    /// Counts the changes, and writes the groups. To be called when the extent tree and the root tree have the
    /// transaction's subvolumes.
    pub(super) fn quotas_after(&self, before: &Before, edit: &Edit<'_>) -> Result<()> {
        let Some(tree) = self.trees.try_tree(TreeId::QUOTA)? else {
            self.quota.change(Groups::disable);
            return Ok(());
        };
        let counted = if before.is_rescan { self.count_all() } else { self.count_changes(before) };
        let items = self.quota.change(|groups| {
            self.apply_events(groups, &before.events);
            match counted {
                Ok(sums) => {
                    if before.is_rescan {
                        groups.forget_counts();
                        groups.set_counted();
                    }
                    sums.iter().for_each(|((old, new), bytes)| groups.account(old, new, *bytes));
                }
                Err(error) => groups.set_inconsistent(error.to_string()),
            }
            for event in &before.events {
                if let Event::Gone(id) = event {
                    groups.forget_subvolume(*id);
                }
            }
            groups.forget_made();
            groups.take_items(edit.generation())
        });
        items.write(edit, &tree)
    }

    /// With simple quotas, an extent counts for the subvolume that allocated it, if that was after they were turned on.
    pub(super) fn count_simply(&self, extent: &Counted, is_gone: bool) -> Result<()> {
        if !self.quota.is_simple() {
            return Ok(());
        }
        let owner = match (extent.owner, extent.kind) {
            (Some(owner), _) => owner,
            // The extent tree does not record the owner: the block's header does.
            (None, ExtentKind::Tree { level }) if self.quota.lock().counts_since(extent.generation) => {
                let at = extent.at;
                let bytes = self.trees.forest().copy_of(at, || self.reader.read_any(at, level))?;
                BlockView::new(&bytes).owner
            }
            (None, _) => return Ok(()),
        };
        let bytes = self.extent_sizes().len(extent.kind);
        self.quota.lock().account_simply(owner, extent.generation, bytes, is_gone);
        Ok(())
    }

    fn apply_events(&self, groups: &mut Groups, events: &[Event]) {
        for event in events {
            match *event {
                Event::Made(id) => groups.add_subvolume(id),
                Event::Copied { copy, .. } if self.quota.is_simple() => groups.add_subvolume(copy),
                Event::Copied { source, copy, .. } => groups.inherit(source, copy, self.nodesize()),
                Event::Gone(_) => {}
            }
        }
    }

    fn count_changes(&self, before: &Before) -> Result<BTreeMap<(Roots, Roots), u64>> {
        let mut sums = BTreeMap::new();
        self.with_reach(self.trees.root_tree.root_ptr(), |reach| {
            for (at, kind, old) in &before.touched {
                let old = before.with_copies(*at, old);
                let new = reach.roots(*at, *kind)?;
                if old != new {
                    let bytes: &mut u64 = sums.entry((old, new)).or_default();
                    *bytes = bytes.saturating_add(self.extent_sizes().len(*kind));
                }
            }
            Ok(())
        })?;
        Ok(sums)
    }

    fn count_all(&self) -> Result<BTreeMap<(Roots, Roots), u64>> {
        let mut sums = BTreeMap::new();
        self.with_reach(self.trees.root_tree.root_ptr(), |reach| {
            let all = Run { start: 0, len: u64::MAX };
            each_extent(&self.core.extent, all, |at, kind| {
                let bytes: &mut u64 = sums.entry((Roots::default(), reach.roots(at, kind)?)).or_default();
                *bytes = bytes.saturating_add(self.extent_sizes().len(kind));
                Ok(crate::tree::Scan::Continue)
            })
        })?;
        Ok(sums)
    }

    /// Runs `f` with a search for the subvolumes of a root tree, by the present extent tree.
    fn with_reach<R>(&self, root_tree: RootPtr, f: impl FnOnce(&mut Reach<'_>) -> Result<R>) -> Result<R> {
        let forest = self.trees.forest();
        let read = |at, level| forest.copy_of(at, || self.reader.read_any(at, level));
        f(&mut Reach::new(State::new(&read, root_tree), &self.core.extent))
    }
}

impl TxnHost<'_> {
    /// Notes the extent of a queued change for quotas.
    pub(super) fn note_touched(&self, change: &RefChange, is_cancelled: bool) {
        let (pending, quota) = (&self.engine.pending, &self.engine.quota);
        match is_cancelled {
            true => pending.touched.remove(change.at()),
            false if !quota.is_simple() => pending.touched.note(change),
            false => {}
        }
        if !quota.has_limits() {
            return;
        }
        let bytes = self.engine.extent_sizes().len(change.kind());
        match *change {
            RefChange::AddTree { owner: root, parent: None, new: true, .. }
            | RefChange::AddData { root, parent: None, new: true, .. }
                if root.is_subvolume() =>
            {
                quota.lock().note_made(root, bytes);
            }
            RefChange::DropTree { owner, parent: None, .. } if is_cancelled => quota.lock().note_unmade(owner, bytes),
            _ => {}
        }
    }

    /// A deleted tree gives up a subtree that other trees keep: notes all that it reached there.
    pub(super) fn note_subtree(&self, tree: &Tree, top: &BlockView<'_>) -> Result<()> {
        if !self.engine.quota.is_on() || self.engine.quota.is_simple() {
            return Ok(());
        }
        let mut left = DROPPED_BLOCKS_MAX;
        if !self.note_below(tree, top, &mut left)? {
            let reason = format!("subvolume {} was deleted, of which others share much", tree.id());
            self.engine.quota.change(|groups| groups.set_inconsistent(reason));
        }
        Ok(())
    }

    /// False when there are too many blocks.
    fn note_below(&self, tree: &Tree, block: &BlockView<'_>, left: &mut usize) -> Result<bool> {
        if *left == 0 {
            return Ok(false);
        }
        *left -= 1;
        let touched = &self.engine.pending.touched;
        touched.insert(block.at, ExtentKind::Tree { level: block.level });
        if block.level == 0 {
            let how = (Counting::Normal, Sign::Drop);
            child_changes(block.bytes, block.at, tree.id(), how, &mut |change| {
                touched.note(&change);
                Ok(())
            })?;
        }
        let below: Vec<(Key, Logical, btrfs_disk::Generation)> = children(block.bytes).collect();
        for (key, at, generation) in below {
            let child = tree.read_for_walk(at, block.level.saturating_sub(1), generation, key)?;
            if !self.note_below(tree, &BlockView::new(&child.data), left)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
