//! Nodes that paths of a stream led to.

use crate::error::Cause;
use crate::path::{self, BadPath};
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{Attr, Entry, Errno, NodeId};

/// A node. Dropping it gives the reference back.
pub(crate) struct Held {
    fs: Arc<dyn FileSystem>,
    entry: Entry,
}

impl Held {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, entry: Entry) -> Self {
        Self { fs: Arc::clone(fs), entry }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.entry.node
    }

    /// What was known of the node when it was found.
    pub(crate) fn attr(&self) -> &Attr {
        &self.entry.attr
    }

    /// The node of this name in the directory that this is, which is not another subvolume.
    pub(crate) fn child(&self, name: &[u8]) -> Result<Self, Cause> {
        if !self.attr().is_dir() {
            return Err(BadPath::NotADirectory.into());
        }
        let child = Self::new(&self.fs, self.fs.lookup(self.node(), name)?);
        if child.attr().home.subvolume != self.attr().home.subvolume {
            return Err(BadPath::OtherSubvolume.into());
        }
        Ok(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// What a path leads to from `root`, the root of a subvolume, name by name.
pub(crate) fn walk(root: &Arc<Held>, path: &[u8]) -> Result<Arc<Held>, Cause> {
    let mut at = Arc::clone(root);
    for name in path::names(path)? {
        at = Arc::new(at.child(name)?);
    }
    Ok(at)
}

/// True for the refusal of what flags of a file forbid.
pub(crate) fn is_forbidden(cause: &Cause) -> bool {
    matches!(cause, Cause::Refused(error) if error.errno() == Errno::EPERM)
}
