//! READDIR and READDIRPLUS: list the entries of a directory in several calls.
//!
//! A cookie is the file system's own directory position, which stays the same as long as its entry exists. A listing
//! can therefore continue after changes of the directory, and after a restart of the server. The cookie verifier is
//! always zero.

use std::ops::Deref;

use vfs::FileSystem as _;
use vfs::NodeId;
use vfs::file_system::{Attr, DirEntry, DirSink, Entry};

use super::session::{Held, Outcome, Session};
use crate::number::to_usize;
use crate::wire::{DATA_BYTES_MAX, Status, Writer};

/// Bytes after the last entry: the end of the list, and `eof`.
const END_BYTES: usize = 8;
/// The cookie verifier.
const VERIFIER: u64 = 0;

/// Limits of the client on the size of the reply.
#[derive(Clone, Copy)]
struct Room {
    /// Names, inode numbers and cookies, without attributes and handles (`dircount`).
    names: usize,
    /// The whole result (`maxcount`).
    all: usize,
}

/// Writes entries of a directory to the reply while there is room.
struct Listing<'a, 'b> {
    session: &'a Session<'b>,
    dir: &'a Held<'b>,
    out: &'a mut Writer,
    /// Offset of the result in the reply.
    start: usize,
    room: Room,
    /// Bytes of names, inode numbers and cookies so far.
    name_bytes: usize,
    with_nodes: bool,
    /// Nodes to which the listing holds references.
    taken: Vec<NodeId>,
    count: usize,
    is_full: bool,
}

impl DirSink for Listing<'_, '_> {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.put(entry, None)
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        let is_taken = self.put(entry, node.map(|node| (node.node, &node.attr)));
        if let Some(node) = node.filter(|_| is_taken) {
            self.taken.push(node.node);
        }
        is_taken
    }
}

impl Listing<'_, '_> {
    /// Adds an entry. Returns false, and writes nothing, if there is no room.
    fn put(&mut self, entry: &DirEntry<'_>, node: Option<(NodeId, &Attr)>) -> bool {
        let before = self.out.len();
        // `..` of the exported directory is itself: clients see nothing above it.
        let is_base = self.dir.node == self.session.shared.base;
        let ino = if entry.name == b".." && is_base { self.dir.attr.ino } else { entry.ino };
        self.out.bool(true);
        self.out.u64(ino);
        self.out.opaque(entry.name);
        self.out.u64(entry.next);
        let names = self.out.len() - before;
        if self.with_nodes {
            self.session.put_attr(self.out, node.map(|(_, attr)| attr));
            self.session.put_handle(self.out, node);
        }
        let all = self.out.len() - self.start + END_BYTES;
        let is_first_name = self.count == 0;
        if all > self.room.all || (self.name_bytes + names > self.room.names && !is_first_name) {
            self.out.truncate(before);
            self.is_full = true;
            return false;
        }
        self.name_bytes += names;
        self.count += 1;
        true
    }
}

/// Procedures that list directories.
pub(super) struct Listings<'s, 'a>(pub(super) &'s Session<'a>);

impl<'a> Deref for Listings<'_, 'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        self.0
    }
}

impl Listings<'_, '_> {
    pub(super) fn read_dir(&self, dir: &[u8], cookie: u64, count: u32, out: &mut Writer) {
        let all = to_usize(count.min(DATA_BYTES_MAX));
        self.list(dir, cookie, Room { names: all, all }, false, out);
    }

    pub(super) fn read_dir_plus(&self, dir: &[u8], cookie: u64, dir_count: u32, max_count: u32, out: &mut Writer) {
        let room = Room { names: to_usize(dir_count), all: to_usize(max_count.min(DATA_BYTES_MAX)) };
        self.list(dir, cookie, room, true, out);
    }

    fn list(&self, dir: &[u8], cookie: u64, room: Room, with_nodes: bool, out: &mut Writer) {
        let start = out.len();
        let mut attr = None;
        let done = self.dir(dir).and_then(|dir| {
            attr = Some(dir.attr);
            out.u32(Status::OK.0);
            self.put_names(&dir, cookie, room, with_nodes, out)
        });
        if let Err(status) = done {
            out.truncate(start);
            out.u32(status.0);
            self.put_attr(out, attr.as_ref());
        }
    }

    fn put_names(&self, dir: &Held<'_>, cookie: u64, room: Room, with_nodes: bool, out: &mut Writer) -> Outcome<()> {
        let start = out.len();
        self.put_attr(out, Some(&dir.attr));
        out.u64(VERIFIER);
        let mut listing = Listing {
            session: self.0,
            dir,
            out,
            start,
            room,
            name_bytes: 0,
            with_nodes,
            taken: Vec::new(),
            count: 0,
            is_full: false,
        };
        let listed = self.view.read_dir(dir.node, cookie, with_nodes, &mut listing);
        let Listing { taken, count, is_full, .. } = listing;
        taken.into_iter().for_each(|node| self.shared.fs.forget(node, 1));
        listed?;
        if is_full && count == 0 {
            return Err(Status::TOOSMALL);
        }
        out.bool(false);
        out.bool(!is_full);
        Ok(())
    }
}
