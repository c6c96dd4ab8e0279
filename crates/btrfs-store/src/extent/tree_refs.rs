//! Computes the references that a tree block's pointers hold, as changes. Pure. Called by copies, snapshots and
//! deletions of trees.

use btrfs_disk::error::At;
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type;
use btrfs_disk::node::{BlockView, LeafView, NodeView};
use btrfs_disk::{InodeNo, Logical, TreeId};

use super::cow_rules::{Counting, CowPlan};
use super::ref_change::RefChange;
use crate::Result;

/// Whether references come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// +1 each.
    Add,
    /// -1 each.
    Drop,
}

/// The holder of a block's references, and whether they come or go.
#[derive(Clone, Copy, Debug)]
struct Holder {
    owner: TreeId,
    parent: Option<Logical>,
    sign: Sign,
}

impl Holder {
    fn new(counting: Counting, owner: TreeId, at: Logical, sign: Sign) -> Self {
        let parent = (counting == Counting::Shared).then_some(at);
        Self { owner, parent, sign }
    }
}

/// Yields a change for everything that the block `bytes` at `at` points at: the children of a
/// node, the data extents of a leaf. `owner` is the tree that holds them where the block counts
/// normally: the one that owns the block.
///
/// # Errors
/// [`btrfs_disk::Corrupt`] for a file extent that cannot be read, and whatever `emit` fails with.
pub fn child_changes(
    bytes: &[u8],
    at: Logical,
    owner: TreeId,
    (counting, sign): (Counting, Sign),
    emit: &mut dyn FnMut(RefChange) -> Result<()>,
) -> Result<()> {
    let holder = Holder::new(counting, owner, at, sign);
    match BlockView::new(bytes) {
        Some(BlockView::Node(node)) => node_changes(&node, &holder, emit),
        Some(BlockView::Leaf(leaf)) => leaf_changes(&leaf, at, &holder, emit),
        None => Ok(()),
    }
}

/// Yields the changes for the children of a block that `tree` copied from `old_at` to `new_at`,
/// as `plan` says, then the old block's own: `FULL_BACKREF`, and the loss of this tree's
/// reference. The new block's own first reference is not among them.
///
/// `bytes` are those of either block: a fresh copy has the same pointers.
///
/// # Errors
/// As [`child_changes`].
pub fn cow_changes(
    plan: &CowPlan,
    bytes: &[u8],
    (old_at, new_at): (Logical, Logical),
    tree: TreeId,
    emit: &mut dyn FnMut(RefChange) -> Result<()>,
) -> Result<()> {
    // Additions come first, so that no count passes through zero on the way.
    for (counting, at, sign) in
        [(plan.old_gains, old_at, Sign::Add), (plan.new_gains, new_at, Sign::Add), (plan.old_loses, old_at, Sign::Drop)]
    {
        if let Some(counting) = counting {
            child_changes(bytes, at, tree, (counting, sign), emit)?;
        }
    }
    let level = level(bytes);
    if plan.sets_full_backref {
        emit(RefChange::SetFullBackref { at: old_at, level })?;
    }
    emit(RefChange::DropTree { at: old_at, level, owner: tree, parent: None })
}

/// Yields the changes that turn a block of `owner` from normal to shared counting (see
/// [`super::DropPlan::Convert`]).
///
/// # Errors
/// As [`child_changes`].
pub fn convert_changes(
    bytes: &[u8],
    at: Logical,
    owner: TreeId,
    emit: &mut dyn FnMut(RefChange) -> Result<()>,
) -> Result<()> {
    child_changes(bytes, at, owner, (Counting::Shared, Sign::Add), emit)?;
    child_changes(bytes, at, owner, (Counting::Normal, Sign::Drop), emit)?;
    emit(RefChange::SetFullBackref { at, level: level(bytes) })
}

fn level(bytes: &[u8]) -> u8 {
    btrfs_disk::node::header(bytes).map_or(0, |header| header.level)
}

fn node_changes(node: &NodeView<'_>, holder: &Holder, emit: &mut dyn FnMut(RefChange) -> Result<()>) -> Result<()> {
    let level = node.header().map_or(0, |header| header.level).saturating_sub(1);
    let Holder { owner, parent, sign } = *holder;
    for ptr in node.ptrs() {
        let at = Logical(ptr.blockptr.get());
        emit(match sign {
            Sign::Add => RefChange::AddTree { at, level, owner, parent, new: false },
            Sign::Drop => RefChange::DropTree { at, level, owner, parent },
        })?;
    }
    Ok(())
}

fn leaf_changes(
    leaf: &LeafView<'_>,
    leaf_at: Logical,
    holder: &Holder,
    emit: &mut dyn FnMut(RefChange) -> Result<()>,
) -> Result<()> {
    let Holder { owner: root, parent, sign } = *holder;
    for (key, bytes) in leaf.iter().filter(|(key, _)| key.item_type == item_type::EXTENT_DATA) {
        let extent = FileExtent::parse(bytes).map_err(|error| error.at(At::Block(leaf_at)))?;
        let FileExtent::Extent(item) = extent else {
            continue;
        };
        if item.is_hole() {
            continue;
        }
        let (at, len) = (Logical(item.disk_bytenr.get()), item.disk_num_bytes.get());
        let inode = InodeNo(key.objectid);
        let offset = key.offset.wrapping_sub(item.offset.get());
        emit(match sign {
            Sign::Add => RefChange::AddData { at, len, root, inode, offset, parent, new: false },
            Sign::Drop => RefChange::DropData { at, len, root, inode, offset, parent },
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cow_rules::{BlockState, on_cow};
    use super::super::test_blocks::{leaf, node};
    use super::*;
    use btrfs_disk::items::{FileExtentItem, NewFileExtent, OnDisk};
    use btrfs_disk::{Generation, Key};

    const OLD: Logical = Logical(1 << 20);
    const NEW: Logical = Logical(1 << 21);

    fn collect(run: impl FnOnce(&mut dyn FnMut(RefChange) -> Result<()>) -> Result<()>) -> Vec<RefChange> {
        let mut changes = Vec::new();
        run(&mut |change| {
            changes.push(change);
            Ok(())
        })
        .unwrap();
        changes
    }

    #[test]
    fn a_node_refers_to_its_children() {
        let node = node(1, &[4096, 8192]);
        let counting = (Counting::Shared, Sign::Add);
        let changes = collect(|emit| child_changes(&node, OLD, TreeId(5), counting, emit));
        let expected = [4096, 8192].map(|at| RefChange::AddTree {
            at: Logical(at),
            level: 0,
            owner: TreeId(5),
            parent: Some(OLD),
            new: false,
        });
        assert_eq!(changes, expected);
    }

    #[test]
    fn a_leaf_refers_to_data_but_not_to_holes_or_inline_data() {
        let extent = NewFileExtent {
            generation: Generation(3),
            compression: 0,
            disk: Logical(65536),
            disk_len: 8192,
            ram_len: 8192,
            offset: 8192,
            len: 4096,
        };
        let inline = btrfs_disk::items::FileExtent::build_inline(Generation(3), 0, 0, b"hello");
        let prealloc = NewFileExtent { disk: Logical(1 << 17), offset: 0, ..extent };
        let file = |inode, offset| Key::new(inode, item_type::EXTENT_DATA, offset);
        let leaf = leaf(&[
            (Key::new(257, item_type::INODE_ITEM, 0), vec![1; 160]),
            (file(257, 0), inline),
            (file(257, 4096), FileExtentItem::regular(&extent).bytes().to_vec()),
            (file(257, 8192), FileExtentItem::hole(Generation(3), 4096).bytes().to_vec()),
            (file(258, 12288), FileExtentItem::prealloc(&prealloc).bytes().to_vec()),
        ]);
        let counting = (Counting::Normal, Sign::Drop);
        let changes = collect(|emit| child_changes(&leaf, OLD, TreeId(5), counting, emit));
        let drop_data = |at, inode, offset| RefChange::DropData {
            at: Logical(at),
            len: 8192,
            root: TreeId(5),
            inode: InodeNo(inode),
            offset,
            parent: None,
        };
        // The first file starts inside its extent, before which the extent's start wraps around.
        let wrapped = 0u64.wrapping_sub(4096);
        assert_eq!(changes, [drop_data(65536, 257, wrapped), drop_data(1 << 17, 258, 12288)]);
    }

    #[test]
    fn the_owner_leaves_a_shared_block() {
        let node = node(1, &[4096]);
        let state = BlockState { refs: 2, full_backref: false, is_owned: true, is_relocation: false };
        let plan = on_cow(&state);
        let changes = collect(|emit| cow_changes(&plan, &node, (OLD, NEW), TreeId(5), emit));
        let (at, owner) = (Logical(4096), TreeId(5));
        assert_eq!(
            changes,
            [
                RefChange::AddTree { at, level: 0, owner, parent: Some(OLD), new: false },
                RefChange::SetFullBackref { at: OLD, level: 1 },
                RefChange::DropTree { at: OLD, level: 1, owner, parent: None },
            ]
        );
    }

    #[test]
    fn the_last_holder_takes_a_shared_block_over() {
        let node = node(1, &[4096]);
        let state = BlockState { refs: 1, full_backref: true, is_owned: false, is_relocation: false };
        let plan = on_cow(&state);
        let changes = collect(|emit| cow_changes(&plan, &node, (OLD, NEW), TreeId(256), emit));
        let (at, owner) = (Logical(4096), TreeId(256));
        assert_eq!(
            changes,
            [
                RefChange::AddTree { at, level: 0, owner, parent: None, new: false },
                RefChange::DropTree { at, level: 0, owner, parent: Some(OLD) },
                RefChange::DropTree { at: OLD, level: 1, owner, parent: None },
            ]
        );
    }
}
