//! Changes items of a tree by copy on write: the leaves that change and the nodes above them are copied to new places,
//! and the old blocks stay.
//!
//! Damaged but readable blocks are copied too where they are listed: a copy is sorted, has the identity that its place
//! requires, and omits items that the verifier refuses. Called by `round`.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::node::{KeyPtr, LeafView, NodeView, header};
use btrfs_disk::verify;
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::items::{believed, may_drop};
use crate::pack::{self, OwnedItem, Places};
use crate::space::Allocator;
use crate::survey::Survey;

/// The new data of items; `None` removes the item.
pub(crate) type Changes = BTreeMap<Key, Option<Vec<u8>>>;

/// The changes, by tree.
pub(crate) type Edits = BTreeMap<TreeId, Changes>;

/// Blocks to copy although their items do not change, and all blocks above them.
pub(crate) fn with_ancestors(survey: &Survey, blocks: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    let mut todo: Vec<u64> = blocks.collect();
    while let Some(at) = todo.pop() {
        if all.insert(at)
            && let Some(facts) = survey.blocks.get(&at)
        {
            todo.extend(&facts.parents);
        }
    }
    all
}

/// One tree that is changed.
pub(crate) struct Rewrite<'a> {
    pub(crate) image: &'a Image,
    pub(crate) tree: TreeId,
    pub(crate) copied: &'a BTreeSet<u64>,
    pub(crate) allocator: &'a mut Allocator,
}

impl Rewrite<'_> {
    /// Makes the changes; address and level of the new root.
    ///
    /// # Errors
    /// No space, or a block on the way that cannot be read.
    pub(crate) fn run(&mut self, (at, level): (u64, u8), changes: &Changes) -> Result<(u64, u8)> {
        let changes: Vec<(&Key, &Option<Vec<u8>>)> = changes.iter().collect();
        let old = KeyPtr::new(Key::MIN, Logical(at), Generation(0));
        let mut ptrs = self.block(&old, level, &changes)?;
        if ptrs.is_empty() {
            let at = self.allocator.take(&self.image.media.chunks, self.tree == TreeId::CHUNK)?;
            self.image.write(at, pack::leaf(self.image, pack::Name { at, owner: self.tree, level: 0 }, &[]))?;
            return Ok((at, 0));
        }
        let mut level = level;
        let mut places = Places::Found(self.allocator);
        if ptrs.len() > 1 {
            return pack::raise(self.image, self.tree, (ptrs, level), &mut places);
        }
        // A root with one child is needless.
        while let Some(only) = ptrs.first().map(|ptr| ptr.blockptr.get()) {
            if only == at || level == 0 {
                return Ok((only, level));
            }
            let Some(block) = self.image.read(only, level) else { break };
            let children = NodeView::new(&block.bytes).ptrs();
            if children.len() != 1 {
                return Ok((only, level));
            }
            ptrs = children.to_vec();
            level = level.saturating_sub(1);
        }
        Err(Error::Beyond(format!("a new block of tree {} cannot be read back", self.tree)))
    }

    /// The blocks that replace a block: pointers to blocks of its level.
    fn block(&mut self, old: &KeyPtr, level: u8, changes: &[(&Key, &Option<Vec<u8>>)]) -> Result<Vec<KeyPtr>> {
        let at = old.blockptr.get();
        let is_copied = self.copied.contains(&at);
        if changes.is_empty() && !is_copied {
            return Ok(vec![*old]);
        }
        let lost = || Error::Beyond(format!("the block at {at} of tree {} cannot be read", self.tree));
        let block = self.image.read(at, level).ok_or_else(lost)?;
        let owner_is_right =
            header(&block.bytes).is_some_and(|head| verify::may_own(TreeId(head.owner.get()), self.tree));
        let is_sound = block.problem.is_none() && owner_is_right;
        if level == 0 {
            return self.leaf(&block.bytes, is_sound, changes);
        }
        let children = self.children(&block.bytes, level, is_copied)?;
        let mut ptrs = Vec::with_capacity(children.len());
        let mut rest = changes;
        for (index, child) in children.iter().enumerate() {
            let next = children.get(index.saturating_add(1)).map(|child| child.key.get());
            let count = next.map_or(rest.len(), |next| rest.partition_point(|(key, _)| **key < next));
            let (own, behind) = rest.split_at(count);
            rest = behind;
            ptrs.extend(self.block(child, level.saturating_sub(1), own)?);
        }
        if ptrs.is_empty() {
            return Ok(ptrs);
        }
        pack::write_nodes(self.image, (self.tree, level), &ptrs, &mut Places::Found(self.allocator))
    }

    /// The pointers of a node; of one that is copied, rebuilt from its children.
    fn children(&self, block: &[u8], level: u8, is_copied: bool) -> Result<Vec<KeyPtr>> {
        let mut ptrs = NodeView::new(block).ptrs().to_vec();
        if !is_copied {
            return Ok(ptrs);
        }
        let below = level.saturating_sub(1);
        for ptr in &mut ptrs {
            let at = ptr.blockptr.get();
            let lost = || Error::Beyond(format!("the block at {at} of tree {} cannot be read", self.tree));
            let child = self.image.read(at, below).ok_or_else(lost)?;
            let first = if below == 0 {
                LeafView::new(&child.bytes).items().iter().map(|item| item.key.get()).min()
            } else {
                NodeView::new(&child.bytes).ptrs().iter().map(|ptr| ptr.key.get()).min()
            };
            *ptr = KeyPtr::new(first.unwrap_or(ptr.key.get()), Logical(at), Generation(ptr.generation.get()));
        }
        ptrs.sort_by_key(|ptr| ptr.key.get());
        Ok(ptrs)
    }

    fn leaf(&mut self, block: &[u8], is_sound: bool, changes: &[(&Key, &Option<Vec<u8>>)]) -> Result<Vec<KeyPtr>> {
        let media = &self.image.media;
        let mut merged: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        for (key, data) in LeafView::new(block).iter() {
            let data = if is_sound { Some(data.into()) } else { believed(self.image, self.tree, &key, data) };
            if let Some(data) = data {
                merged.entry(key).or_insert_with(|| data.into_owned());
            } else if !may_drop(self.tree, &key) {
                return Err(Error::Beyond(format!("the item {key} of tree {} makes no sense", self.tree)));
            }
        }
        for (key, data) in changes {
            match data {
                Some(data) => drop(merged.insert(**key, data.clone())),
                None => drop(merged.remove(*key)),
            }
        }
        if merged.is_empty() {
            return Ok(Vec::new());
        }
        let items: Vec<OwnedItem> = merged.into_iter().collect();
        let split = pack::leaves(&items, media.format.nodesize, 1);
        pack::write_leaves(self.image, self.tree, (&items, &split), &mut Places::Found(self.allocator))
    }
}
