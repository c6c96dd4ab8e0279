//! Open handles: an inode lives while it is open, with or without names.
//!
//! An operation that changes an inode that it found by a path holds it: what is inserted for an inode whose
//! items have left the tree would stay there for ever.

use std::ops::Deref;
use std::sync::Arc;

use super::Namespace;
use crate::error::Result;
use crate::inode::Inode;

/// Keeps an inode for the length of one operation, which may not open it.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    namespace: &'a Namespace,
    inode: Arc<Inode>,
}

impl Namespace {
    /// Keeps `inode` until the answer is dropped.
    ///
    /// # Errors
    /// `Stale` when its last name has just gone.
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
