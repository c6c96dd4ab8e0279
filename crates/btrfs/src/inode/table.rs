//! Holds the inodes in memory by subvolume and number: a sharded map, bounded by forgetting inodes that can be read
//! again. [`super::Core`] owns it.

use std::sync::Arc;

use btrfs_disk::{Generation, InodeNo, TreeId};
use btrfs_store::hash::NumberMap;
use host::Shards;

use super::Inode;
use crate::error::{CallerError, Result};
use crate::locks::{Rank, RwLock};

/// Inodes kept in memory; more are kept only if they cannot be forgotten.
const INODES_MAX: usize = 1 << 16;
/// With more inodes than this, files that a server refers to may be forgotten too: requests have their numbers, and
/// they are read again. Only the count of the server's references is lost.
const KNOWN_MAX: usize = INODES_MAX / 2 * 3;
/// Shards of the table; a power of two.
const SHARD_COUNT: usize = 64;

type Map = NumberMap<(TreeId, InodeNo), Arc<Inode>>;

/// All inodes in memory.
#[derive(Debug)]
pub(crate) struct InodeTable {
    shards: Shards<RwLock<Shard>>,
}

#[derive(Debug)]
struct Shard {
    inodes: Map,
    /// Count at which the next sweep runs.
    sweep_at: usize,
    /// Counts removals. An item read while an inode was removed may be older than the inode's last change.
    departures: u64,
}

impl Default for InodeTable {
    fn default() -> Self {
        let shard = || {
            RwLock::new(
                Rank::Inodes,
                Shard { inodes: Map::default(), sweep_at: INODES_MAX / SHARD_COUNT, departures: 0 },
            )
        };
        Self { shards: Shards::new(SHARD_COUNT, shard) }
    }
}

impl InodeTable {
    /// The inode, if it is in memory.
    pub(crate) fn get(&self, tree: TreeId, ino: InodeNo) -> Option<Arc<Inode>> {
        let shard = self.shard(tree, ino).read();
        let inode = shard.inodes.get(&(tree, ino))?;
        inode.usage.touch();
        Some(Arc::clone(inode))
    }

    /// The inode, read by `load` when it is not in memory. No lock is held during `load`; its result is used only when
    /// no inode was removed from the shard meanwhile.
    pub(crate) fn get_or_load(
        &self,
        tree: TreeId,
        ino: InodeNo,
        running: Generation,
        load: impl Fn() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        loop {
            let shard = self.shard(tree, ino);
            let departures = {
                let shard = shard.read();
                if let Some(inode) = shard.inodes.get(&(tree, ino)) {
                    return Ok(Arc::clone(inode));
                }
                shard.departures
            };
            let loaded = Arc::new(load()?);
            let mut shard = shard.write();
            if let Some(inode) = shard.inodes.get(&(tree, ino)) {
                return Ok(Arc::clone(inode));
            }
            if loaded.root.is_deleted() {
                // Its subvolume was deleted meanwhile, and the inodes of that have been removed from the table.
                return Err(CallerError::NoSuchSubvolume.into());
            }
            if shard.departures == departures {
                shard.insert(&loaded, running);
                return Ok(loaded);
            }
        }
    }

    /// Adds an inode that is new on disk too.
    pub(crate) fn insert(&self, inode: &Arc<Inode>, running: Generation) {
        self.shard(inode.tree_id(), inode.ino()).write().insert(inode, running);
    }

    /// Forgets an inode that is gone from its tree.
    pub(crate) fn remove(&self, tree: TreeId, ino: InodeNo) {
        let mut shard = self.shard(tree, ino).write();
        let removed = shard.inodes.remove(&(tree, ino));
        shard.departures += 1;
        drop(shard);
        // The last reference to the inode may be dropped here: not under the lock.
        drop(removed);
    }

    /// Forgets the inodes of a deleted subvolume that are not open, and returns them: servers lose their references,
    /// which they might keep for ever. The others are removed by [`InodeTable::remove_unused`].
    pub(crate) fn remove_tree(&self, tree: TreeId) -> Vec<Arc<Inode>> {
        let mut removed = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write();
            let gone = shard.inodes.extract_if(|(of, _), inode| *of == tree && !inode.is_open());
            removed.extend(gone.map(|(_, inode)| inode));
            shard.departures += 1;
        }
        removed
    }

    /// Forgets an inode of a deleted subvolume that is not open any more; false when it is.
    pub(crate) fn remove_unused(&self, inode: &Inode) -> bool {
        let at = (inode.tree_id(), inode.ino());
        let mut shard = self.shard(at.0, at.1).write();
        let is_unused = !inode.is_open();
        let removed = if is_unused { shard.inodes.remove(&at) } else { None };
        shard.departures += 1;
        drop(shard);
        drop(removed);
        is_unused
    }

    /// True while this very inode is in the table.
    pub(crate) fn has(&self, inode: &Arc<Inode>) -> bool {
        let at = (inode.tree_id(), inode.ino());
        self.shard(at.0, at.1).read().inodes.get(&at).is_some_and(|known| Arc::ptr_eq(known, inode))
    }

    /// Calls `each` with every inode in memory that `select` accepts. No lock is held during `each`.
    pub(crate) fn for_each(
        &self,
        select: impl Fn(&Inode) -> bool,
        mut each: impl FnMut(&Arc<Inode>) -> Result<()>,
    ) -> Result<()> {
        for shard in &self.shards {
            let chosen: Vec<Arc<Inode>> = shard.read().inodes.values().filter(|inode| select(inode)).cloned().collect();
            chosen.iter().try_for_each(&mut each)?;
        }
        Ok(())
    }

    fn shard(&self, tree: TreeId, ino: InodeNo) -> &RwLock<Shard> {
        self.shards.of_pair(tree.0, ino.0)
    }
}

impl Shard {
    fn insert(&mut self, inode: &Arc<Inode>, running: Generation) {
        if self.inodes.len() >= self.sweep_at {
            self.sweep(running);
        }
        self.inodes.insert((inode.tree_id(), inode.ino()), Arc::clone(inode));
    }

    /// Forgets clean inodes without references that were not looked up since the last sweep. The next sweep runs when
    /// the shard has an eighth more than remain, and not before its share of [`INODES_MAX`], so a table full of inodes
    /// that cannot be forgotten costs little.
    fn sweep(&mut self, running: Generation) {
        let before = self.inodes.len();
        let keeps_known = before < KNOWN_MAX / SHARD_COUNT;
        self.inodes.retain(|_, inode| {
            let used = inode.usage.take_recently_used();
            let is_needed = Arc::strong_count(inode) > 1
                || inode.is_open()
                || inode.is_kept_for_server()
                || (inode.is_known() && keeps_known);
            used || is_needed || !inode.is_clean(running)
        });
        if self.inodes.len() < before {
            self.departures += 1;
        }
        self.sweep_at = (INODES_MAX / SHARD_COUNT).max(self.inodes.len() + self.inodes.len() / 8);
    }
}
