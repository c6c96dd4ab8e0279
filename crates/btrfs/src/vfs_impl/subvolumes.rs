//! Subvolumes as what this format offers beyond the others.

use btrfs_disk::TreeId;
use vfs::NodeId;
use vfs::file_system::{Answer, Caller, Entry, SnapshotMode, Subvolumes};

use super::BtrfsFs;
use super::nodes::Place;
use crate::error::{CallerError, Result};
use crate::inode::ROOT_DIR_INO;
use crate::subvol::{self, NewSubvolume};

/// Permission bits of a new subvolume's root directory.
const SUBVOLUME_PERMISSIONS: u32 = 0o755;

impl BtrfsFs {
    fn new_subvolume(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.live_inode(parent)?;
        let new = NewSubvolume { xattrs: &[], permissions: SUBVOLUME_PERMISSIONS, uid: caller.uid, gid: caller.gid };
        subvol::create(self.namespace(), &dir, name, new)?;
        self.sync_marked(&dir)
    }

    fn new_snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Result<()> {
        let source = self.inode(source)?;
        if !source.is_subvolume_root() {
            return Err(CallerError::InvalidArgument.into());
        }
        let dir = self.live_inode(parent)?;
        subvol::snapshot(self.namespace(), source.tree_id(), &dir, name, mode)?;
        self.sync_marked(&dir)
    }

    fn delete_subvolume(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.live_inode(parent)?;
        let found = self.find(&dir, name)?;
        if !found.is_subvolume_root() || found.tree == dir.tree_id() {
            return Err(CallerError::InvalidArgument.into());
        }
        if found.tree == self.nodes.top() {
            return Err(CallerError::Busy.into());
        }
        subvol::delete(self.namespace(), &dir, name)?;
        self.sync_marked(&dir)?;
        subvol::drop_dead_trees(self.namespace())
    }

    fn subvolume_root(&self, tree: TreeId) -> Result<Entry> {
        if !tree.is_subvolume() {
            return Err(CallerError::NotFound.into());
        }
        let inode = self.core().inode(tree, ROOT_DIR_INO)?;
        if inode.root.is_deleted() {
            return Err(CallerError::NotFound.into());
        }
        self.entry(Place::Inode(tree, ROOT_DIR_INO), &inode)
    }
}

impl Subvolumes for BtrfsFs {
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.answer(self.new_subvolume(caller, parent, name))
    }

    fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()> {
        self.answer(self.new_snapshot(source, parent, name, mode))
    }

    fn delete(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.answer(self.delete_subvolume(parent, name))
    }

    fn root(&self, number: u64) -> Answer<Entry> {
        self.answer(self.subvolume_root(TreeId(number)))
    }
}
