//! Finds the blocks that a relocation changes: those that move, and all that lead to them, up to the roots of their
//! trees.
//!
//! Found through the back references, so that the cost depends on the number of such blocks, however large the trees
//! are. `store/relocation` calls it, with the only handle of a fresh transaction: the extent tree is exact, and the
//! queue of reference changes is empty.

use std::collections::{BTreeMap, BTreeSet};

use btrfs_disk::error::{At, Detail};
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::node::BlockView as DiskBlock;
use btrfs_disk::{Corrupt, Generation, InodeNo, Key, Logical, TreeId};

use super::DataMove;
use crate::Result;
use crate::extent::{Backref, ExtentKind, RefKey, backrefs, known, lookup};
use crate::tree::{BlockView, Scan, check_level_max, children, layout};
use crate::txn::Engine;

/// A block that is to be rewritten.
pub(crate) struct Found {
    pub(crate) bytes: Box<[u8]>,
    /// The holders of its references.
    pub(crate) holders: Vec<RefKey>,
    /// Its pointers are counted by its address.
    pub(crate) full_backref: bool,
    /// The tree that has it as its root.
    pub(crate) root_of: Option<TreeId>,
}

impl Found {
    pub(crate) fn level(&self) -> u8 {
        layout::level(&self.bytes)
    }

    /// The tree that wrote it first.
    pub(crate) fn owner(&self) -> TreeId {
        TreeId(layout::owner(&self.bytes))
    }

    /// How its use of a data extent is counted.
    fn data_holder(&self, at: Logical, inode: InodeNo, offset: u64) -> RefKey {
        match self.full_backref {
            true => RefKey::SharedData { parent: at },
            false => RefKey::DataRef { root: self.owner(), inode, offset },
        }
    }
}

/// A data extent with a new place.
pub(crate) struct FoundData {
    pub(crate) moved: DataMove,
    /// The transaction that wrote it.
    pub(crate) generation: Generation,
    pub(crate) holders: Vec<Backref>,
    /// The tree that allocated it, where simple quotas recorded it.
    pub(crate) owner: Option<TreeId>,
}

/// The blocks and data that change together.
pub(crate) struct Closure<'a> {
    engine: &'a Engine,
    pub(crate) blocks: BTreeMap<Logical, Found>,
    pub(crate) data: BTreeMap<Logical, FoundData>,
    /// Parents and children, as the references say.
    pointers: BTreeSet<(Logical, Logical)>,
}

impl<'a> Closure<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine, blocks: BTreeMap::new(), data: BTreeMap::new(), pointers: BTreeSet::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.data.is_empty()
    }

    /// Adds a block, and everything that leads to it.
    ///
    /// # Errors
    /// `Corrupt` where references lead nowhere; those of reading.
    pub(crate) fn add_block(&mut self, at: Logical, level: u8) -> Result<()> {
        let mut todo = vec![(at, level)];
        while let Some((at, level)) = todo.pop() {
            if let Some(known) = self.blocks.get(&at) {
                check_level(at, level, known.level())?;
                continue;
            }
            let found = self.find(at, level, &mut todo)?;
            self.blocks.insert(at, found);
        }
        Ok(())
    }

    fn find(&mut self, at: Logical, level: u8, todo: &mut Vec<(Logical, u8)>) -> Result<Found> {
        let engine = self.engine;
        check_level_max(at, level)?;
        let forest = engine.trees.forest();
        let bytes = forest.copy_of(at, || engine.reader.read_any(at, level))?;
        check_level(at, level, layout::level(&bytes))?;
        let (extent_tree, queue) = (&engine.core.extent, &engine.pending.refs);
        let info = lookup(extent_tree, queue, at, ExtentKind::Tree { level }, &engine.extent_sizes())?;
        let holders: Vec<RefKey> = backrefs(extent_tree, queue, at)?.into_iter().map(|known| known.holder).collect();
        let count = u64::try_from(holders.len()).unwrap_or(u64::MAX);
        if count != info.refs || count == 0 {
            return Err(wrong(at, "references of the tree block", Detail::Number(info.refs), count));
        }
        let full_backref = info.flags.contains(ExtentFlags::FULL_BACKREF);
        let mut found = Found { bytes, holders, full_backref, root_of: None };
        for index in 0..found.holders.len() {
            let Some(holder) = found.holders.get(index).copied() else { break };
            let parent = match holder {
                RefKey::SharedTree { parent } => Some(parent),
                RefKey::TreeRef { owner } => self.parent_in(owner, at, &mut found, todo)?,
                RefKey::DataRef { .. } | RefKey::SharedData { .. } => {
                    return Err(wrong(at, "reference to the tree block", Detail::Text("one of a tree block"), 0));
                }
            };
            if let Some(parent) = parent {
                todo.push((parent, level + 1));
                self.pointers.insert((parent, at));
            }
        }
        Ok(found)
    }

    /// The block of the tree `owner` that leads to this one; `None` where this is its root. The blocks above have to be
    /// visited too: they may be shared, which the references of this block do not show.
    fn parent_in(
        &self,
        owner: TreeId,
        at: Logical,
        found: &mut Found,
        todo: &mut Vec<(Logical, u8)>,
    ) -> Result<Option<Logical>> {
        let level = found.level();
        let key = BlockView::new(&found.bytes).first_key().unwrap_or(Key::MIN);
        let path = self.engine.trees.tree(owner)?.path_to(&key, level)?;
        if path.last() != Some(&at) {
            let ends = path.last().map_or(0, |end| end.0);
            let expected = Detail::Number(ends);
            return Err(Corrupt::new("block that its tree leads to", expected, Detail::Number(at.0))
                .at(At::Key(owner, key))
                .into());
        }
        let ways = path.iter().rev().zip(level..).skip(1);
        todo.extend(ways.map(|(block, level)| (*block, level)));
        if path.len() == 1 {
            found.root_of = Some(owner);
        }
        Ok(path.len().checked_sub(2).and_then(|index| path.get(index)).copied())
    }

    /// Adds a data extent that was copied, and everything that leads to it; nothing where no reference is left.
    ///
    /// # Errors
    /// As [`Self::add_block`].
    pub(crate) fn add_data(&mut self, moved: DataMove) -> Result<()> {
        let engine = self.engine;
        let holders = backrefs(&engine.core.extent, &engine.pending.refs, moved.from)?;
        for holder in &holders {
            match holder.holder {
                RefKey::SharedData { parent } => self.add_block(parent, 0)?,
                RefKey::DataRef { root, inode, offset } => {
                    for leaf in self.leaves_of(moved.from, root, inode, offset, holder.count)? {
                        self.add_block(leaf, 0)?;
                    }
                }
                RefKey::TreeRef { .. } | RefKey::SharedTree { .. } => {
                    return Err(wrong(moved.from, "reference to data", Detail::Text("one of data"), 0));
                }
            }
        }
        if holders.is_empty() {
            return Ok(());
        }
        let kind = ExtentKind::Data { len: moved.len };
        let info = lookup(&engine.core.extent, &engine.pending.refs, moved.from, kind, &engine.extent_sizes())?;
        let generation = info.generation.unwrap_or(Generation(0));
        let owner = known(&engine.core.extent, moved.from)?.and_then(|known| known.owner);
        self.data.insert(moved.from, FoundData { moved, generation, holders, owner });
        Ok(())
    }

    /// The leaves of a subvolume in which a file refers to a data extent.
    fn leaves_of(&self, at: Logical, root: TreeId, inode: InodeNo, offset: u64, count: u64) -> Result<Vec<Logical>> {
        // An item stands at this offset in the file plus its own within the extent; the first may be "before" 0.
        let first = if offset.cast_signed() < 0 { 0 } else { offset };
        let from = Key::new(inode.0, EXTENT_DATA, first);
        let to = Key::new(inode.0, EXTENT_DATA, u64::MAX);
        let mut leaves = Vec::new();
        let mut seen = 0u64;
        self.engine.trees.tree(root)?.each_leaf(&from, &to, |_, leaf| {
            let mut is_here = false;
            each_use(leaf.at, &leaf.data, |used| {
                let is_this = (used.inode, used.offset, used.at) == (inode, offset, at);
                is_here |= is_this;
                seen += u64::from(is_this);
            })?;
            if is_here {
                leaves.push(leaf.at);
            }
            Ok(if seen >= count { Scan::Stop } else { Scan::Continue })
        })?;
        Ok(leaves)
    }

    /// Fails where references and pointers contradict each other.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn check(&self) -> Result<()> {
        let mut pointers = self.pointers.clone();
        let mut uses: BTreeMap<(Logical, RefKey), u64> = BTreeMap::new();
        for (at, found) in &self.blocks {
            for (_, child, _) in children(&found.bytes) {
                if self.blocks.contains_key(&child) && !pointers.remove(&(*at, child)) {
                    return Err(wrong(child, "parent of the tree block", Detail::Text("one that it is held by"), at.0));
                }
            }
            if found.level() == 0 && !self.data.is_empty() {
                each_use(*at, &found.bytes, |used| {
                    if self.data.contains_key(&used.at) {
                        *uses.entry((used.at, found.data_holder(*at, used.inode, used.offset))).or_insert(0) += 1;
                    }
                })?;
            }
        }
        if let Some((parent, child)) = pointers.first() {
            return Err(wrong(*child, "parent of the tree block", Detail::Number(parent.0), 0));
        }
        for (at, data) in &self.data {
            for held in &data.holders {
                let count = uses.remove(&(*at, held.holder)).unwrap_or(0);
                if count != held.count {
                    return Err(wrong(*at, "uses of the data extent", Detail::Number(held.count), count));
                }
            }
        }
        match uses.into_iter().next() {
            Some(((at, _), count)) => Err(wrong(at, "uses of the data extent", Detail::Number(0), count)),
            None => Ok(()),
        }
    }
}

/// A file's use of a data extent.
pub(crate) struct Use {
    pub(crate) at: Logical,
    pub(crate) inode: InodeNo,
    /// File offset minus offset within the extent, wrapping.
    pub(crate) offset: u64,
}

/// Shows the uses of data extents in a leaf. A node has none.
///
/// # Errors
/// `Corrupt` for an item that cannot be read.
pub(crate) fn each_use(at: Logical, bytes: &[u8], mut see: impl FnMut(Use)) -> Result<()> {
    let Some(DiskBlock::Leaf(leaf)) = DiskBlock::new(bytes) else { return Ok(()) };
    for (key, bytes) in leaf.iter().filter(|(key, _)| key.item_type == EXTENT_DATA) {
        if let FileExtent::Extent(item) = FileExtent::parse(bytes).map_err(|error| error.at(At::Block(at)))?
            && !item.is_hole()
        {
            see(Use {
                at: Logical(item.disk_bytenr.get()),
                inode: InodeNo(key.objectid),
                offset: key.offset.wrapping_sub(item.offset.get()),
            });
        }
    }
    Ok(())
}

fn check_level(at: Logical, expected: u8, found: u8) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(wrong(at, "level of the tree block", Detail::Number(expected.into()), found.into())),
    }
}

#[cold]
fn wrong(at: Logical, what: &'static str, expected: Detail, found: u64) -> crate::Error {
    Corrupt::new(what, expected, Detail::Number(found)).at(At::Data(at)).into()
}
