//! Holds dirty nodes and pages: changed and not yet written. Readers look here before they read the device; `change`
//! fills it, `change/flush` and `change/commit` write it.

#![expect(clippy::arithmetic_side_effects, reason = "counts of pages in memory")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::node::Footer;
use f2fs_disk::{Block, Nid};

use crate::error::{Error, Result};

/// The dirty pages of a file.
pub(crate) type Pages = BTreeMap<u64, Arc<Block>>;

/// Dirty nodes and pages; none in a read-only volume.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) nodes: DirtyNodes,
    pub(crate) pages: DirtyPages,
}

/// Numbers of dirty blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirtyCount {
    pub(crate) nodes: u64,
    pub(crate) pages: u64,
}

impl Dirty {
    pub(crate) fn count(&self) -> DirtyCount {
        DirtyCount { nodes: to_u64(self.nodes.len()), pages: self.pages.count }
    }
}

/// Dirty nodes.
#[derive(Debug, Default)]
pub(crate) struct DirtyNodes {
    blocks: HashMap<Nid, Arc<Block>>,
    /// Inodes with their nodes: an fsync looks for those of one inode.
    by_inode: BTreeSet<(Nid, Nid)>,
}

impl DirtyNodes {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn get(&self, nid: Nid) -> Option<&Arc<Block>> {
        self.blocks.get(&nid)
    }

    /// A dirty node.
    ///
    /// # Errors
    /// [`Error::Bug`] if it is not dirty.
    pub(crate) fn get_mut(&mut self, nid: Nid) -> Result<&mut Arc<Block>> {
        self.blocks.get_mut(&nid).ok_or_else(|| Error::bug("node to be written", "one that changed"))
    }

    pub(crate) fn insert(&mut self, nid: Nid, block: Arc<Block>) {
        self.by_inode.insert((Footer::of(&block).ino(), nid));
        self.blocks.insert(nid, block);
    }

    pub(crate) fn remove(&mut self, nid: Nid) {
        if let Some(block) = self.blocks.remove(&nid) {
            self.by_inode.remove(&(Footer::of(&block).ino(), nid));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.by_inode.clear();
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Nid, &Arc<Block>)> {
        self.blocks.iter().map(|(nid, block)| (*nid, block))
    }

    /// The nodes of one inode, and the inode.
    pub(crate) fn of(&self, ino: Nid) -> impl Iterator<Item = (Nid, &Arc<Block>)> {
        let nids = self.by_inode.range((ino, Nid(0))..=(ino, Nid(u32::MAX)));
        nids.filter_map(|(_, nid)| Some((*nid, self.blocks.get(nid)?)))
    }
}

/// Dirty pages of files and directories.
#[derive(Debug, Default)]
pub(crate) struct DirtyPages {
    files: HashMap<Nid, Pages>,
    count: u64,
}

impl DirtyPages {
    /// Pages of all files.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The files with dirty pages, in the order of their numbers.
    pub(crate) fn files(&self) -> Vec<Nid> {
        let mut files: Vec<Nid> = self.files.keys().copied().collect();
        files.sort_unstable();
        files
    }

    pub(crate) fn of(&self, ino: Nid) -> Option<&Pages> {
        self.files.get(&ino)
    }

    /// Number of dirty pages of a file.
    pub(crate) fn count_of(&self, ino: Nid) -> usize {
        self.files.get(&ino).map_or(0, BTreeMap::len)
    }

    pub(crate) fn get(&self, ino: Nid, index: u64) -> Option<&Arc<Block>> {
        self.files.get(&ino)?.get(&index)
    }

    /// Number of pages from `index` on, at most `count`, before the first dirty one.
    pub(crate) fn unchanged(&self, ino: Nid, index: u64, count: u64) -> u64 {
        let next = self.files.get(&ino).and_then(|pages| pages.range(index..).next());
        next.map_or(count, |(next, _)| next.saturating_sub(index).min(count))
    }

    pub(crate) fn put(&mut self, ino: Nid, index: u64, page: Arc<Block>) {
        if self.files.entry(ino).or_default().insert(index, page).is_none() {
            self.count += 1;
        }
    }

    pub(crate) fn take(&mut self, ino: Nid, index: u64) -> Option<Arc<Block>> {
        let pages = self.files.get_mut(&ino)?;
        let taken = pages.remove(&index);
        self.count -= u64::from(taken.is_some());
        if pages.is_empty() {
            self.files.remove(&ino);
        }
        taken
    }

    /// Removes all pages of a file from one on; returns their number.
    pub(crate) fn remove_from(&mut self, ino: Nid, from: u64) -> u64 {
        let Some(pages) = self.files.get_mut(&ino) else { return 0 };
        let removed = to_u64(pages.split_off(&from).len());
        self.count -= removed;
        if pages.is_empty() {
            self.files.remove(&ino);
        }
        removed
    }
}
