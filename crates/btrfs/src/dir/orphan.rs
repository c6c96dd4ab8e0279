//! Open handles: an inode lives while somebody has it open, with or without names.
//!
//! Whoever changes an inode that he found by a path holds it: what is inserted for an inode whose
//! items have left the tree would stay there for ever.

use std::ops::Deref;
use std::sync::Arc;

use super::Namespace;
use crate::error::Result;
use crate::inode::Inode;

/// A handle that keeps an inode alive. The last handle on an inode without names removes it.
#[derive(Debug)]
pub struct OpenInode {
    namespace: Arc<Namespace>,
    inode: Arc<Inode>,
}

impl OpenInode {
    /// Opens `inode`.
    ///
    /// # Errors
    /// `Stale` when its last name has just gone.
    pub(crate) fn new(namespace: &Arc<Namespace>, inode: &Arc<Inode>) -> Result<Self> {
        inode.open()?;
        Ok(Self { namespace: Arc::clone(namespace), inode: Arc::clone(inode) })
    }

    /// A handle on an inode that was made without a name, and counts as open already.
    pub(crate) fn adopt(namespace: &Arc<Namespace>, inode: Arc<Inode>) -> Self {
        Self { namespace: Arc::clone(namespace), inode }
    }

    /// The inode.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }
}

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

impl Clone for OpenInode {
    fn clone(&self) -> Self {
        self.inode.open_again();
        Self { namespace: Arc::clone(&self.namespace), inode: Arc::clone(&self.inode) }
    }
}

impl Deref for OpenInode {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        // Where removal fails, the orphan item stays and the next open of the volume tries again.
        self.inode.close();
        let _ = self.namespace.reap_if_last(&self.inode);
    }
}
