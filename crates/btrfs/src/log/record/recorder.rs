//! [`Recorder`]: copies inodes of one subvolume into its log. Each fsync makes one.

use std::collections::HashSet;
use std::ops::Range;

use btrfs_disk::items::{InodeExtrefEntry, OnDisk};
use btrfs_disk::key::item_type::{INODE_EXTREF, INODE_ITEM, INODE_REF, XATTR_ITEM};
use btrfs_disk::{Corrupt, InodeNo, Key, TreeId};
use btrfs_store::{Scan, Txn};

use super::ITEMS_MAX;
use super::plan::{Items, Plan};
use crate::dir::Namespace;
use crate::error::Error;
use crate::inode::{Inode, InodeState};
use crate::notes::Note;

/// Why an inode cannot be put into the log.
#[derive(Debug)]
pub(super) enum Stop {
    /// A log cannot record it, or it would cost more than a commit: the transaction is committed instead.
    NeedsCommit,
    /// A tree cannot be read.
    Failed(Error),
}

/// The result of a step of a recording.
pub(super) type Result<T, E = Stop> = std::result::Result<T, E>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSpace(_) => Self::NeedsCommit,
            error => Self::Failed(error),
        }
    }
}

impl From<btrfs_store::Error> for Stop {
    fn from(error: btrfs_store::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Corrupt> for Stop {
    fn from(error: Corrupt) -> Self {
        Error::from(error).into()
    }
}

/// Length of a chain of inodes that lead to each other: beyond, a commit is cheaper.
const DEPTH_MAX: usize = 128;

/// Copies inodes of one subvolume into the log of the running transaction.
pub(super) struct Recorder<'a> {
    pub(super) names: &'a Namespace,
    pub(super) txn: &'a Txn,
    pub(super) tree: TreeId,
    pub(super) plan: Plan,
    /// Inodes whose names are in the plan, or are being added.
    pub(super) visited: HashSet<InodeNo>,
    depth: usize,
}

/// The parts of an inode beside its contents and entries.
pub(super) struct Base {
    /// Its item first.
    pub(super) items: Items,
    /// Its names: directory and name.
    pub(super) names: Vec<(InodeNo, Vec<u8>)>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(names: &'a Namespace, txn: &'a Txn, tree: TreeId) -> Self {
        Self { names, txn, tree, plan: Plan::default(), visited: HashSet::new(), depth: 0 }
    }

    /// Runs `act` on an inode that the present one leads to, one level deeper.
    pub(super) fn deeper(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if self.depth >= DEPTH_MAX || self.plan.item_count() > ITEMS_MAX {
            return Err(Stop::NeedsCommit);
        }
        self.depth += 1;
        let done = act(self);
        self.depth -= 1;
        done
    }

    pub(super) fn is_new(&self, inode: &Inode) -> bool {
        inode.state().generation == self.txn.generation()
    }

    pub(super) fn note_logged(&self, inode: &Inode, change_count: u64) {
        inode.note(self.txn, |note| note.set_logged(change_count));
    }

    /// The present inode item, names and attributes.
    pub(super) fn base(&self, inode: &Inode) -> Result<Base> {
        let ino = inode.ino().0;
        let mut items: Items = vec![item_of(inode, &inode.state())];
        let range = Key::new(ino, INODE_REF, 0)..Key::new(ino, XATTR_ITEM, u64::MAX);
        items.extend(collect(inode, &range)?);
        let mut names = Vec::new();
        for (key, bytes) in &items {
            if matches!(key.item_type, INODE_REF | INODE_EXTREF) {
                for entry in InodeExtrefEntry::iter_either(key, bytes) {
                    let entry = entry?;
                    names.push((entry.parent, entry.name.to_vec()));
                }
            }
        }
        Ok(Base { items, names })
    }

    pub(super) fn note_of(&self, ino: InodeNo) -> Note {
        self.noted(ino, Note::clone).unwrap_or_default()
    }

    pub(super) fn noted<R>(&self, ino: InodeNo, look: impl FnOnce(&Note) -> R) -> Option<R> {
        self.names.core.notes.look(self.txn.generation(), self.tree, ino, look)
    }
}

impl Base {
    /// The inode item alone, for an inode of which the log has the rest.
    pub(super) fn item_only(inode: &Inode) -> Self {
        Self { items: vec![item_of(inode, &inode.state())], names: Vec::new() }
    }
}

fn item_of(inode: &Inode, state: &InodeState) -> (Key, Vec<u8>) {
    (Key::new(inode.ino().0, INODE_ITEM, 0), state.to_item().bytes().to_vec())
}

/// The items of a range, if they are not too many.
pub(super) fn collect(inode: &Inode, range: &Range<Key>) -> Result<Items> {
    let mut items = Items::new();
    inode.root.tree.scan(&range.start, &range.end, |key, bytes| {
        items.push((*key, bytes.to_vec()));
        Ok(if items.len() > ITEMS_MAX { Scan::Stop } else { Scan::Continue })
    })?;
    if items.len() > ITEMS_MAX { Err(Stop::NeedsCommit) } else { Ok(items) }
}
