//! Finds and verifies the log that a crash left behind, and reserves its space until it is replayed.
//!
//! ```text
//! superblock.log_root --> log root tree --(-6, ROOT_ITEM, subvolume)--> log tree of the subvolume
//! ```
//!
//! Its blocks, and the new data that its file extents lead to, are not in the extent tree: the free-space tree lists
//! their space as free. [`Store::read_log`] takes that space before anything is allocated. The file layer replays the
//! items of the trees that it returns.
//!
//! A store that was opened for writing with a log to replay does not commit before
//! [`Store::finish_replay`], which makes everything durable at once and frees the log's space: a
//! crash before leaves the old state with its log, a crash after the new one without.
//!
//! Invariants
//! * Every block is read past the cache and verified, keys ascend from leaf to leaf, and no block occurs twice or in
//!   use: an inconsistent log is `Corrupt` before it is searched.
//!
//! Failure: any defect of a log keeps the volume from being opened for writing.
//!
//! Callers: the file system, when it opens a volume.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{FileExtent, RootItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{LeafView, NodeView};
use btrfs_disk::{At, Corrupt, Detail, Generation, Key, Logical, TreeId};
use btrfs_pool::FsSuper;

use crate::extent::CsumTree;
use crate::space::Extent;
use crate::store::Need;
use crate::tree::{BlockSource, ReadExpect, RootPtr, Tree, TreeKind, layout};
use crate::txn::Engine;
use crate::{CsumRange, Result, Store};

/// A log on the device, whose space is taken.
#[derive(Debug)]
pub struct FoundLog {
    trees: Vec<(TreeId, Arc<Tree>)>,
    blocks: BTreeSet<Logical>,
    /// Data that the extent tree does not know: first byte, bytes.
    fresh: BTreeMap<Logical, u64>,
    /// The superblock on the device.
    superblock: FsSuper,
}

impl FoundLog {
    /// The log tree of each subvolume that has one, ascending.
    #[must_use]
    pub fn trees(&self) -> &[(TreeId, Arc<Tree>)] {
        &self.trees
    }

    /// True for data that only the log refers to: its first reference creates the extent.
    #[must_use]
    pub fn is_fresh(&self, at: Logical) -> bool {
        self.fresh.contains_key(&at)
    }
}

impl Store {
    /// True when the superblock that the store was opened with leads to a log.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.superblock().fields().log_root.get() != 0
    }

    /// Reads the log and takes the space that it uses. To be called before any reservation.
    ///
    /// # Errors
    /// `Corrupt` for an inconsistent log; those of reading trees.
    pub fn read_log(&self) -> Result<Option<FoundLog>> {
        let engine = &self.0;
        let superblock = self.superblock();
        let fields = superblock.fields();
        if fields.log_root.get() == 0 {
            return Ok(None);
        }
        let root = RootPtr {
            at: Logical(fields.log_root.get()),
            level: fields.log_root_level,
            generation: Generation(fields.generation.get().saturating_add(1)),
        };
        let mut reader = Reader { engine, blocks: BTreeSet::new(), fresh: BTreeMap::new() };
        let mut roots = BTreeMap::new();
        reader.read_tree(root, &mut |key, bytes| note_root(&mut roots, key, bytes))?;
        let mut trees = Vec::with_capacity(roots.len());
        for (id, root) in roots {
            let mut extents = Vec::new();
            reader.read_tree(root, &mut |key, bytes| note_extent(&mut extents, key, bytes))?;
            for extent in extents {
                reader.note_data(extent)?;
            }
            let forest = Arc::clone(engine.trees.forest());
            trees.push((id, Arc::new(Tree::new(forest, TreeId::TREE_LOG, TreeKind::Single, root))));
        }
        for (&at, &len) in &reader.fresh {
            take(engine, Extent { at, len }, BlockGroupFlags::DATA)?;
        }
        Ok(Some(FoundLog { trees, blocks: reader.blocks, fresh: reader.fresh, superblock }))
    }

    /// The checksums that a log tree has for a range of data.
    ///
    /// # Errors
    /// Those of reading the tree.
    pub fn log_csums(&self, log: &Tree, at: Logical, len: u64) -> Result<CsumRange> {
        CsumTree::new(log, &self.0.csum_sizes()).lookup(at, len)
    }

    /// Commits the replayed changes, with a superblock without a log, and frees the space of the log. `used` are the
    /// fresh extents that got a reference.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn finish_replay(&self, log: FoundLog, used: &BTreeSet<Logical>) -> Result<Generation> {
        let engine = &self.0;
        // A sync of the log writes the primary superblock only. Were it torn now, its mirrors would
        // have to lead to the log as well; the commit's first flush makes them durable.
        let written = engine.pool().write_superblock(&log.superblock).map_err(crate::Error::from);
        written.inspect_err(|error| engine.health.poison(error))?;
        // A log that changed nothing goes too: a commit has to have something to write.
        let txn = self.begin(self.reserve(Need { items: 1, data: 0 })?)?;
        txn.update_root_item(TreeId::FS, |_| {})?;
        drop(txn);
        drop(log.trees);
        let len = engine.nodesize();
        for at in log.blocks {
            engine.trees.forest().forget(at);
            engine.space.pin(Extent { at, len })?;
        }
        for (at, len) in log.fresh {
            if !used.contains(&at) {
                engine.space.pin(Extent { at, len })?;
            }
        }
        {
            let mut superblock = engine.superblock.lock();
            let fields = superblock.fields_mut();
            fields.log_root = 0.into();
            fields.log_root_level = 0;
        }
        engine.log.unreplayed.done();
        engine.commit()
    }
}

/// Reads log trees, and takes their blocks.
struct Reader<'a> {
    engine: &'a Engine,
    blocks: BTreeSet<Logical>,
    fresh: BTreeMap<Logical, u64>,
}

impl Reader<'_> {
    /// Shows the items of a tree in order.
    fn read_tree(&mut self, root: RootPtr, see: &mut dyn FnMut(&Key, &[u8]) -> Result<()>) -> Result<()> {
        let first = ReadExpect {
            at: root.at,
            level: root.level,
            generation: root.generation,
            first_key: None,
            owner: Some(TreeId::TREE_LOG),
        };
        let (mut todo, mut last) = (vec![first], None);
        while let Some(expect) = todo.pop() {
            if !self.blocks.insert(expect.at) {
                let (expected, found) = (Detail::Text("not in the log yet"), Detail::Text("there twice"));
                return Err(Corrupt::new("tree block", expected, found).at(At::Block(expect.at)).into());
            }
            let len = self.engine.nodesize();
            take(self.engine, Extent { at: expect.at, len }, BlockGroupFlags::METADATA)?;
            let block = self.engine.reader.read_block(&expect)?;
            if layout::level(&block) > 0 {
                let node = NodeView::new(&block);
                todo.extend((0..node.nritems()).rev().map(|slot| {
                    let (at, generation) = node.ptr(slot);
                    let (level, first_key) = (layout::level(&block) - 1, Some(node.key(slot)));
                    ReadExpect { at, level, generation, first_key, ..expect }
                }));
                continue;
            }
            for (key, bytes) in LeafView::new(&block).iter() {
                if let Some(before) = last.filter(|before| *before >= key) {
                    let wrong = Corrupt::new("key of a leaf", Detail::key_above(before), key.into());
                    return Err(wrong.at(At::Block(expect.at)).into());
                }
                last = Some(key);
                see(&key, bytes)?;
            }
        }
        Ok(())
    }

    /// Notes data that the extent tree does not know.
    fn note_data(&mut self, extent: Extent) -> Result<()> {
        let key = Key::new(extent.at.0, item_type::EXTENT_ITEM, extent.len);
        if self.engine.core.extent.get_with(&key, |_| ())?.is_some() {
            return Ok(());
        }
        let known = *self.fresh.entry(extent.at).or_insert(extent.len);
        if known != extent.len {
            let (expected, found) = (Detail::Number(known), Detail::Number(extent.len));
            return Err(Corrupt::new("size of logged data", expected, found).at(At::Data(extent.at)).into());
        }
        Ok(())
    }
}

fn note_root(roots: &mut BTreeMap<TreeId, RootPtr>, key: &Key, bytes: &[u8]) -> Result<()> {
    let id = TreeId(key.offset);
    if key.objectid != TreeId::TREE_LOG.0 || key.item_type != item_type::ROOT_ITEM || !id.is_subvolume() {
        let expected = Detail::Text("the root of a subvolume's log");
        let wrong = Corrupt::new("key in the log's root tree", expected, (*key).into());
        return Err(wrong.at(At::Tree(TreeId::TREE_LOG)).into());
    }
    let item = RootItem::read(bytes)?;
    let root =
        RootPtr { at: Logical(item.bytenr.get()), level: item.level, generation: Generation(item.generation.get()) };
    roots.insert(id, root);
    Ok(())
}

fn note_extent(extents: &mut Vec<Extent>, key: &Key, bytes: &[u8]) -> Result<()> {
    if key.item_type != item_type::EXTENT_DATA {
        return Ok(());
    }
    let extent = FileExtent::parse(bytes).map_err(|wrong| wrong.at(At::Key(TreeId::TREE_LOG, *key)))?;
    if let FileExtent::Extent(item) = extent
        && item.disk_bytenr.get() != 0
    {
        extents.push(Extent { at: Logical(item.disk_bytenr.get()), len: item.disk_num_bytes.get() });
    }
    Ok(())
}

/// Takes space that the log uses and that the free-space tree lists as free.
fn take(engine: &Engine, extent: Extent, purpose: BlockGroupFlags) -> Result<()> {
    let group = engine.space.group_of(extent)?;
    engine.load_group(&group)?;
    if group.flags().contains(purpose) && engine.space.take_exactly(extent)? {
        // The free-space tree may be wrong as well.
        engine.check_unused(extent)?;
        return Ok(());
    }
    let expected = Detail::Text("space that nothing else uses");
    Err(Corrupt::new("place of a part of the log", expected, Detail::Number(extent.len)).at(At::Data(extent.at)).into())
}
