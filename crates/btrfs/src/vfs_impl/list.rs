//! Lists the names of a directory, for servers and for `vfs::Volume`. Called by `file_system`.
//!
//! A position is the index of a name in its directory, which never changes: a listing that continues after it neither
//! repeats nor misses names that stay. `.` and `..` come before all indices.
//!
//! A name that is moved gets a new index at the end. So that a program that renames the files it lists does not list
//! them for ever, a listing that takes several requests stops where the directory ended when it began. Servers do not
//! tell which requests belong together: if several listings of a directory overlap, the one that began last sets the
//! end.

use std::ops::Range;

use vfs::NodeId;
use vfs::file_system::{DirEntry, DirSink, NodeKind};

use super::nodes::Place;
use super::{BtrfsFs, stale};
use crate::dir::{Found, Stored};
use crate::error::{CallerError, Result};
use crate::inode::Inode;

/// Position after `.`.
const BEHIND_DOT: u64 = 1;
/// Position after `..`: the first index that a name can have.
const BEHIND_DOTS: u64 = 2;
/// Names read with the first search: about as many as a server asks for.
const BATCH_NAMES_FIRST: usize = 32;
/// Most names read with a later search.
const BATCH_NAMES_MAX: usize = 512;

/// Names read with one search, one after the other in one buffer.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    names: Vec<(u64, Range<usize>, Stored)>,
}

/// The state of a listing.
struct Listing<'a> {
    fs: &'a BtrfsFs,
    dir: &'a Inode,
    with_nodes: bool,
    sink: &'a mut dyn DirSink,
}

impl BtrfsFs {
    pub(super) fn list_names(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Result<()> {
        let dir = self.inode(node)?;
        if !dir.kind().is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        if from == 0 {
            self.touch(&dir);
        }
        let mut listing = Listing { fs: self, dir: &dir, with_nodes, sink };
        if from < BEHIND_DOTS && !(dir.is_nameless() || listing.dots(node, from)?) {
            return Ok(());
        }
        let end = match from {
            0 => u64::MAX,
            _ => dir.listing_end().unwrap_or(u64::MAX),
        };
        let is_full = listing.names(from.max(BEHIND_DOTS)..end)?;
        if from == 0 && is_full {
            dir.set_listing_end(self.namespace().listing_end(&dir)?);
        }
        Ok(())
    }
}

impl Listing<'_> {
    /// Adds `.` and `..`; false when there is no more room.
    fn dots(&mut self, node: NodeId, from: u64) -> Result<bool> {
        let here = self.fs.nodes.place(node).ok_or(CallerError::Stale)?;
        if from < BEHIND_DOT && !self.dot(b".", self.fs.nodes.shown(node), BEHIND_DOT) {
            return Ok(false);
        }
        let above = self.fs.above(here)?;
        let ino = self.fs.nodes.shown_place(&above);
        Ok(self.dot(b"..", ino, BEHIND_DOTS))
    }

    fn dot(&mut self, name: &[u8], ino: u64, next: u64) -> bool {
        let entry = DirEntry { name, ino, kind: NodeKind::Directory, next };
        if self.with_nodes { self.sink.add_with_node(&entry, None) } else { self.sink.add(&entry) }
    }

    /// Adds the names at the positions of `range`; true when there was no room for all.
    fn names(&mut self, range: Range<u64>) -> Result<bool> {
        let (mut from, mut limit) = (range.start, BATCH_NAMES_FIRST);
        loop {
            // A rename removes a name and adds it elsewhere: do not read between the two.
            let batch = self.dir.read_between_moves(|| {
                let mut batch = Batch::default();
                self.fs.namespace().scan_names(self.dir, from, |index, name, stored| {
                    if index >= range.end {
                        return false;
                    }
                    let start = batch.bytes.len();
                    batch.bytes.extend_from_slice(name);
                    batch.names.push((index, start..batch.bytes.len(), stored));
                    batch.names.len() < limit
                })?;
                Ok(batch)
            })?;
            let count = batch.names.len();
            for (index, bytes, stored) in batch.names {
                from = index.saturating_add(1);
                if !self.name(from, batch.bytes.get(bytes).unwrap_or_default(), stored)? {
                    return Ok(true);
                }
            }
            if count < limit {
                return Ok(false);
            }
            limit = (limit * 2).min(BATCH_NAMES_MAX);
        }
    }

    /// Adds a name; false when there is no room for it.
    fn name(&mut self, next: u64, name: &[u8], stored: Stored) -> Result<bool> {
        let found = self.fs.namespace().resolve(self.dir, name, stored)?;
        let place = Place::of(found, self.dir.tree_id(), self.dir.ino(), name);
        let entry = DirEntry { name, ino: self.fs.nodes.shown_place(&place), kind: found.kind, next };
        if !self.with_nodes {
            return Ok(self.sink.add(&entry));
        }
        self.name_with_node(&entry, place, found)
    }

    fn name_with_node(&mut self, entry: &DirEntry<'_>, place: Place, found: Found) -> Result<bool> {
        let namespace = self.fs.namespace();
        let placed = namespace.check_place(self.dir, found);
        let inode = match placed.and_then(|()| namespace.inode(found)).map_err(stale) {
            Ok(inode) => inode,
            // Its last name was just removed, or given to another inode: the name existed.
            Err(error) if error.caller_error() == Some(CallerError::Stale) => {
                return Ok(self.sink.add_with_node(entry, None));
            }
            // One damaged inode does not hide its neighbours.
            Err(error) => {
                self.fs.faults.errno(&error);
                return Ok(self.sink.add_with_node(entry, None));
            }
        };
        let Ok(node) = self.fs.entry(place, &inode) else {
            return Ok(self.sink.add_with_node(entry, None));
        };
        let is_taken = self.sink.add_with_node(entry, Some(&node));
        if !is_taken {
            self.fs.forget_node(node.node, 1);
        }
        Ok(is_taken)
    }
}
