//! Edits tree blocks, items and superblocks of an image that is not open, found by walking its trees, and corrects
//! their checksums. Called by `mutate`, `damage` and tests that plant damage.

use anyhow::{Context, Result, bail, ensure};
use blockdev::Device;
use btrfs_disk::convert::u32_len;
use btrfs_disk::items::{ChunkItem, OnDisk, RootItem, system_chunks};
use btrfs_disk::key::item_type::{CHUNK_ITEM, ROOT_ITEM};
use btrfs_disk::node::{HEADER_SIZE, ITEM_SIZE, Item, LeafView, NodeView, header};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock, mirror_offsets};
use btrfs_disk::verify::{Format, seal};
use btrfs_disk::{Key, Logical, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Bytes in front of the number of items in a block's header.
const NRITEMS_AT: usize = 96;

/// A tree block that a tree leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockAt {
    /// The tree that leads to it; a log tree is [`TreeId::TREE_LOG`].
    pub tree: TreeId,
    /// Address.
    pub at: Logical,
    /// Level, 0 for leaves.
    pub level: u8,
}

/// Where an item is.
#[derive(Debug, Clone)]
pub struct ItemAt {
    /// The leaf.
    pub block: Logical,
    /// Its number in the leaf.
    pub slot: usize,
    /// Bytes of its data in the block.
    pub data: Range<usize>,
}

/// Changes an image on one device. Nothing may have it open meanwhile.
#[derive(Debug)]
pub struct Editor {
    device: Arc<dyn Device>,
    format: Format,
    /// First address, bytes, and the place of each copy on the device.
    chunks: BTreeMap<u64, (u64, Vec<u64>)>,
}

impl Editor {
    /// Reads the superblock and the chunk tree.
    ///
    /// # Errors
    /// When the image is not whole, or has a profile that is not one copy after the other.
    pub fn new(device: Arc<dyn Device>) -> Result<Self> {
        let fields = superblock_of(&*device)?;
        let format = Format::of(&fields).context("unknown checksums")?;
        let mut editor = Self { device, format, chunks: BTreeMap::new() };
        for entry in system_chunks(fields.system_chunk_bytes()) {
            let (key, item) = entry?;
            editor.add_chunk(key, &item);
        }
        let root = (TreeId::CHUNK, fields.chunk_root.get(), fields.chunk_root_level);
        for (_, block) in editor.walk(root)? {
            for (key, bytes) in LeafView::new(&block).iter().filter(|_| level(&block) == 0) {
                if key.item_type == CHUNK_ITEM {
                    editor.add_chunk(key, &ChunkItem::parse(bytes)?);
                }
            }
        }
        Ok(editor)
    }

    /// The same for a copy of the image.
    pub(super) fn on(&self, device: Arc<dyn Device>) -> Self {
        Self { device, format: self.format, chunks: self.chunks.clone() }
    }

    fn add_chunk(&mut self, key: Key, item: &ChunkItem<'_>) {
        let places = item.stripes.iter().map(|stripe| stripe.offset.get()).collect();
        self.chunks.insert(key.offset, (item.chunk.length.get(), places));
    }

    /// Sizes and checksum type.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The primary superblock.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn superblock(&self) -> Result<Box<DiskSuperblock>> {
        superblock_of(&*self.device)
    }

    /// Bytes on the device where the copies of an address are.
    ///
    /// # Errors
    /// When no chunk has it.
    pub fn places(&self, at: Logical) -> Result<Vec<u64>> {
        let (start, (len, places)) = self.chunks.range(..=at.0).next_back().context("no chunk")?;
        let within = at.0.saturating_sub(*start);
        ensure!(within < *len, "no chunk has {at}");
        Ok(places.iter().map(|place| place.saturating_add(within)).collect())
    }

    /// The bytes of a tree block.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn block(&self, at: Logical) -> Result<Vec<u8>> {
        let mut block = vec![0; usize::try_from(self.format.nodesize)?];
        let place = *self.places(at)?.first().context("a chunk without stripes")?;
        self.device.read_at(place, &mut block)?;
        Ok(block)
    }

    /// Changes all copies of a tree block and makes the checksum right.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn change_block(&self, at: Logical, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut block = self.block(at)?;
        change(&mut block);
        seal(&mut block, self.format.csum_type);
        for place in self.places(at)? {
            self.device.write_at(place, &[&block])?;
        }
        Ok(())
    }

    /// Changes all copies of the superblock and makes the checksums right.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn change_superblock(&self, change: impl Fn(&mut DiskSuperblock)) -> Result<()> {
        mirror_offsets(self.device.size_bytes()).try_for_each(|offset| self.change_superblock_at(offset, &change))
    }

    /// Changes one copy of the superblock and makes its checksum right.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn change_superblock_at(&self, offset: u64, change: impl Fn(&mut DiskSuperblock)) -> Result<()> {
        self.change_superblock_bytes(offset, |bytes| {
            if let Ok(fields) = DiskSuperblock::parse_mut(bytes) {
                change(fields);
            }
        })
    }

    /// Changes the bytes of all copies of the superblock.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub(super) fn change_superblocks_bytes(&self, change: impl Fn(&mut [u8])) -> Result<()> {
        mirror_offsets(self.device.size_bytes()).try_for_each(|offset| self.change_superblock_bytes(offset, &change))
    }

    /// Changes the bytes of one copy of the superblock.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(super) fn change_superblock_bytes(&self, offset: u64, change: impl Fn(&mut [u8])) -> Result<()> {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.device.read_at(offset, &mut bytes)?;
        change(&mut bytes);
        seal(&mut bytes, self.format.csum_type);
        self.device.write_at(offset, &[&bytes])?;
        Ok(())
    }

    /// Root of a tree: address and level.
    ///
    /// # Errors
    /// When there is no such tree.
    pub fn root(&self, tree: TreeId) -> Result<(Logical, u8)> {
        let fields = self.superblock()?;
        match tree {
            TreeId::ROOT => Ok((Logical(fields.root.get()), fields.root_level)),
            TreeId::CHUNK => Ok((Logical(fields.chunk_root.get()), fields.chunk_root_level)),
            TreeId::TREE_LOG => Ok((Logical(fields.log_root.get()), fields.log_root_level)),
            _ => {
                let roots = self.roots((Logical(fields.root.get()), fields.root_level))?;
                roots.get(&tree).copied().with_context(|| format!("no tree {tree}"))
            }
        }
    }

    /// The trees that a tree of roots lists; those of a log under the number of their subvolume.
    fn roots(&self, (at, level_of): (Logical, u8)) -> Result<BTreeMap<TreeId, (Logical, u8)>> {
        let mut roots = BTreeMap::new();
        for (_, block) in self.walk((TreeId::ROOT, at.0, level_of))? {
            for (key, bytes) in LeafView::new(&block).iter().filter(|_| level(&block) == 0) {
                if key.item_type == ROOT_ITEM {
                    let item = RootItem::read(bytes)?;
                    let is_log = key.objectid == TreeId::TREE_LOG.0;
                    let id = if is_log { key.offset } else { key.objectid };
                    roots.insert(TreeId(id), (Logical(item.bytenr.get()), item.level));
                }
            }
        }
        Ok(roots)
    }

    /// Every block that the superblock leads to, each once.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn blocks(&self) -> Result<Vec<BlockAt>> {
        let fields = self.superblock()?;
        let root = (Logical(fields.root.get()), fields.root_level);
        let mut trees =
            vec![(TreeId::ROOT, root), (TreeId::CHUNK, (Logical(fields.chunk_root.get()), fields.chunk_root_level))];
        trees.extend(self.roots(root)?);
        if fields.log_root.get() != 0 {
            let root = (Logical(fields.log_root.get()), fields.log_root_level);
            trees.push((TreeId::TREE_LOG, root));
            trees.extend(self.roots(root)?.into_values().map(|root| (TreeId::TREE_LOG, root)));
        }
        let mut seen = BTreeSet::new();
        let mut blocks = Vec::new();
        for (tree, (at, level_of)) in trees {
            for (block, _) in self.walk((tree, at.0, level_of))? {
                if seen.insert(block.at) {
                    blocks.push(block);
                }
            }
        }
        Ok(blocks)
    }

    /// The blocks of a tree with their bytes, parents first.
    fn walk(&self, (tree, at, root_level): (TreeId, u64, u8)) -> Result<Vec<(BlockAt, Vec<u8>)>> {
        let mut todo = vec![BlockAt { tree, at: Logical(at), level: root_level }];
        let mut blocks = Vec::new();
        while let Some(next) = todo.pop() {
            let block = self.block(next.at)?;
            ensure!(level(&block) == next.level, "{} is not of level {}", next.at, next.level);
            if next.level > 0 {
                let node = NodeView::new(&block);
                let below = (0..node.nritems()).rev().map(|slot| BlockAt {
                    at: node.ptr(slot).0,
                    level: next.level.saturating_sub(1),
                    ..next
                });
                todo.extend(below);
            }
            blocks.push((next, block));
        }
        Ok(blocks)
    }

    /// The blocks from the root of a tree to the leaf of a key, each with the slot that leads on.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn path(&self, tree: TreeId, key: &Key) -> Result<Vec<(Logical, usize)>> {
        let (mut at, mut left) = self.root(tree)?;
        let mut path = Vec::new();
        loop {
            let block = self.block(at)?;
            if left == 0 {
                let slot = LeafView::new(&block).find(key).unwrap_or_else(|slot| slot);
                path.push((at, slot));
                return Ok(path);
            }
            let node = NodeView::new(&block);
            let slot = node.child_slot(key);
            path.push((at, slot));
            (at, left) = (node.ptr(slot).0, left.saturating_sub(1));
        }
    }

    /// Where an item is.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, tree: TreeId, key: &Key) -> Result<ItemAt> {
        let path = self.path(tree, key)?;
        let (at, slot) = *path.last().context("a path has a leaf")?;
        let block = self.block(at)?;
        let leaf = LeafView::new(&block);
        ensure!(leaf.key(slot) == *key, "no item {key} in tree {tree}");
        let data = data_range(&block, slot).context("an item outside its leaf")?;
        Ok(ItemAt { block: at, slot, data })
    }

    /// The items of a tree with keys in a range.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn items(&self, tree: TreeId, keys: std::ops::RangeInclusive<Key>) -> Result<Vec<(Key, Vec<u8>)>> {
        let (at, root_level) = self.root(tree)?;
        let mut items = Vec::new();
        for (_, block) in self.walk((tree, at.0, root_level))? {
            let leaf = LeafView::new(&block);
            let wanted = leaf.iter().filter(|(key, _)| level(&block) == 0 && keys.contains(key));
            items.extend(wanted.map(|(key, bytes)| (key, bytes.to_vec())));
        }
        Ok(items)
    }

    /// Changes the bytes of an item.
    ///
    /// # Errors
    /// When there is none.
    pub fn change_item(&self, tree: TreeId, key: &Key, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let item = self.find(tree, key)?;
        self.change_block(item.block, |block| {
            if let Some(bytes) = block.get_mut(item.data) {
                change(bytes);
            }
        })
    }

    /// Puts an item into its leaf, or replaces it there. It may not become the first of a leaf below a node, whose key
    /// would have to change.
    ///
    /// # Errors
    /// If the leaf has no room.
    pub fn put_item(&self, tree: TreeId, key: &Key, data: &[u8]) -> Result<()> {
        self.rebuild_leaf(tree, key, |items| {
            items.retain(|(other, _)| other != key);
            let slot = items.partition_point(|(other, _)| other < key);
            items.insert(slot, (*key, data.to_vec()));
        })
    }

    /// Takes an item out of its leaf, where it must not be the first.
    ///
    /// # Errors
    /// When the leaf cannot be changed.
    pub fn remove_item(&self, tree: TreeId, key: &Key) -> Result<()> {
        self.rebuild_leaf(tree, key, |items| items.retain(|(other, _)| other != key))
    }

    fn rebuild_leaf(&self, tree: TreeId, key: &Key, change: impl FnOnce(&mut Vec<(Key, Vec<u8>)>)) -> Result<()> {
        let path = self.path(tree, key)?;
        let (at, slot) = *path.last().context("a path has a leaf")?;
        if slot == 0 && path.len() > 1 {
            bail!("the first item of a leaf below a node");
        }
        let block = self.block(at)?;
        let mut items: Vec<(Key, Vec<u8>)> =
            LeafView::new(&block).iter().map(|(key, data)| (key, data.to_vec())).collect();
        change(&mut items);
        let rebuilt = build_leaf(&block, &items).context("no room in the leaf")?;
        self.change_block(at, |block| block.copy_from_slice(&rebuilt))
    }
}

fn superblock_of(device: &dyn Device) -> Result<Box<DiskSuperblock>> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(Box::new(*UncheckedSuperblock::new(&bytes)?.fields()))
}

fn level(block: &[u8]) -> u8 {
    header(block).map_or(0, |header| header.level)
}

/// Bytes of an item's data in its block.
pub(super) fn data_range(block: &[u8], slot: usize) -> Option<Range<usize>> {
    let leaf = LeafView::new(block);
    let item = leaf.items().get(slot)?;
    let start = HEADER_SIZE.checked_add(usize::try_from(item.offset.get()).ok()?)?;
    let end = start.checked_add(usize::try_from(item.size.get()).ok()?)?;
    (end <= block.len()).then_some(start..end)
}

/// A leaf with the header of `block` and these items; `None` when they do not fit.
fn build_leaf(block: &[u8], items: &[(Key, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut leaf = block.to_vec();
    leaf.get_mut(HEADER_SIZE..)?.fill(0);
    let mut end = leaf.len();
    for (slot, (key, data)) in items.iter().enumerate() {
        let head = HEADER_SIZE.checked_add(slot.checked_mul(ITEM_SIZE)?)?;
        end = end.checked_sub(data.len())?;
        if end < head.checked_add(ITEM_SIZE)? {
            return None;
        }
        let item = Item::new(*key, u32_len(end.checked_sub(HEADER_SIZE)?), u32_len(data.len()));
        leaf.get_mut(head..head.checked_add(ITEM_SIZE)?)?.copy_from_slice(item.bytes());
        leaf.get_mut(end..end.checked_add(data.len())?)?.copy_from_slice(data);
    }
    let count = u32::try_from(items.len()).ok()?;
    leaf.get_mut(NRITEMS_AT..NRITEMS_AT.checked_add(4)?)?.copy_from_slice(&count.to_le_bytes());
    Some(leaf)
}
