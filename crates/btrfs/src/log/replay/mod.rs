//! Replays a log that a crash left behind: its changes become part of its subvolumes.
//!
//! Every subvolume's log is read three times, so that objects an item refers to exist
//! when its turn comes:
//!
//! ```text
//! 1  inodes        made or overwritten; names and attributes that the log has no more removed;
//!                  files cut to their size                                     (inode, names)
//! 2  positions     names that the log's directories have                       (names)
//! 3  the rest      attributes, back references with their names, extents       (refs, extents)
//! then             link counts from the back references; inodes without names become orphans,
//!                  directories among them lose their names first               (links)
//! ```
//!
//! The rules are those of the kernel's replay, also where another choice would do: the image is the same, whichever
//! program replays it. Names come from `DIR_INDEX` items and `DIR_LOG_INDEX` ranges; `DIR_ITEM` and `DIR_LOG_ITEM`,
//! which kernels before 5.17 logged beside them, are redundant and skipped.
//!
//! Invariants
//! * Nothing is committed before all of it is done; then it is committed once, with a superblock
//!   that leads to no log. A crash before that leaves the log, which is then replayed again.
//! * Items of the log are looked at in batches, without any lock, since replay edits trees.
//! * An object that the log leads to and that does not exist (a name's inode, an inode's directory) was not synced, and
//!   is skipped where the kernel skips it.
//!
//! Failure: whatever contradicts the subvolume is `Corrupt`, with the key in the log; the volume is
//! not opened for writing then, and nothing on the device has changed.
//!
//! Caller: `volume::open`, before anything else changes a volume.

mod extents;
mod inode;
mod links;
mod log_tree;
mod names;
mod refs;

use std::collections::BTreeSet;
use std::sync::Arc;

use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key, Logical, TreeId};
use btrfs_store::{FoundLog, Txn};

use crate::dir::Namespace;
use crate::error::{CallerError, Error, Result};
use crate::inode::{Inode, InodeState, Root};
use log_tree::LogTree;

/// Replays the log of a volume that was opened for writing, if it has one, and commits.
///
/// # Errors
/// `Corrupt`, `NoSpace`; those of reading and writing.
pub(crate) fn run(namespace: &Namespace) -> Result<()> {
    let store = &namespace.core.store;
    let Some(log) = store.read_log()? else {
        return Ok(());
    };
    let mut used = BTreeSet::new();
    for (id, tree) in log.trees() {
        let root = match namespace.core.root(*id) {
            Ok(root) => root,
            // The subvolume was deleted after its last fsync.
            Err(error) if error.caller_error() == Some(CallerError::NoSuchSubvolume) => continue,
            Err(error) => return Err(error),
        };
        let mut replay = Replay {
            namespace,
            found: &log,
            log: LogTree::new(Arc::clone(tree)),
            root,
            touched: BTreeSet::new(),
            used: &mut used,
        };
        replay.run()?;
    }
    store.finish_replay(log, &used)?;
    Ok(())
}

/// One of the three passes over a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Inodes,
    Positions,
    Rest,
}

/// The replay of one subvolume's log.
struct Replay<'a> {
    namespace: &'a Namespace,
    found: &'a FoundLog,
    log: LogTree,
    root: Arc<Root>,
    /// Inodes whose links have to be counted in the end.
    touched: BTreeSet<InodeNo>,
    /// Data that only the log referred to and that has a reference now.
    used: &'a mut BTreeSet<Logical>,
}

impl Replay<'_> {
    fn run(&mut self) -> Result<()> {
        for pass in [Pass::Inodes, Pass::Positions, Pass::Rest] {
            self.go_through(pass)?;
        }
        self.fix_links()
    }

    fn go_through(&mut self, pass: Pass) -> Result<()> {
        let mut next = Some(Key::MIN);
        // An inode without names that a program had open: it was removed with its last name.
        let mut passed_over = None;
        while let Some(from) = next {
            let batch = self.log.batch(&from)?;
            next = batch.last().and_then(|(key, _)| key.next());
            for (key, bytes) in &batch {
                if key.item_type == item_type::INODE_ITEM && is_inode_number(key.objectid) {
                    let state = InodeState::from_item(bytes)?;
                    passed_over = (state.nlink == 0).then_some(key.objectid);
                }
                if passed_over == Some(key.objectid) {
                    continue;
                }
                self.item(pass, key, bytes).map_err(|error| blame(error, key))?;
            }
        }
        Ok(())
    }

    fn item(&mut self, pass: Pass, key: &Key, bytes: &[u8]) -> Result<()> {
        if !is_inode_number(key.objectid) {
            // Checksums are looked up with the extents.
            return Ok(());
        }
        match (pass, key.item_type) {
            (Pass::Inodes, item_type::INODE_ITEM) => self.inode(InodeNo(key.objectid), bytes),
            (Pass::Positions, item_type::DIR_INDEX) => self.position(key, bytes),
            (Pass::Rest, item_type::XATTR_ITEM) => self.attribute(key, bytes),
            (Pass::Rest, item_type::INODE_REF | item_type::INODE_EXTREF) => self.refs(key, bytes),
            (Pass::Rest, item_type::EXTENT_DATA) => self.extent(key, bytes),
            _ => Ok(()),
        }
    }

    /// The present inode; `None` when there is none of that number.
    fn find(&self, ino: InodeNo) -> Result<Option<Arc<Inode>>> {
        if !is_inode_number(ino.0) {
            return Ok(None);
        }
        match self.namespace.core.inode(self.root.id, ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The inode, which must exist.
    fn inode_of(&self, ino: InodeNo) -> Result<Arc<Inode>> {
        match self.find(ino)? {
            Some(inode) => Ok(inode),
            None => {
                let (expected, found) = (Detail::Text("an inode"), Detail::Text("none"));
                let wrong = Corrupt::new("number in the log", expected, found);
                Err(wrong.at(At::Inode(self.root.id, ino)).into())
            }
        }
    }

    /// Makes a change of about `items` items.
    fn change<R>(&self, items: usize, change: impl FnOnce(&Txn) -> Result<R>) -> Result<R> {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        let reservation = match self.namespace.reserve(items) {
            // A durable promise may use the reserve for removals.
            Err(Error::NoSpace(_)) => self.namespace.reserve_urgent(items)?,
            result => result?,
        };
        self.namespace.apply(reservation, change)
    }
}

fn is_inode_number(number: u64) -> bool {
    (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&number)
}

/// Blames the log for errors that look like a caller's mistake: there is no caller.
fn blame(error: Error, key: &Key) -> Error {
    let Some(what) = error.caller_error() else {
        return error;
    };
    let found = match what {
        CallerError::Exists => "one that is there already",
        CallerError::NotADirectory => "a name in something else than a directory",
        CallerError::NameTooLong | CallerError::TooManyLinks => "one that has no room",
        _ => "one that cannot be",
    };
    let expected = Detail::Text("a change that fits the subvolume");
    Corrupt::new("item of the log", expected, Detail::Text(found)).at(At::Key(TreeId::TREE_LOG, *key)).into()
}
