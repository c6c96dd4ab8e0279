//! Decides how reference counts change when a possibly shared tree block is copied or dropped. Called by `txn/host` for
//! copies and by `txn/drop_tree` for deletions.
//!
//! A block's pointers are counted in one of two ways. *Normal*: each child (or data extent)
//! names the tree that owns the block. *Shared*: each names the block's address, and the
//! block's extent item says `FULL_BACKREF`. A block starts normal, and becomes shared for
//! good when its owner releases it while others still hold it; then its owner's name would
//! lead nowhere.
//!
//! The rules below are pure so that they can be read as a table; `tree_refs` turns a
//! [`CowPlan`] or [`DropPlan`] into changes for the children. In every case the tree's own
//! reference to the old block goes as well: that change is the caller's.

use btrfs_disk::Generation;

/// How a block's pointers are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// By the tree that owns the block.
    Normal,
    /// By the block's address.
    Shared,
}

/// The state of a block that is about to be copied or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// References to the block, queued changes included; at least 1.
    pub refs: u64,
    /// Its extent item says `FULL_BACKREF`, or is about to.
    pub full_backref: bool,
    /// Its header names the tree that copies or drops it.
    pub is_owned: bool,
    /// That tree is a relocation tree.
    pub is_relocation: bool,
}

/// The changes to references of its children when a block is copied. Absent means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CowPlan {
    /// Children gain a reference, counted for the old block.
    pub old_gains: Option<Counting>,
    /// Children lose a reference, counted for the old block.
    pub old_loses: Option<Counting>,
    /// Children gain a reference, counted for the new block.
    pub new_gains: Option<Counting>,
    /// The old block says `FULL_BACKREF` from now on.
    pub sets_full_backref: bool,
    /// The old block has no reference left: its space is to be freed.
    pub frees_old: bool,
}

/// The changes when a tree drops its reference to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPlan {
    /// Others hold the block, and its pointers are counted in a way that stays true: only the
    /// reference to it goes.
    Release,
    /// Others hold the block, but it is counted by the tree that lets go. Before the reference
    /// goes, every block below that is counted by this tree (itself included, whatever its
    /// number of references) changes from normal to shared counting.
    Convert,
    /// This was the last reference: first the children are dropped, whose references are counted as given, then the
    /// block.
    Descend(Counting),
}

/// The facts that decide whether a block can be shared: if not, its references need no lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shareability {
    /// Snapshots of the tree are possible (subvolumes, relocation trees).
    pub tree_is_shareable: bool,
    /// The block is the root of the tree; roots are copied when a snapshot is taken.
    pub is_root: bool,
    /// When the block was written.
    pub block_generation: Generation,
    /// When the last snapshot of the tree was taken.
    pub last_snapshot: Generation,
    /// The header says `RELOC`.
    pub is_relocated: bool,
}

/// True when a block may have more than one reference or be counted as shared.
#[must_use]
pub fn may_be_shared(block: &Shareability) -> bool {
    block.tree_is_shareable && !block.is_root && (block.block_generation <= block.last_snapshot || block.is_relocated)
}

/// The state of a block for which [`may_be_shared`] is false.
#[must_use]
pub fn unshared(is_relocation: bool) -> BlockState {
    BlockState { refs: 1, full_backref: is_relocation, is_owned: true, is_relocation }
}

/// The changes needed to copy `block`.
#[must_use]
pub fn on_cow(block: &BlockState) -> CowPlan {
    let copy = if block.is_relocation { Counting::Shared } else { Counting::Normal };
    let is_last = block.refs <= 1;
    match (is_last, block.full_backref) {
        (true, false) => CowPlan { frees_old: true, ..CowPlan::default() },
        (true, true) => {
            CowPlan { new_gains: Some(copy), old_loses: Some(Counting::Shared), frees_old: true, ..CowPlan::default() }
        }
        // The owner gives the block up: references counted by its name now belong to the copy, and the old block's are
        // counted by its address for the remaining holders.
        (false, false) if block.is_owned && !block.is_relocation => {
            CowPlan { old_gains: Some(Counting::Shared), sets_full_backref: true, ..CowPlan::default() }
        }
        (false, false) if block.is_relocation => CowPlan {
            old_gains: Some(Counting::Shared),
            old_loses: Some(Counting::Normal),
            new_gains: Some(Counting::Shared),
            sets_full_backref: true,
            ..CowPlan::default()
        },
        (false, _) => CowPlan { new_gains: Some(copy), ..CowPlan::default() },
    }
}

/// The changes needed to drop a tree's reference to `block`, when the whole tree goes.
#[must_use]
pub fn on_drop(block: &BlockState) -> DropPlan {
    match (block.refs <= 1, block.full_backref) {
        (true, true) => DropPlan::Descend(Counting::Shared),
        (true, false) => DropPlan::Descend(Counting::Normal),
        (false, false) if block.is_owned => DropPlan::Convert,
        (false, _) => DropPlan::Release,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(refs: u64, full_backref: bool, is_owned: bool) -> BlockState {
        BlockState { refs, full_backref, is_owned, is_relocation: false }
    }

    #[test]
    fn copying_follows_the_table() {
        let nothing = CowPlan::default();
        let freed = CowPlan { frees_old: true, ..nothing };
        let copy_gains = CowPlan { new_gains: Some(Counting::Normal), ..nothing };
        let owner_leaves = CowPlan { old_gains: Some(Counting::Shared), sets_full_backref: true, ..nothing };
        let last_of_shared = CowPlan {
            new_gains: Some(Counting::Normal),
            old_loses: Some(Counting::Shared),
            frees_old: true,
            ..nothing
        };
        let table = [
            (state(1, false, true), freed),
            (state(1, true, true), last_of_shared),
            (state(1, true, false), last_of_shared),
            (state(2, false, true), owner_leaves),
            (state(3, false, true), owner_leaves),
            (state(2, false, false), copy_gains),
            (state(2, true, true), copy_gains),
            (state(2, true, false), copy_gains),
        ];
        for (block, plan) in table {
            assert_eq!(on_cow(&block), plan, "{block:?}");
        }
    }

    #[test]
    fn relocation_trees_count_by_address() {
        let block = |refs, full_backref| BlockState { refs, full_backref, is_owned: false, is_relocation: true };
        assert_eq!(on_cow(&block(2, false)).old_loses, Some(Counting::Normal));
        assert!(on_cow(&block(2, false)).sets_full_backref);
        for (refs, full_backref) in [(1, true), (2, true), (2, false)] {
            assert_eq!(on_cow(&block(refs, full_backref)).new_gains, Some(Counting::Shared));
        }
    }

    /// Each child is referenced by the old block as long as that lives, and by the copy.
    #[test]
    fn children_are_counted_once_per_parent() {
        let sign = |plan: Option<Counting>| i32::from(plan.is_some());
        for refs in 1..4 {
            for bits in 0..8u8 {
                let block = BlockState {
                    refs,
                    full_backref: bits & 1 != 0,
                    is_owned: bits & 2 != 0,
                    is_relocation: bits & 4 != 0,
                };
                if block.is_relocation && refs == 1 && !block.full_backref {
                    continue; // blocks of relocation trees are always counted by address
                }
                let plan = on_cow(&block);
                let change = sign(plan.old_gains) + sign(plan.new_gains) - sign(plan.old_loses);
                assert_eq!(change, i32::from(refs > 1), "{block:?}");
                assert_eq!(plan.frees_old, refs == 1);
            }
        }
    }

    #[test]
    fn dropping_follows_the_table() {
        let table = [
            (state(1, false, true), DropPlan::Descend(Counting::Normal)),
            (state(1, true, true), DropPlan::Descend(Counting::Shared)),
            (state(1, true, false), DropPlan::Descend(Counting::Shared)),
            (state(2, false, true), DropPlan::Convert),
            (state(2, false, false), DropPlan::Release),
            (state(2, true, true), DropPlan::Release),
            (state(2, true, false), DropPlan::Release),
        ];
        for (block, plan) in table {
            assert_eq!(on_drop(&block), plan, "{block:?}");
        }
    }

    #[test]
    fn only_blocks_older_than_the_last_snapshot_may_be_shared() {
        let block = Shareability {
            tree_is_shareable: true,
            is_root: false,
            block_generation: Generation(7),
            last_snapshot: Generation(7),
            is_relocated: false,
        };
        assert!(may_be_shared(&block));
        assert!(!may_be_shared(&Shareability { block_generation: Generation(8), ..block }));
        assert!(!may_be_shared(&Shareability { tree_is_shareable: false, ..block }));
        assert!(!may_be_shared(&Shareability { is_root: true, ..block }));
        let moved = Shareability { block_generation: Generation(8), is_relocated: true, ..block };
        assert!(may_be_shared(&moved));
    }
}
