//! Defines references to nodes, which release the node when they are dropped, and resolves paths of a stream to them.
//! Used by `receiver`, `subvolume`, `origins` and `leftovers`.

use crate::error::Cause;
use crate::path::{self, BadPath};
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{Attr, Entry, Errno, NodeId};

/// A referenced node. Dropping it releases the reference.
pub(crate) struct NodeRef {
    fs: Arc<dyn FileSystem>,
    entry: Entry,
}

impl NodeRef {
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, entry: Entry) -> Self {
        Self { fs: Arc::clone(fs), entry }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.entry.node
    }

    /// Attributes of the node when it was looked up.
    pub(crate) fn attr(&self) -> &Attr {
        &self.entry.attr
    }

    /// Looks up a name in this directory. Other subvolumes are refused.
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

impl Drop for NodeRef {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// Resolves a path from `root`, the root of a subvolume, name by name.
pub(crate) fn walk(root: &Arc<NodeRef>, path: &[u8]) -> Result<Arc<NodeRef>, Cause> {
    let mut at = Arc::clone(root);
    for name in path::names(path)? {
        at = Arc::new(at.child(name)?);
    }
    Ok(at)
}

/// True if file flags forbade the operation.
pub(crate) fn is_forbidden(cause: &Cause) -> bool {
    matches!(cause, Cause::Refused(error) if error.errno() == Errno::EPERM)
}
