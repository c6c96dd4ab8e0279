//! Goes down to a leaf for writing, and locks the way. Called by all edits of the module `tree`.
//!
//! Two ways: the cheap one locks only the leaf for writing, and works when the leaf was
//! copied in this transaction and the change stays inside it; the other locks from the
//! root, copies blocks that are older than the transaction, and keeps as much of the path locked
//! as the change may need.

#![expect(
    clippy::indexing_slicing,
    reason = "steps count from the path itself, slots from blocks that the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::{At, Corrupt, Detail, Generation, Key, Logical, TreeId};

use crate::Result;
use crate::ablation::LeafClock;
use crate::locks::WriteGuard;

use super::block::{Block, BlockView, WriteLocked};
use super::forest::{RootPtr, Tree};
use super::host::Host;
use super::{layout, leaf, node};

/// Deepest tree the format allows.
pub(crate) const LEVEL_COUNT_MAX: u8 = 8;

/// Refuses a block of a level that no tree has.
///
/// # Errors
/// [`Corrupt`].
pub(crate) fn check_level_max(at: Logical, level: u8) -> Result<(), Corrupt> {
    if level < LEVEL_COUNT_MAX {
        return Ok(());
    }
    let expected = Detail::AtMost((LEVEL_COUNT_MAX - 1).into());
    Err(Corrupt::new("level of the tree block", expected, Detail::Number(level.into())).at(At::Data(at)))
}

/// The purpose for which a leaf is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Change bytes in place.
    Touch,
    /// Insert items that take this many bytes, headers included.
    Room(usize),
    /// Remove items.
    Shrink,
    /// Remove items of this leaf and of those beside it, then insert items of which the first takes
    /// this many bytes.
    Span(usize),
}

/// One locked block of a path: in a node the slot of the child below, in the leaf the
/// slot of the key or where it would go.
pub(crate) struct Step {
    pub(crate) block: WriteLocked,
    pub(crate) slot: usize,
}

/// A write-locked leaf that belongs to the transaction, and the locked blocks above it.
pub(crate) struct Path<'t> {
    pub(crate) tree: &'t Tree,
    /// Locked while the root may change.
    pub(crate) root: Option<WriteGuard<'t, RootPtr>>,
    /// From the highest locked block to the leaf.
    pub(crate) steps: Vec<Step>,
    /// Where the next leaf starts.
    pub(crate) upper: Option<Key>,
    /// Where the node above the leaf ends, if that was locked from above.
    pub(crate) parent_upper: Option<Key>,
    /// Whether the leaf has the key at its slot.
    pub(crate) is_found: bool,
    /// The leaf is the root of the tree.
    is_root_leaf: bool,
    /// The intent that the locked parents suffice for.
    parents_for: Option<Intent>,
    clock: LeafClock,
}

impl<'t> Path<'t> {
    pub(crate) fn leaf(&mut self) -> &mut Step {
        self.steps.last_mut().expect("a path ends in a leaf")
    }

    pub(crate) fn leaf_bytes(&self) -> &[u8] {
        &self.steps.last().expect("a path ends in a leaf").block.data
    }

    pub(crate) fn slot(&self) -> usize {
        self.steps.last().expect("a path ends in a leaf").slot
    }

    /// The node above the leaf, if it is locked.
    pub(crate) fn parent(&mut self) -> Option<&mut Step> {
        let index = self.steps.len().checked_sub(2)?;
        self.steps.get_mut(index)
    }

    pub(crate) fn is_root_leaf(&self) -> bool {
        self.is_root_leaf
    }

    fn has_parents_to_insert(&self) -> bool {
        self.is_root_leaf || matches!(self.parents_for, Some(Intent::Room(_) | Intent::Span(_)))
    }

    fn has_parents_to_remove(&self) -> bool {
        self.is_root_leaf || self.parents_for == Some(Intent::Shrink)
    }

    /// Whether `count` items can go from `slot` without touching other blocks, or with the
    /// blocks that are locked.
    pub(crate) fn can_remove(&self, slot: usize, count: usize) -> bool {
        let block = self.leaf_bytes();
        let left = leaf::used(block) - leaf::used_by(block, slot, count);
        self.has_parents_to_remove() || (slot > 0 && left > layout::capacity(block) / 4)
    }

    /// Whether new items can be put at the leaf's slot without touching other blocks, or
    /// with the blocks that are locked.
    pub(crate) fn can_insert(&self, bytes: usize) -> bool {
        leaf::free_space(self.leaf_bytes()) >= bytes && (self.slot() > 0 || self.has_parents_to_insert())
    }
}

/// Goes down to the leaf of `key`, ready for `intent`.
pub(crate) fn find<'t>(host: &dyn Host, tree: &'t Tree, key: &Key, intent: Intent) -> Result<Path<'t>> {
    if let Some(path) = find_cheaply(host, tree, key, intent)? {
        return Ok(path);
    }
    find_copying(host, tree, key, intent)
}

/// Goes down with read locks; `None` when the leaf alone is not enough.
pub(crate) fn find_cheaply<'t>(host: &dyn Host, tree: &'t Tree, key: &Key, intent: Intent) -> Result<Option<Path<'t>>> {
    let root = tree.root.read();
    let expect = tree.expect(&root);
    let is_root_leaf = root.level == 0;
    let mut upper = None;
    let leaf = if is_root_leaf {
        let leaf = tree.forest.write(&expect)?;
        drop(root);
        leaf
    } else {
        let mut locked = tree.forest.read(&expect)?;
        drop(root);
        loop {
            let slot = layout::child_slot(&locked.data, key);
            if slot + 1 < layout::nritems(&locked.data) {
                upper = Some(layout::key_at(&locked.data, slot + 1));
            }
            let expect = tree.child_expect(&locked.data, slot);
            if layout::level(&locked.data) <= 1 {
                break tree.forest.write(&expect)?;
            }
            locked = tree.forest.read(&expect)?;
        }
    };
    if !host.owns(&leaf) {
        return Ok(None);
    }
    let (slot, is_found) = locate(&leaf.data, key);
    let steps = vec![Step { block: leaf, slot }];
    let clock = LeafClock::start(tree.id() == TreeId::TREE_LOG, false);
    let (root, parent_upper, parents_for) = (None, None, None);
    let path = Path { tree, root, steps, upper, parent_upper, is_found, is_root_leaf, parents_for, clock };
    let is_enough = match intent {
        Intent::Touch => true,
        Intent::Room(bytes) => path.can_insert(bytes),
        // A root leaf needs no neighbours.
        Intent::Shrink | Intent::Span(_) => is_root_leaf,
    };
    Ok(is_enough.then_some(path))
}

fn locate(leaf: &[u8], key: &Key) -> (usize, bool) {
    match layout::search(leaf, key) {
        Ok(slot) => (slot, true),
        Err(slot) => (slot, false),
    }
}

/// Goes down with write locks from the root, copying blocks that are older than the transaction.
pub(crate) fn find_copying<'t>(host: &dyn Host, tree: &'t Tree, key: &Key, intent: Intent) -> Result<Path<'t>> {
    let mut path = lock_root(host, tree, intent)?;
    while layout::level(path.leaf_bytes()) > 0 {
        descend(host, &mut path, key, intent)?;
    }
    let (slot, is_found) = locate(path.leaf_bytes(), key);
    path.leaf().slot = slot;
    path.is_found = is_found;
    if let Intent::Room(bytes) = intent
        && slot > 0
        && leaf::free_space(path.leaf_bytes()) >= bytes
    {
        // The leaf has room: nothing above it can change.
        let last = path.steps.len() - 1;
        path.steps.drain(..last);
        (path.root, path.parents_for) = (None, None);
    }
    path.clock = LeafClock::start(tree.id() == TreeId::TREE_LOG, path.steps.len() > 1);
    Ok(path)
}

/// A path that has the root only, copied into the transaction.
pub(crate) fn lock_root<'t>(host: &dyn Host, tree: &'t Tree, intent: Intent) -> Result<Path<'t>> {
    let mut root = tree.root.write();
    let mut top = tree.forest.write(&tree.expect(&root))?;
    if !host.owns(&top) {
        top = copy(host, tree, &top)?;
        *root = RootPtr {
            at: top.at,
            level: layout::level(&top.data),
            generation: Generation(layout::generation(&top.data)),
        };
        tree.note_changed();
    }
    let is_root_leaf = layout::level(&top.data) == 0;
    let mut steps = Vec::with_capacity(LEVEL_COUNT_MAX.into());
    steps.push(Step { block: top, slot: 0 });
    Ok(Path {
        tree,
        root: Some(root),
        steps,
        upper: None,
        parent_upper: None,
        is_found: false,
        is_root_leaf,
        parents_for: Some(intent),
        clock: LeafClock::start(false, false),
    })
}

/// One level down: locks and copies the child, and unlocks the blocks above that cannot change.
fn descend(host: &dyn Host, path: &mut Path<'_>, key: &Key, intent: Intent) -> Result<()> {
    let tree = path.tree;
    let slot = layout::child_slot(path.leaf_bytes(), key);
    path.leaf().slot = slot;
    if is_settled(path.leaf_bytes(), slot, key, intent) {
        let last = path.steps.len() - 1;
        path.steps.drain(..last);
        path.root = None;
    }
    path.parent_upper = path.upper;
    let parent = path.leaf_bytes();
    if slot + 1 < layout::nritems(parent) {
        path.upper = Some(layout::key_at(parent, slot + 1));
    }
    let child = child_for_write(host, tree, &mut path.leaf().block.data, slot)?;
    path.steps.push(Step { block: child, slot: 0 });
    Ok(())
}

/// True when no change below can change blocks above this node.
fn is_settled(block: &[u8], slot: usize, key: &Key, intent: Intent) -> bool {
    let (count, max) = (layout::nritems(block), node::max_ptrs(block));
    match intent {
        Intent::Touch => true,
        // One leaf may become three, which is two more pointers.
        Intent::Room(_) => count + 2 <= max && (slot > 0 || *key >= layout::key_at(block, 0)),
        Intent::Shrink => count > max / 4 + 1 && slot > 0,
        Intent::Span(_) => count + 2 <= max && count > max / 4 + 1 && slot > 0,
    }
}

/// Locks a child for writing, copied into the transaction if it was not.
pub(crate) fn child_for_write(host: &dyn Host, tree: &Tree, parent: &mut [u8], slot: usize) -> Result<WriteLocked> {
    let child = tree.forest.write(&tree.child_expect(parent, slot))?;
    if host.owns(&child) {
        return Ok(child);
    }
    let copied = copy(host, tree, &child)?;
    node::set_child(parent, slot, copied.at, host.generation());
    Ok(copied)
}

/// A copy of a committed block that belongs to the transaction.
fn copy(host: &dyn Host, tree: &Tree, old: &WriteLocked) -> Result<WriteLocked> {
    let view = BlockView::new(&old.data);
    let at = host.alloc_block(tree, view.level)?;
    let mut data = old.data.clone();
    layout::readdress(&mut data, at.0, host.generation().0, tree.id().0);
    layout::set_fsid(&mut data, &tree.forest.fsid);
    host.block_cowed(tree, &view, &mut data)?;
    Ok(adopt(host, tree, at, data))
}

/// A new empty block of the transaction.
pub(crate) fn create(host: &dyn Host, tree: &Tree, level: u8) -> Result<WriteLocked> {
    let at = host.alloc_block(tree, level)?;
    let mut data = vec![0; tree.forest.nodesize].into_boxed_slice();
    let header = layout::NewHeader {
        at: at.0,
        generation: host.generation().0,
        owner: tree.id().0,
        level,
        fsid: tree.forest.fsid,
        chunk_tree_uuid: tree.forest.chunk_tree_uuid,
    };
    layout::init(&mut data, &header);
    tree.count_block(1);
    Ok(adopt(host, tree, at, data))
}

fn adopt(host: &dyn Host, tree: &Tree, at: Logical, data: Box<[u8]>) -> WriteLocked {
    let block = Block::made(at, data);
    let locked = block.write_new();
    tree.forest.cache.insert_new(block.clone());
    host.block_dirtied(&block);
    locked
}

/// Gives back a block of the path that no parent points to any more.
pub(crate) fn free(host: &dyn Host, tree: &Tree, block: WriteLocked) -> Result<()> {
    tree.count_block(-1);
    host.block_freed(tree, &BlockView::new(&block.data))
}

/// After the leaf's first key changed: the parents' keys follow.
pub(crate) fn fix_first_key(path: &mut Path<'_>, from_step: usize) {
    let key = layout::key_at(&path.steps[from_step].block.data, 0);
    for step in path.steps[..from_step].iter_mut().rev() {
        node::set_key(&mut step.block.data, step.slot, &key);
        if step.slot > 0 {
            return;
        }
    }
}
