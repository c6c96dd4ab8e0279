//! Holds a reference to a node and gives it back when it is dropped. Used by the other modules of `volume`.

use crate::file_system::{Attr, Entry, FileSystem, NodeAt, NodeId};

/// A node that a path led to. Dropping it gives the reference back.
pub(super) struct Held<'a> {
    fs: &'a dyn FileSystem,
    entry: Entry,
}

impl<'a> Held<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem, entry: Entry) -> Self {
        Self { fs, entry }
    }

    pub(super) fn node(&self) -> NodeId {
        self.entry.node
    }

    pub(super) fn attr(&self) -> &Attr {
        &self.entry.attr
    }

    /// The node without the guard: from here on the caller has to give the reference back.
    pub(super) fn keep(self) -> Entry {
        let entry = self.entry;
        std::mem::forget(self);
        entry
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// A directory that a path led to, for one request. Dropping it gives the reference back, if it is one.
pub(super) struct Parent<'a> {
    fs: &'a dyn FileSystem,
    at: NodeAt,
}

impl<'a> Parent<'a> {
    pub(super) fn new(fs: &'a dyn FileSystem, at: NodeAt) -> Self {
        Self { fs, at }
    }

    pub(super) fn node(&self) -> NodeId {
        self.at.node
    }
}

impl Drop for Parent<'_> {
    fn drop(&mut self) {
        if self.at.is_referenced {
            self.fs.forget(self.at.node, 1);
        }
    }
}
