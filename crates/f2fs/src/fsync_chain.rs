//! Decides about an fsync, from the changes since the last checkpoint: whether nodes in the log of warm nodes can
//! record everything that it promises, or only a checkpoint can.
//!
//! Nodes record contents, size and attributes of a file, and one name of a new file. They record neither removed names
//! and nodes, nor changes of directories. Callers: `change` notes changes here, and `change/fsync` asks.

use std::collections::{HashMap, HashSet};

use f2fs_disk::Nid;
use f2fs_disk::convert::to_u64;

/// Most nodes of the chain; then a checkpoint is made, because opening the volume reads all of them.
const NODES_MAX: u64 = 16_384;
/// Most lost names that are remembered individually; beyond that all names count as lost.
const LOST_MAX: usize = 4096;
/// Nodes that a replay may have to write for one of the chain: it, and two indirect ones above it.
const NODES_OF_ONE: u64 = 3;
/// Blocks and nodes that a name may take.
const BLOCKS_OF_NAME: u64 = 8;

/// Changes since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// A checkpoint was written since the volume was opened. Before that, the log may hold nodes with the checkpoint's
    /// mark from before a crash.
    is_ours: bool,
    /// Inodes that the checkpoint does not have.
    fresh: HashSet<Nid>,
    /// Inodes that only a checkpoint can make durable.
    barred: HashSet<Nid>,
    /// Names that were removed or replaced, with their directories.
    lost: HashSet<(Nid, Vec<u8>)>,
    has_lost_all: bool,
    /// Number of nodes that fsyncs wrote, and of different ones.
    nodes: u64,
    different: HashSet<Nid>,
    /// Number of written pages of each file, each counted at least once, and of all.
    pages: HashMap<Nid, u64>,
    page_count: u64,
    /// Newly allocated blocks.
    reserved: u64,
}

impl Chain {
    /// Notes a checkpoint. A volume that it marks as closed gets no nodes behind it.
    pub(crate) fn committed(&mut self, is_closed: bool) {
        *self = Self { is_ours: !is_closed, ..Self::default() };
    }

    /// Notes a new inode.
    pub(crate) fn made(&mut self, ino: Nid) {
        self.fresh.insert(ino);
    }

    /// Notes a change of an inode that nodes cannot record.
    pub(crate) fn bar(&mut self, ino: Nid) {
        self.barred.insert(ino);
    }

    /// Notes that an inode was removed; its number is not reused before the next checkpoint.
    pub(crate) fn gone(&mut self, ino: Nid) {
        self.fresh.remove(&ino);
        self.barred.remove(&ino);
    }

    /// Notes that a name was removed, or leads to another inode.
    pub(crate) fn lost(&mut self, dir: Nid, name: &[u8]) {
        if self.lost.len() < LOST_MAX {
            self.lost.insert((dir, name.to_vec()));
        } else {
            self.has_lost_all = true;
        }
    }

    /// Notes written pages of a file that has at most `all`.
    pub(crate) fn wrote_pages(&mut self, ino: Nid, count: u64, all: u64) {
        let pages = self.pages.entry(ino).or_default();
        let now = pages.saturating_add(count).min(all.max(*pages));
        self.page_count = self.page_count.saturating_add(now.saturating_sub(*pages));
        *pages = now;
    }

    /// Notes allocated blocks.
    pub(crate) const fn reserved(&mut self, blocks: u64) {
        self.reserved = self.reserved.saturating_add(blocks);
    }

    /// Notes a node written by an fsync.
    pub(crate) fn wrote_node(&mut self, nid: Nid) {
        self.nodes = self.nodes.saturating_add(1);
        self.different.insert(nid);
    }

    /// True for an inode that the checkpoint does not have.
    pub(crate) fn is_fresh(&self, ino: Nid) -> bool {
        self.fresh.contains(&ino)
    }

    /// Most blocks that a replay may write, and how many of these count as newly in use, with `more` blocks of another
    /// fsync.
    pub(crate) fn replayed(&self, more: u64) -> (u64, u64) {
        let nodes = to_u64(self.different.len()).saturating_mul(NODES_OF_ONE);
        let names = to_u64(self.fresh.len()).saturating_mul(BLOCKS_OF_NAME);
        let besides = more.saturating_mul(NODES_OF_ONE).saturating_add(nodes).saturating_add(names);
        (self.page_count.saturating_add(besides), self.reserved.saturating_add(besides))
    }

    /// True if `count` further nodes can record what an fsync of an inode promises, which is called `name` in `dir`.
    pub(crate) fn can_say(&self, ino: Nid, (dir, name): (Nid, &[u8]), count: u64) -> bool {
        let has_name = || !self.fresh.contains(&dir) && !self.has_lost(dir, name);
        self.is_ours
            && !self.barred.contains(&ino)
            && (!self.is_fresh(ino) || has_name())
            && self.nodes.saturating_add(count) <= NODES_MAX
    }

    /// True where a directory may have lost a name.
    pub(crate) fn has_lost_in(&self, dir: Nid) -> bool {
        self.has_lost_all || self.lost.iter().any(|(of, _)| *of == dir)
    }

    fn has_lost(&self, dir: Nid, name: &[u8]) -> bool {
        self.has_lost_all || (!self.lost.is_empty() && self.lost.contains(&(dir, name.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_lost_are_bounded() {
        let mut chain = Chain::default();
        chain.committed(false);
        chain.made(Nid(9));
        assert!(chain.can_say(Nid(9), (Nid(3), b"new"), 1));
        for number in 0..=LOST_MAX {
            chain.lost(Nid(3), number.to_string().as_bytes());
        }
        assert!(chain.lost.len() <= LOST_MAX);
        assert!(!chain.can_say(Nid(9), (Nid(3), b"new"), 1), "it may be one of those that were not noted");
        chain.committed(false);
        assert!(chain.can_say(Nid(9), (Nid(3), b"new"), 1));
        chain.committed(true);
        assert!(!chain.can_say(Nid(9), (Nid(3), b"new"), 1));
    }
}
