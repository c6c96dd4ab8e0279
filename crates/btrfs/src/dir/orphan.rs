//! [`Hold`]: keeps an inode for the length of an operation that found it by a path. Called by `vfs_impl`, by path
//! resolution and by `volume::subvolumes`.
//!
//! An inode lives while it is held, with or without names: an item inserted for an inode whose items have been removed
//! would stay in the tree for ever.

use std::ops::Deref;
use std::sync::Arc;

use super::Namespace;
use crate::error::Result;
use crate::inode::Inode;

/// An inode kept for the length of one operation, which may not have it open.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    namespace: &'a Namespace,
    inode: Arc<Inode>,
}

impl Namespace {
    /// Keeps `inode` until the guard is dropped.
    ///
    /// # Errors
    /// `Stale` when its last name has just been removed.
    pub(crate) fn hold(&self, inode: &Arc<Inode>) -> Result<Hold<'_>> {
        inode.open()?;
        Ok(Hold { namespace: self, inode: Arc::clone(inode) })
    }
}

impl Deref for Hold<'_> {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // Where removal fails, the orphan item stays and the next open of the volume tries again.
        self.inode.close();
        let _ = self.namespace.reap_if_last(&self.inode);
    }
}
