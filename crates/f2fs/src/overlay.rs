//! Holds the nodes and names fsynced after the checkpoint, found by `recovery`: they replace those of the checkpoint.
//!
//! Nodes are identified by inode and offset, as the indirect nodes that will lead to new ones may not be written yet.
//! Callers: lookups of nodes and names (`read_volume`), and the replay (`change/replay`).

use std::collections::{BTreeMap, HashMap, HashSet};

use f2fs_disk::inode::Kind;
use f2fs_disk::{BlockAddr, Nid};

/// Names that recovery would make in a directory, with their inodes.
pub(crate) type Names = BTreeMap<Vec<u8>, (Nid, Option<Kind>)>;

/// Nodes and names that were fsynced since the checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    nodes: HashMap<(Nid, u32), BlockAddr>,
    /// All nodes of the log, even those replaced by later ones: the chain runs through all of them.
    log: Vec<BlockAddr>,
    files: HashSet<Nid>,
    names: HashMap<Nid, Names>,
}

impl Overlay {
    /// Adds a node of an inode, in place of one that was added before.
    pub(crate) fn add_node(&mut self, ino: Nid, offset: u32, at: BlockAddr) {
        self.nodes.insert((ino, offset), at);
        self.files.insert(ino);
    }

    /// Sets the addresses of the log's nodes.
    pub(crate) fn set_log(&mut self, log: Vec<BlockAddr>) {
        self.log = log;
    }

    /// Addresses of the log's nodes.
    pub(crate) fn log(&self) -> &[BlockAddr] {
        &self.log
    }

    /// Adds a name to a directory.
    pub(crate) fn add_name(&mut self, dir: Nid, name: &[u8], ino: Nid, kind: Kind) {
        self.names.entry(dir).or_default().insert(name.to_vec(), (ino, Some(kind)));
    }

    /// A node of an inode.
    pub(crate) fn node(&self, ino: Nid, offset: u32) -> Option<BlockAddr> {
        self.nodes.get(&(ino, offset)).copied()
    }

    /// True for an inode with nodes here.
    pub(crate) fn has(&self, ino: Nid) -> bool {
        self.files.contains(&ino)
    }

    /// New or changed names of a directory.
    pub(crate) fn names(&self, dir: Nid) -> Option<&Names> {
        self.names.get(&dir)
    }

    /// The fsynced nodes of each inode, by their offsets.
    pub(crate) fn files(&self) -> BTreeMap<Nid, BTreeMap<u32, BlockAddr>> {
        let mut files: BTreeMap<Nid, BTreeMap<u32, BlockAddr>> = BTreeMap::new();
        for ((ino, offset), at) in &self.nodes {
            files.entry(*ino).or_default().insert(*offset, *at);
        }
        files
    }

    /// All names that recovery would make.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (&Nid, &Names)> {
        self.names.iter()
    }

    /// Count of inodes with fsynced changes.
    pub(crate) fn file_count(&self) -> usize {
        self.files.len()
    }
}
