//! Finds the subvolumes that reach an extent, in one state. Called by `txn/quotas`, before and after the changes of a
//! commit.

use std::collections::BTreeSet;
use std::rc::Rc;

use btrfs_disk::error::Detail;
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{InodeNo, Key, Logical, TreeId};

use super::walk::{State, Subvolume, wrong};
use crate::Result;
use crate::extent::{ExtentKind, Known, RefKey, known};
use crate::hash::NumberMap;
use crate::quota::Roots;
use crate::tree::{Tree, check_level_max, layout};

/// Most bytes of a file in a compressed extent, which has fewer bytes on disk.
const COMPRESSED_BYTES_MAX: u64 = 1 << 20;

/// A search for the subvolumes that reach extents, with the answers it has found.
pub(crate) struct Reach<'a> {
    state: State<'a>,
    /// The extent tree of that state.
    extents: &'a Tree,
    /// Results for tree blocks, including those that a search passed through.
    blocks: NumberMap<u64, Roots>,
    /// The sets with a single subvolume. Most results are such sets, and share them.
    single: NumberMap<TreeId, Roots>,
    no_roots: Roots,
}

impl<'a> Reach<'a> {
    pub(crate) fn new(state: State<'a>, extents: &'a Tree) -> Self {
        let (blocks, single) = (NumberMap::default(), NumberMap::default());
        Self { state, extents, blocks, single, no_roots: Roots::default() }
    }

    /// The subvolumes that reach the extent at `at`; none where there is no extent.
    ///
    /// # Errors
    /// `Corrupt` where references lead nowhere; errors of reading.
    pub(crate) fn roots(&mut self, at: Logical, kind: ExtentKind) -> Result<Roots> {
        match kind {
            ExtentKind::Tree { level } => self.of_block(at, level),
            ExtentKind::Data { len } => self.of_data(at, len),
        }
    }

    fn of_block(&mut self, at: Logical, level: u8) -> Result<Roots> {
        if let Some(roots) = self.blocks.get(&at.0) {
            return Ok(Rc::clone(roots));
        }
        check_level_max(at, level)?;
        let Some(known) = known(self.extents, at)? else { return Ok(Rc::clone(&self.no_roots)) };
        let roots = match self.only_reached_by(&known)? {
            Some(only) => self.just(only),
            None => {
                let mut all = BTreeSet::new();
                for holder in known.holders {
                    let above = self.of_holder(at, level, holder)?;
                    all.extend(above.iter().copied());
                }
                Rc::new(all)
            }
        };
        self.blocks.insert(at.0, Rc::clone(&roots));
        Ok(roots)
    }

    fn of_holder(&mut self, at: Logical, level: u8, holder: RefKey) -> Result<Roots> {
        match holder {
            RefKey::SharedTree { parent } => self.of_block(parent, level + 1),
            RefKey::TreeRef { owner } if !owner.is_subvolume() => Ok(Rc::clone(&self.no_roots)),
            RefKey::TreeRef { owner } => match self.parent_in(owner, at, level)? {
                Some(parent) => self.of_block(parent, level + 1),
                None => Ok(self.just(owner)),
            },
            RefKey::DataRef { .. } | RefKey::SharedData { .. } => {
                Err(wrong(at, "reference to the tree block", Detail::Text("one of a tree block"), 0))
            }
        }
    }

    fn of_data(&mut self, at: Logical, len: u64) -> Result<Roots> {
        let Some(known) = known(self.extents, at)? else { return Ok(Rc::clone(&self.no_roots)) };
        if let Some(only) = self.only_reached_by(&known)? {
            return Ok(self.just(only));
        }
        let mut all = BTreeSet::new();
        for holder in known.holders {
            match holder {
                RefKey::SharedData { parent } => all.extend(self.of_block(parent, 0)?.iter().copied()),
                RefKey::DataRef { root, .. } if !root.is_subvolume() => {}
                RefKey::DataRef { root, inode, offset } => {
                    for leaf in self.leaves_of((at, len), root, inode, offset)? {
                        all.extend(self.of_block(leaf, 0)?.iter().copied());
                    }
                }
                RefKey::TreeRef { .. } | RefKey::SharedTree { .. } => {
                    return Err(wrong(at, "reference to data", Detail::Text("one of data"), 0));
                }
            }
        }
        Ok(Rc::new(all))
    }

    /// The one tree that all references belong to, where the extent is younger than that tree's last snapshot: the
    /// blocks that lead to it are younger, too, and so belong to that tree alone.
    fn only_reached_by(&mut self, known: &Known) -> Result<Option<TreeId>> {
        let mut trees = known.holders.iter().map(|holder| match holder {
            RefKey::TreeRef { owner } => Some(*owner),
            RefKey::DataRef { root, .. } => Some(*root),
            RefKey::SharedTree { .. } | RefKey::SharedData { .. } => None,
        });
        let Some(Some(only)) = trees.next() else { return Ok(None) };
        if !only.is_subvolume() || !trees.all(|tree| tree == Some(only)) {
            return Ok(None);
        }
        let Some(subvolume) = self.state.subvolume(only)? else { return Ok(None) };
        Ok((known.generation > subvolume.last_snapshot).then_some(only))
    }

    /// The block of a tree that leads to another; none where that is its root.
    fn parent_in(&mut self, tree: TreeId, at: Logical, level: u8) -> Result<Option<Logical>> {
        let root = self.subvolume(tree, at)?.root;
        if root.at == at {
            return Ok(None);
        }
        let bytes = self.state.block(at, level)?;
        let key = if layout::nritems(&bytes) > 0 { layout::key_at(&bytes, 0) } else { Key::MIN };
        let (found, ..) = self.state.way_down(root, &key, level)?;
        if found != at {
            return Err(wrong(at, "block that its tree leads to", Detail::Number(at.0), found.0));
        }
        let (parent, ..) = self.state.way_down(root, &key, level + 1)?;
        Ok(Some(parent))
    }

    /// The leaves of a subvolume in which a file refers to a data extent.
    fn leaves_of(
        &mut self,
        (at, len): (Logical, u64),
        tree: TreeId,
        inode: InodeNo,
        offset: u64,
    ) -> Result<Vec<Logical>> {
        let root = self.subvolume(tree, at)?.root;
        // A file item is at `offset` plus its own offset in the extent. `offset` may be negative; no item is before 0.
        let first = if offset.cast_signed() < 0 { 0 } else { offset };
        let last = offset.wrapping_add(len.max(COMPRESSED_BYTES_MAX));
        let (from, to) = (Key::new(inode.0, EXTENT_DATA, first), Key::new(inode.0, EXTENT_DATA, last.max(first)));
        let mut leaves = Vec::new();
        self.state.each_item(root, &from, &to, |leaf_at, key, bytes| {
            if leaves.last() != Some(&leaf_at)
                && let FileExtent::Extent(item) = FileExtent::parse(bytes)?
                && item.disk_bytenr.get() == at.0
                && key.offset.wrapping_sub(item.offset.get()) == offset
            {
                leaves.push(leaf_at);
            }
            Ok(())
        })?;
        if leaves.is_empty() {
            return Err(wrong(at, "uses of the data extent", Detail::AtLeast(1), 0));
        }
        Ok(leaves)
    }

    fn subvolume(&mut self, tree: TreeId, at: Logical) -> Result<Subvolume> {
        let found = self.state.subvolume(tree)?;
        found.ok_or_else(|| wrong(at, "tree that refers to the extent", Detail::Text("one that is there"), tree.0))
    }

    fn just(&mut self, tree: TreeId) -> Roots {
        Rc::clone(self.single.entry(tree).or_insert_with(|| Rc::new(BTreeSet::from([tree]))))
    }
}
