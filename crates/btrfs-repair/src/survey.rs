//! Walks all trees, every block once, level by level, and collects all references and the data of files: the survey.
//! `round` makes a survey before and after its changes; `mend`, `edit`, `extents` and `derive` read it.
//!
//! Whether the references of a block's pointers are counted by its own address ("full back references") follows from
//! the references to it: they are, unless the tree that owns the block refers to it. The kernel maintains this, and
//! `btrfs check` compares it. Levels are read from the top, so this is known of a block before its children are read.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::flags::{ExtentFlags, HeaderFlags};
use btrfs_disk::items::{ExtentView, FileExtent, InlineRef, RootItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{BlockView, LEVELS_MAX, LeafView, NodeView, header};
use btrfs_disk::verify::may_own;
use btrfs_disk::{Key, TreeId};

use crate::image::{Block, Image};
use crate::space::Ranges;

/// A reference to a tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockRef {
    /// From a tree, by its number.
    Tree(u64),
    /// From a parent block that has full back references, by its address.
    Parent(u64),
}

/// A reference to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataRef {
    /// From a file: tree, inode, offset.
    File(u64, u64, u64),
    /// From a leaf that has full back references, by its address.
    Leaf(u64),
}

/// A block that a tree leads to.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockFacts {
    pub(crate) level: u8,
    pub(crate) generation: u64,
    pub(crate) is_full: bool,
    pub(crate) first: Key,
    pub(crate) refs: BTreeSet<BlockRef>,
    pub(crate) parents: Vec<u64>,
}

/// A data extent that files use.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataFacts {
    /// Its lengths according to file extents.
    pub(crate) lens: BTreeSet<u64>,
    /// Bytes of it that file extents use, from its start.
    pub(crate) used: u64,
    pub(crate) generation: u64,
    pub(crate) refs: BTreeMap<DataRef, u32>,
}

/// The extent tree's record of data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldExtent {
    pub(crate) len: u64,
    pub(crate) generation: u64,
    pub(crate) owner: Option<TreeId>,
}

/// A tree in the root tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) key: Key,
    pub(crate) item: RootItem,
}

/// The results of the walk.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) roots: Vec<Root>,
    pub(crate) blocks: BTreeMap<u64, BlockFacts>,
    pub(crate) data: BTreeMap<u64, DataFacts>,
    pub(crate) old: BTreeMap<u64, OldExtent>,
    /// Unreadable blocks, each with its tree.
    pub(crate) lost: Vec<(TreeId, u64)>,
    /// Blocks that are used in spite of defects, each with a tree that leads to it.
    pub(crate) damaged: BTreeMap<u64, TreeId>,
    /// Blocks whose generation differs from that of a pointer to them, each with its tree: perhaps older states.
    pub(crate) stale: BTreeMap<u64, TreeId>,
    /// Copies of blocks that differ from the good one.
    pub(crate) bad_copies: Vec<(u64, u8, Vec<u32>)>,
    /// Ranges that no new block may use: blocks, data, extents of extent items, the log and its data.
    pub(crate) used: Ranges,
    log: BTreeSet<u64>,
}

/// Limit on the commits by which a superblock may be older than the blocks.
const GENERATIONS_LOST_MAX: u64 = 1 << 20;

/// A pointer to a block.
#[derive(Clone, Copy, Debug)]
struct Pointer {
    tree: TreeId,
    by: BlockRef,
    parent: u64,
    generation: u64,
    first: Option<Key>,
    next: Option<Key>,
}

type Levels = Vec<BTreeMap<u64, Vec<Pointer>>>;

/// True for trees that hold inodes.
pub(crate) fn is_of_files(tree: TreeId) -> bool {
    tree.is_subvolume() || tree == TreeId::DATA_RELOC || tree == TreeId::TREE_RELOC
}

impl Survey {
    /// Walks all trees except `left_out`.
    pub(crate) fn of(image: &Image, left_out: &[TreeId]) -> Self {
        let mut survey = Self { roots: roots(image), ..Self::default() };
        let fields = &image.fields;
        let mut levels: Levels = vec![BTreeMap::new(); usize::from(LEVELS_MAX)];
        let mut tops = vec![
            (TreeId::ROOT, fields.root.get(), fields.root_level, fields.generation.get()),
            (TreeId::CHUNK, fields.chunk_root.get(), fields.chunk_root_level, fields.chunk_root_generation.get()),
        ];
        tops.extend(survey.roots.iter().map(|root| {
            let (at, generation) = root.item.root_block();
            (TreeId(root.key.objectid), at.0, root.item.level, generation.0)
        }));
        for (tree, at, level, generation) in tops.into_iter().filter(|(tree, ..)| !left_out.contains(tree)) {
            let by = if tree == TreeId::TREE_RELOC { BlockRef::Parent(at) } else { BlockRef::Tree(tree.0) };
            let pointer = Pointer { tree, by, parent: 0, generation, first: None, next: None };
            push(&mut levels, level, at, pointer);
        }
        let drops = survey.deletions();
        for level in (0..LEVELS_MAX).rev() {
            let Some(pointers) = levels.get_mut(usize::from(level)).map(std::mem::take) else { continue };
            for (at, pointers) in pointers {
                survey.block(image, (at, level), &pointers, (&mut levels, &drops));
            }
        }
        survey.log(image);
        survey
    }

    /// Trees whose deletion was interrupted, each with the level and key that it had reached.
    fn deletions(&self) -> BTreeMap<TreeId, (u8, Key)> {
        let begun = |item: &RootItem| item.refs.get() == 0 && item.drop_progress.objectid.get() != 0;
        let roots = self.roots.iter().filter(|root| begun(&root.item));
        roots.map(|root| (TreeId(root.key.objectid), (root.item.drop_level, root.item.drop_progress.get()))).collect()
    }

    /// The root item of a tree.
    pub(crate) fn root(&self, tree: TreeId) -> Option<&Root> {
        self.roots.iter().find(|root| root.key.objectid == tree.0)
    }

    /// True when a block of the tree cannot be read.
    pub(crate) fn has_lost(&self, tree: TreeId) -> bool {
        self.lost.iter().any(|(lost, _)| *lost == tree)
    }

    fn block(
        &mut self,
        image: &Image,
        (at, level): (u64, u8),
        pointers: &[Pointer],
        (levels, drops): (&mut Levels, &BTreeMap<TreeId, (u8, Key)>),
    ) {
        let Some(first) = pointers.first() else { return };
        let node_len = image.media.node_len();
        let refs: BTreeSet<BlockRef> = pointers.iter().map(|pointer| pointer.by).collect();
        let mut parents: Vec<u64> = pointers.iter().map(|pointer| pointer.parent).filter(|at| *at != 0).collect();
        parents.dedup();
        let Some(block) = image.read(at, level) else {
            self.lost.extend(pointers.iter().map(|pointer| (pointer.tree, at)));
            return;
        };
        self.used.add(at, node_len);
        let Some(head) = header(&block.bytes) else { return };
        let owner = head.owner.get();
        let is_reloc = head.header_flags().contains(HeaderFlags::RELOC);
        let is_full = is_reloc || !refs.contains(&BlockRef::Tree(owner));
        self.judge(image.generation(), (at, level), &block, pointers);
        let (key, _) = ends(&block.bytes);
        let facts = BlockFacts { level, generation: head.generation.get(), is_full, first: key, refs, parents };
        self.blocks.insert(at, facts);
        let by = if is_full { BlockRef::Parent(at) } else { BlockRef::Tree(owner) };
        let Some(below) = level.checked_sub(1) else {
            self.leaf(image, (at, owner), is_full, first.tree, &block.bytes);
            return;
        };
        let next = pointers.iter().filter_map(|pointer| pointer.next).min();
        let node = NodeView::new(&block.bytes);
        let drop = drops.get(&first.tree);
        for (slot, ptr) in node.ptrs().iter().enumerate() {
            let behind = node.ptrs().get(slot.saturating_add(1)).map(|ptr| ptr.key.get());
            let is_gone = drop.is_some_and(|(drop_level, key)| match level.cmp(drop_level) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => ptr.key.get() < *key,
                std::cmp::Ordering::Greater => behind.is_some_and(|behind| behind <= *key),
            });
            if !is_gone {
                let pointer = Pointer {
                    tree: first.tree,
                    by,
                    parent: at,
                    generation: ptr.generation.get(),
                    first: Some(ptr.key.get()),
                    next: behind.or(next),
                };
                push(levels, below, ptr.blockptr.get(), pointer);
            }
        }
    }

    /// Notes defects of a readable block, and of the pointers to it.
    fn judge(&mut self, newest: u64, (at, level): (u64, u8), block: &Block, pointers: &[Pointer]) {
        let Some(head) = header(&block.bytes) else { return };
        let (first, last) = ends(&block.bytes);
        let is_wrong = |pointer: &Pointer| {
            !may_own(TreeId(head.owner.get()), pointer.tree)
                || pointer.first.is_some_and(|expected| expected != first)
                || pointer.next.is_some_and(|next| last >= next && head.nritems.get() > 0)
        };
        let is_of_other = |pointer: &Pointer| pointer.generation != head.generation.get();
        // A generation this far ahead cannot come from a lost commit: the number itself is damaged.
        let is_nonsense = head.generation.get() > newest.saturating_add(GENERATIONS_LOST_MAX);
        let Some(pointer) = pointers.first() else { return };
        if pointers.iter().any(is_of_other) && !is_nonsense {
            self.stale.insert(at, pointer.tree);
        } else if block.problem.is_some() || pointers.iter().any(is_wrong) {
            self.damaged.insert(at, pointer.tree);
        }
        if block.problem.is_none() && !block.bad_copies.is_empty() {
            self.bad_copies.push((at, level, block.bad_copies.clone()));
        }
    }

    fn leaf(&mut self, image: &Image, (at, owner): (u64, u64), is_full: bool, tree: TreeId, block: &[u8]) {
        let leaf = LeafView::new(block);
        if is_of_files(tree) || tree == TreeId::ROOT {
            for (key, data) in leaf.iter().filter(|(key, _)| key.item_type == item_type::EXTENT_DATA) {
                let Ok(FileExtent::Extent(extent)) = FileExtent::parse(data) else { continue };
                if extent.is_hole() {
                    continue;
                }
                let (start, len) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
                let to = match is_full {
                    true => DataRef::Leaf(at),
                    false => DataRef::File(owner, key.objectid, key.offset.wrapping_sub(extent.offset.get())),
                };
                let facts = self.data.entry(start).or_default();
                facts.lens.insert(len);
                let is_plain = extent.head.compression == 0;
                let used = if is_plain { extent.offset.get().saturating_add(extent.num_bytes.get()) } else { len };
                facts.used = facts.used.max(used);
                let generation = extent.head.generation.get();
                facts.generation = if facts.generation == 0 { generation } else { facts.generation.min(generation) };
                let count = facts.refs.entry(to).or_default();
                *count = count.saturating_add(1);
                self.used.add(start, len);
            }
        } else if tree == TreeId::EXTENT {
            for (key, data) in leaf.iter() {
                self.extent_item(image, &key, data);
            }
        }
    }

    fn extent_item(&mut self, image: &Image, key: &Key, data: &[u8]) {
        let len = match key.item_type {
            item_type::EXTENT_ITEM => key.offset,
            item_type::METADATA_ITEM => image.media.node_len(),
            _ => return,
        };
        // An item with a wrong address or length must not mark all space as used.
        if image.media.chunk(key.objectid, len).is_some() {
            self.used.add(key.objectid, len);
        }
        let Ok(view) = ExtentView::parse(key, data) else { return };
        if view.item.extent_flags().contains(ExtentFlags::DATA) && key.item_type == item_type::EXTENT_ITEM {
            let owner = view.refs().map_while(Result::ok).find_map(|one| match one {
                InlineRef::Owner { root } => Some(root),
                _ => None,
            });
            self.old.insert(key.objectid, OldExtent { len, generation: view.item.generation.get(), owner });
        }
    }

    /// Marks the log, and the data it refers to, as used.
    fn log(&mut self, image: &Image) {
        let fields = &image.fields;
        let mut todo = vec![(fields.log_root.get(), fields.log_root_level)];
        while let Some((at, level)) = todo.pop() {
            if at == 0 || !self.log.insert(at) {
                continue;
            }
            self.used.add(at, image.media.node_len());
            let Some(block) = image.read(at, level) else { continue };
            if let Some(below) = level.checked_sub(1) {
                todo.extend(NodeView::new(&block.bytes).ptrs().iter().map(|ptr| (ptr.blockptr.get(), below)));
                continue;
            }
            for (key, data) in LeafView::new(&block.bytes).iter() {
                match key.item_type {
                    item_type::ROOT_ITEM => {
                        todo.extend(RootItem::read(data).ok().map(|item| (item.bytenr.get(), item.level)));
                    }
                    item_type::EXTENT_DATA => {
                        if let Ok(FileExtent::Extent(extent)) = FileExtent::parse(data)
                            && !extent.is_hole()
                            && image.media.chunk(extent.disk_bytenr.get(), extent.disk_num_bytes.get()).is_some()
                        {
                            self.used.add(extent.disk_bytenr.get(), extent.disk_num_bytes.get());
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn push(levels: &mut Levels, level: u8, at: u64, pointer: Pointer) {
    if let Some(level) = levels.get_mut(usize::from(level)) {
        level.entry(at).or_default().push(pointer);
    }
}

/// First and last key of a block.
fn ends(block: &[u8]) -> (Key, Key) {
    BlockView::new(block).and_then(|view| view.ends()).unwrap_or((Key::MAX, Key::MAX))
}

/// The root items that can be read.
fn roots(image: &Image) -> Vec<Root> {
    let mut roots = Vec::new();
    items(image, (image.fields.root.get(), image.fields.root_level), |key, data| {
        if key.item_type == item_type::ROOT_ITEM
            && let Ok(item) = RootItem::read(data)
        {
            roots.push(Root { key: *key, item });
        }
    });
    // Of two root items with the same tree number the first is used.
    let mut seen = BTreeSet::new();
    roots.retain(|root| root.key.objectid == TreeId::TREE_RELOC.0 || seen.insert(root.key.objectid));
    roots
}

/// Calls `each` with all items of a tree that can be read, in order.
pub(crate) fn items(image: &Image, (at, level): (u64, u8), mut each: impl FnMut(&Key, &[u8])) {
    let mut todo = vec![(at, level)];
    let mut seen = BTreeSet::new();
    while let Some((at, level)) = todo.pop() {
        // In an intact tree no block comes twice; in a damaged one the walk might not end.
        if !seen.insert(at) {
            continue;
        }
        let Some(block) = image.read(at, level) else { continue };
        match level.checked_sub(1) {
            Some(below) => {
                let ptrs = NodeView::new(&block.bytes).ptrs().iter().rev();
                todo.extend(ptrs.map(|ptr| (ptr.blockptr.get(), below)));
            }
            None => LeafView::new(&block.bytes).iter().for_each(|(key, data)| each(&key, data)),
        }
    }
}
