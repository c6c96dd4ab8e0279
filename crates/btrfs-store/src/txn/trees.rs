//! Holds the open trees, with their root items. The engine owns them.

use std::sync::Arc;

use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::{OnDisk, RootItem};
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank, RwLock};
use crate::tree::{Edit, EditItem, Forest, RootPtr, Tree, TreeKind};
use crate::{Error, Result};

/// Trees that stay open without use; more only if they are in use.
const OPEN_MAX: usize = 2048;

/// A tree, and the item in the root tree that describes it.
pub(crate) struct OpenTree {
    pub(crate) tree: Arc<Tree>,
    /// Offset of the root item's key: 0, or the generation a snapshot was made in.
    pub(crate) key_offset: u64,
    pub(crate) item: Mutex<RootItem>,
}

impl OpenTree {
    fn key(&self) -> Key {
        Key::new(self.tree.id().0, ROOT_ITEM, self.key_offset)
    }
}

/// The open trees, except the root tree and the chunk tree, which have no
/// root items and are found through the superblock.
pub(crate) struct Trees {
    forest: Arc<Forest>,
    pub(crate) root_tree: Arc<Tree>,
    pub(crate) chunk_tree: Arc<Tree>,
    open: RwLock<Open>,
}

struct Open {
    by_id: NumberMap<TreeId, Arc<OpenTree>>,
    /// Count at which the next sweep runs.
    sweep_at: usize,
}

impl Open {
    /// Closes subvolumes that are not in use, and whose root items are written: a file system may have any number of
    /// them. No other reference can appear meanwhile, since each is taken from the table.
    fn sweep(&mut self) {
        let is_used = |slot: &Arc<OpenTree>| Arc::strong_count(slot) > 1 || Arc::strong_count(&slot.tree) > 1;
        self.by_id.retain(|id, slot| !id.is_subvolume() || is_used(slot) || slot.tree.is_changed());
        self.sweep_at = OPEN_MAX.max(self.by_id.len().saturating_mul(2));
    }
}

impl Trees {
    pub(crate) fn new(forest: Arc<Forest>, root_tree: Arc<Tree>, chunk_tree: Arc<Tree>) -> Self {
        Self {
            forest,
            root_tree,
            chunk_tree,
            open: RwLock::new(Rank::Counters, Open { by_id: NumberMap::default(), sweep_at: OPEN_MAX }),
        }
    }

    pub(crate) fn forest(&self) -> &Arc<Forest> {
        &self.forest
    }

    /// The tree with this number.
    ///
    /// # Errors
    /// [`Error::NoSuchTree`], or when its root item cannot be read.
    pub(crate) fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        match id {
            TreeId::ROOT => Ok(Arc::clone(&self.root_tree)),
            TreeId::CHUNK => Ok(Arc::clone(&self.chunk_tree)),
            _ => Ok(Arc::clone(&self.slot(id)?.tree)),
        }
    }

    /// The tree if there is one.
    pub(crate) fn try_tree(&self, id: TreeId) -> Result<Option<Arc<Tree>>> {
        match self.tree(id) {
            Ok(tree) => Ok(Some(tree)),
            Err(Error::NoSuchTree(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn slot(&self, id: TreeId) -> Result<Arc<OpenTree>> {
        if let Some(slot) = self.open.read().by_id.get(&id) {
            return Ok(Arc::clone(slot));
        }
        let (key, item) = self.find(id)?;
        Ok(self.adopt(id, key.offset, item))
    }

    /// The root item of a tree, which is not opened for it: a list of all subvolumes would keep each of them in memory.
    ///
    /// # Errors
    /// As [`Self::tree`].
    pub(crate) fn item(&self, id: TreeId) -> Result<RootItem> {
        let open = self.open.read().by_id.get(&id).map(Arc::clone);
        match open {
            Some(slot) => Ok(*slot.item.lock()),
            None => Ok(self.find(id)?.1),
        }
    }

    fn find(&self, id: TreeId) -> Result<(Key, RootItem)> {
        let last = Key::new(id.0, ROOT_ITEM, u64::MAX);
        let found = self.root_tree.at_or_before(&last)?;
        let found = found.filter(|(key, _)| key.objectid == id.0 && key.item_type == ROOT_ITEM);
        let (key, bytes) = found.ok_or(Error::NoSuchTree(id))?;
        Ok((key, RootItem::read(&bytes)?))
    }

    /// Opens a tree whose root item is in the root tree, or will be.
    pub(crate) fn adopt(&self, id: TreeId, key_offset: u64, item: RootItem) -> Arc<OpenTree> {
        let kind = if id.is_subvolume() { TreeKind::Shareable } else { TreeKind::Single };
        let root = RootPtr {
            at: Logical(item.bytenr.get()),
            level: item.level,
            generation: Generation(item.generation.get()),
        };
        let tree = Arc::new(Tree::new(Arc::clone(&self.forest), id, kind, root));
        tree.set_last_snapshot(Generation(item.last_snapshot.get()));
        let nodesize = btrfs_disk::convert::to_u64(self.forest.nodesize);
        tree.set_block_count(item.bytes_used.get() / nodesize);
        let item = Mutex::new(Rank::Counters, item);
        let slot = Arc::new(OpenTree { tree, key_offset, item });
        let mut open = self.open.write();
        if open.by_id.len() >= open.sweep_at {
            open.sweep();
        }
        Arc::clone(open.by_id.entry(id).or_insert(slot))
    }

    pub(crate) fn forget(&self, id: TreeId) {
        self.open.write().by_id.remove(&id);
    }

    /// True when a root item has to be written.
    pub(crate) fn is_any_changed(&self) -> bool {
        let changed = self.forest.changed();
        let open = self.open.read();
        changed.iter().filter_map(|id| open.by_id.get(id)).any(|slot| slot.tree.is_changed())
    }

    /// Writes the root items of the trees whose root moved; true when any did.
    pub(crate) fn write_root_items(&self, edit: &Edit<'_>) -> Result<bool> {
        let ids = self.forest.take_changed();
        let changed: Vec<Arc<OpenTree>> = {
            let open = self.open.read();
            ids.iter().filter_map(|id| open.by_id.get(id)).filter(|slot| slot.tree.take_changed()).cloned().collect()
        };
        for slot in &changed {
            self.write_root_item(edit, slot)?;
        }
        Ok(!changed.is_empty())
    }

    fn write_root_item(&self, edit: &Edit<'_>, slot: &OpenTree) -> Result<()> {
        let root = slot.tree.root_ptr();
        let nodesize = btrfs_disk::convert::to_u64(self.forest.nodesize);
        let mut item = *slot.item.lock();
        // A receiver identifies a state of a subvolume by this number. A read-only subvolume keeps it when it is moved.
        let is_writable = !item.root_flags().contains(RootFlags::SUBVOL_RDONLY);
        if slot.tree.id().is_subvolume() && is_writable && item.generation.get() != root.generation.0 {
            item.ctransid = root.generation.0.into();
        }
        item.bytenr = root.at.0.into();
        item.level = root.level;
        item.generation = root.generation.0.into();
        item.generation_v2 = root.generation.0.into();
        item.last_snapshot = slot.tree.last_snapshot().0.into();
        item.bytes_used = slot.tree.block_count().saturating_mul(nodesize).into();
        *slot.item.lock() = item;
        edit.edit(&self.root_tree, &slot.key(), |_| Ok(EditItem::Put(item.bytes().to_vec())))
    }
}
