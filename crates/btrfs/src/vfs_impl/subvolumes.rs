//! Implements the trait `Subvolumes`: makes and deletes subvolumes of an open volume, and makes them read-only or
//! writable. `vfs::Volume` calls it through the trait, and so does `remote`'s server, through `access`;
//! `control_change` calls `add_subvolume` for the ioctl that makes one.

use std::sync::Arc;

use btrfs_disk::items::Timespec;
use btrfs_disk::{Generation, TreeId};
use vfs::NodeId;
use vfs::file_system::{Answer, Caller, Entry, NewNode, NodeKind, SnapshotMode, Subvolumes};

use super::BtrfsFs;
use super::flags::is_list;
use super::nodes::Place;
use crate::error::{CallerError, Result};
use crate::inode::{Inode, ROOT_DIR_INO};
use crate::subvol::{self, NewSubvolume, Received};

/// Permission bits of a new subvolume's root directory, before the mask.
const SUBVOLUME_PERMISSIONS: u32 = 0o777;
/// FUSE passes no umask with an ioctl, so the usual one is assumed.
const UMASK: u32 = 0o022;

impl BtrfsFs {
    /// Makes a subvolume as the kernel does: the directory's default access list limits the permission bits but is not
    /// inherited, the umask applies as well, and the group is the caller's even if the directory has the set-group bit.
    pub(super) fn add_subvolume(&self, caller: &Caller, dir: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let wanted = NewNode { kind: NodeKind::Directory, permissions: SUBVOLUME_PERMISSIONS, ..NewNode::default() };
        let inherited = self.inherited(dir, &wanted)?;
        let xattrs = inherited.xattrs.iter().filter(|(name, _)| !is_list(name));
        let xattrs: Vec<(&[u8], &[u8])> = xattrs.map(|(name, value)| (*name, value.as_slice())).collect();
        let new = NewSubvolume {
            permissions: inherited.permissions & !UMASK,
            uid: caller.uid,
            gid: caller.gid,
            xattrs: &xattrs,
        };
        subvol::create(self.namespace(), dir, name, new)?;
        self.sync_marked(dir)
    }

    fn new_subvolume(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Result<()> {
        let dir = self.live_inode(parent)?;
        self.add_subvolume(caller, &dir, name)
    }

    /// The tree of the subvolume whose root node is `root`.
    ///
    /// # Errors
    /// `InvalidArgument` for another node.
    fn tree_of_root(&self, root: NodeId) -> Result<TreeId> {
        let inode = self.inode(root)?;
        if inode.is_subvolume_root() { Ok(inode.tree_id()) } else { Err(CallerError::InvalidArgument.into()) }
    }

    fn mode_of(&self, root: NodeId) -> Result<SnapshotMode> {
        let is_read_only = self.core().root(self.tree_of_root(root)?)?.is_read_only();
        Ok(if is_read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite })
    }

    fn forget_sender(&self, root: NodeId) -> Result<()> {
        let nothing = Received { uuid: [0; 16], sent: Generation(0) };
        subvol::note_received(self.namespace(), self.tree_of_root(root)?, &nothing, Timespec::default()).map(drop)
    }

    fn new_snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Result<()> {
        let source = self.tree_of_root(source)?;
        let dir = self.live_inode(parent)?;
        subvol::snapshot(self.namespace(), source, &dir, name, mode)?;
        self.sync_marked(&dir)
    }

    fn delete_subvolume(&self, parent: NodeId, name: &[u8], is_right: impl FnOnce(TreeId) -> bool) -> Result<()> {
        let dir = self.live_inode(parent)?;
        let found = self.find(&dir, name)?;
        if !found.is_subvolume_root() || found.tree == dir.tree_id() {
            return Err(CallerError::InvalidArgument.into());
        }
        if found.tree == self.nodes.top() {
            return Err(CallerError::Busy.into());
        }
        subvol::delete_if(self.namespace(), &dir, name, is_right)?;
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
        self.answer(self.delete_subvolume(parent, name, |_| true))
    }

    fn delete_root(&self, parent: NodeId, name: &[u8], root: NodeId) -> Answer<()> {
        let deleted = self.tree_of_root(root).and_then(|wanted| self.delete_subvolume(parent, name, |id| id == wanted));
        self.answer(deleted)
    }

    fn mode(&self, root: NodeId) -> Answer<SnapshotMode> {
        self.answer(self.mode_of(root))
    }

    fn set_mode(&self, root: NodeId, mode: SnapshotMode) -> Answer<()> {
        let is_read_only = mode == SnapshotMode::ReadOnly;
        let set = self.tree_of_root(root).and_then(|id| subvol::set_read_only(self.namespace(), id, is_read_only));
        self.answer(set)
    }

    fn forget_received(&self, root: NodeId) -> Answer<()> {
        self.answer(self.forget_sender(root))
    }

    fn set_default(&self, root: NodeId) -> Answer<()> {
        let set = self.tree_of_root(root).and_then(|id| subvol::set_default_subvolume(self.namespace(), id));
        self.answer(set)
    }

    fn root(&self, number: u64) -> Answer<Entry> {
        self.answer(self.subvolume_root(TreeId(number)))
    }
}
