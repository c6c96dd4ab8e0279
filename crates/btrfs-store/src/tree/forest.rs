//! Holds trees, and the parts they share: the block cache and the source of blocks. The engine opens its trees in one
//! forest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::Result;
use crate::locks::{Mutex, Rank, RwLock};

use super::block::{Block, BlockSource, ReadExpect, ReadLocked, WriteLocked};
use super::cache::Cache;

/// The parts that all trees of a file system share.
pub struct Forest {
    pub(crate) cache: Cache,
    source: Arc<dyn BlockSource>,
    /// Trees whose root items have to be written: a commit would otherwise go over all that are open, among them every
    /// snapshot of the session.
    changed: Mutex<Vec<TreeId>>,
    pub(crate) nodesize: usize,
    pub(crate) fsid: [u8; 16],
    pub(crate) chunk_tree_uuid: [u8; 16],
}

impl Forest {
    /// A forest without trees. `cache_bytes` bounds the idle blocks in the cache.
    #[must_use]
    pub fn new(
        source: Arc<dyn BlockSource>,
        nodesize: usize,
        cache_bytes: usize,
        fsid: [u8; 16],
        chunk_tree_uuid: [u8; 16],
    ) -> Arc<Self> {
        let (cache, changed) = (Cache::new(cache_bytes, nodesize), Mutex::new(Rank::Counters, Vec::new()));
        Arc::new(Self { cache, source, changed, nodesize, fsid, chunk_tree_uuid })
    }

    /// The block at an address, from the cache, or read and verified. A cached block may have been read for another
    /// parent, with other expectations, so it is checked again.
    fn block(&self, expect: &ReadExpect) -> Result<Block> {
        let block = match self.cache.get(expect.at) {
            Some(block) => block,
            None => {
                let data = self.source.read_block(expect)?;
                self.cache.insert_read(Block::new(expect.at, data))
            }
        };
        block.check_identity(expect)?;
        Ok(block)
    }

    /// The block that a pointer leads to, locked for reading. The caller holds the lock of the block or root with the
    /// pointer.
    #[inline]
    pub(crate) fn read(&self, expect: &ReadExpect) -> Result<ReadLocked> {
        if let Some(locked) = self.cache.look(expect.at, |block| block.try_read(expect)) {
            return Ok(locked);
        }
        self.read_waiting(expect)
    }

    fn read_waiting(&self, expect: &ReadExpect) -> Result<ReadLocked> {
        Ok(self.block(expect)?.read(expect)?)
    }

    /// As [`Self::read`], locked for writing.
    #[inline]
    pub(crate) fn write(&self, expect: &ReadExpect) -> Result<WriteLocked> {
        if let Some(locked) = self.cache.look(expect.at, |block| block.try_write(expect)) {
            return Ok(locked);
        }
        self.write_waiting(expect)
    }

    fn write_waiting(&self, expect: &ReadExpect) -> Result<WriteLocked> {
        Ok(self.block(expect)?.write(expect)?)
    }

    /// Takes the numbers of the trees that were noted as changed, each once, in order.
    pub(crate) fn take_changed(&self) -> Vec<TreeId> {
        let mut changed = std::mem::take(&mut *self.changed.lock());
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// The trees that [`Self::take_changed`] would give, in any order.
    pub(crate) fn changed(&self) -> Vec<TreeId> {
        self.changed.lock().clone()
    }

    /// Drops a block from the cache, because nothing points to it any more.
    pub(crate) fn forget(&self, at: Logical) {
        self.cache.remove(at);
    }
}

impl std::fmt::Debug for Forest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forest").field("nodesize", &self.nodesize).finish_non_exhaustive()
    }
}

/// Where a tree's root block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPtr {
    /// Address.
    pub at: Logical,
    /// Level, 0 for a lone leaf.
    pub level: u8,
    /// Generation of the root block.
    pub generation: Generation,
}

impl RootPtr {
    /// The expected properties of the root block of `owner`, or of any tree.
    pub(crate) fn expect(&self, owner: Option<TreeId>) -> ReadExpect {
        ReadExpect { at: self.at, level: self.level, generation: self.generation, first_key: None, owner }
    }
}

/// Whether other trees can refer to a tree's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeKind {
    /// Subvolumes: snapshots share blocks, so a copy must look at the reference count.
    Shareable,
    /// All other trees: each block has one owner.
    Single,
}

/// A tree of items. Reads see the running transaction.
pub struct Tree {
    id: TreeId,
    kind: TreeKind,
    pub(crate) forest: Arc<Forest>,
    // Has the lock rank of blocks: a thread may lock it while it has locked blocks of a tree that comes first in the
    // order of trees (subvolumes, then the extent tree).
    pub(crate) root: RwLock<RootPtr>,
    last_snapshot: AtomicU64,
    is_changed: AtomicBool,
    /// Blocks of the tree, from which ROOT_ITEM's `bytes_used` is computed.
    block_count: AtomicU64,
}

impl Tree {
    /// A handle on a tree with this root.
    #[must_use]
    pub fn new(forest: Arc<Forest>, id: TreeId, kind: TreeKind, root: RootPtr) -> Self {
        Self {
            id,
            kind,
            forest,
            root: RwLock::new(Rank::TreeBlock, root),
            last_snapshot: AtomicU64::new(0),
            is_changed: AtomicBool::new(false),
            block_count: AtomicU64::new(0),
        }
    }

    /// The tree's number.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Whether its blocks may be shared.
    #[must_use]
    pub fn kind(&self) -> TreeKind {
        self.kind
    }

    /// The forest it belongs to.
    #[must_use]
    pub fn forest(&self) -> &Arc<Forest> {
        &self.forest
    }

    /// Where the root block is now.
    #[must_use]
    pub fn root_ptr(&self) -> RootPtr {
        *self.root.read()
    }

    /// Generation of the newest snapshot: blocks up to it may be shared.
    #[must_use]
    pub fn last_snapshot(&self) -> Generation {
        Generation(self.last_snapshot.load(Ordering::Relaxed))
    }

    /// Notes that a snapshot was taken (or, at open, that one had been).
    pub fn set_last_snapshot(&self, generation: Generation) {
        self.last_snapshot.store(generation.0, Ordering::Relaxed);
    }

    /// Sets the number of blocks, from the root item's `bytes_used`.
    pub fn set_block_count(&self, count: u64) {
        self.block_count.store(count, Ordering::Relaxed);
    }

    /// Blocks in the tree, the root included. If the root item gave no number, only those added since the open.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.block_count.load(Ordering::Relaxed)
    }

    /// Counts a new block (`1`) or a freed one (`-1`). The count began with the value in the root item, or with zero
    /// where there is none, so that more blocks may be freed than were counted.
    pub(crate) fn count_block(&self, change: i64) {
        let _ = self
            .block_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| Some(count.saturating_add_signed(change)));
    }

    /// Notes that the root item has to be written.
    pub(crate) fn note_changed(&self) {
        // The superblock has the roots of these, and the log writes its own.
        const WITHOUT_ITEM: [TreeId; 3] = [TreeId::ROOT, TreeId::CHUNK, TreeId::TREE_LOG];
        let was_changed = self.is_changed.swap(true, Ordering::AcqRel);
        if !was_changed && !WITHOUT_ITEM.contains(&self.id) {
            self.forest.changed.lock().push(self.id);
        }
    }

    /// Returns whether the root moved since the last call, so that the root item must be written.
    pub fn take_changed(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// True when the root moved since [`Self::take_changed`].
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Acquire)
    }

    /// A copy of the root block.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn root_bytes(&self) -> Result<Box<[u8]>> {
        let root = self.root.read();
        let block = self.forest.read(&self.expect(&root))?;
        Ok(block.data.clone())
    }

    /// A block of the tree that was found by walking its parents, the last of which is locked.
    pub(crate) fn read_for_walk(
        &self,
        at: Logical,
        level: u8,
        generation: Generation,
        first_key: Key,
    ) -> Result<ReadLocked> {
        let expect = ReadExpect { at, level, generation, first_key: Some(first_key), owner: Some(self.id) };
        self.forest.read(&expect)
    }

    /// Sets the root of a tree that is being made.
    pub(crate) fn set_root(&self, root: RootPtr) {
        *self.root.write() = root;
        self.block_count.store(1, Ordering::Relaxed);
        self.note_changed();
    }

    pub(crate) fn expect(&self, root: &RootPtr) -> ReadExpect {
        root.expect(Some(self.id))
    }
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("id", &self.id).finish_non_exhaustive()
    }
}
