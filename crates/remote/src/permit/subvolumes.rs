//! What a user may do with subvolumes: as in the kernel's btrfs with `user_subvol_rm_allowed`, and what takes two steps
//! there (to open a read-only one of one's own, then to delete it) in one.
//!
//! The server's client says who asks only as far as it may ask as another: everything is decided by [`super::Who`],
//! which the kernel told of the socket.

use vfs::NodeId;
use vfs::file_system::{Answer, Caller, Errno, SnapshotMode, Subvolumes};

use super::{Permitted, READ, SEARCH, WRITE};

impl Permitted {
    pub(crate) fn has_subvolumes(&self) -> bool {
        self.fs.subvolumes().is_some()
    }

    fn extension(&self) -> Answer<&dyn Subvolumes> {
        self.fs.subvolumes().ok_or_else(|| Errno::EOPNOTSUPP.into())
    }

    /// A file that extents may be shared into. That changes no contents, so its owner needs no permission to write, nor
    /// does a read-only subvolume refuse.
    pub(super) fn shared_into(&self, node: NodeId) -> Answer<NodeId> {
        self.writes()?;
        if self.owns_node(node).is_err() {
            self.may(node, WRITE)?;
        }
        Ok(self.real(node))
    }

    fn owns_node(&self, node: NodeId) -> Answer<()> {
        self.owns(&self.fs.attr(self.real(node))?)
    }

    /// Whoever may make a directory in `parent` may make a subvolume there.
    pub(crate) fn create_subvolume(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change_names(parent)?;
        self.extension()?.create(&self.caller(caller), self.real(parent), name)
    }

    /// A snapshot is a copy of everything, whoever may read it: only the source's owner takes one.
    pub(crate) fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()> {
        self.may_change_names(parent)?;
        self.owns_node(source)?;
        self.may(source, READ)?;
        self.extension()?.snapshot(self.real(source), self.real(parent), name, mode)
    }

    /// What is in a subvolume goes with it, whose it may be: so it takes the rights to change names in it, too.
    pub(crate) fn delete_subvolume(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.writes()?;
        // Of a name that may not be looked for nothing is told.
        self.may(parent, SEARCH)?;
        let own = self.extension()?;
        let found = self.fs.lookup(self.real(parent), name)?;
        let may = self.may_delete(own, parent, name, found.node);
        let deleted = may.and_then(|()| own.delete_root(self.real(parent), name, found.node));
        self.fs.forget(found.node, 1);
        deleted
    }

    fn may_delete(&self, own: &dyn Subvolumes, parent: NodeId, name: &[u8], root: NodeId) -> Answer<()> {
        if own.mode(root)? == SnapshotMode::ReadOnly {
            self.owns_node(root)?;
        }
        self.may(root, WRITE | SEARCH)?;
        self.may_remove(parent, name)
    }

    pub(crate) fn set_subvolume_mode(&self, root: NodeId, mode: SnapshotMode) -> Answer<()> {
        self.writes()?;
        self.owns_node(root)?;
        self.extension()?.set_mode(self.real(root), mode)
    }

    pub(crate) fn forget_received(&self, root: NodeId) -> Answer<()> {
        self.writes()?;
        self.owns_node(root)?;
        self.extension()?.forget_received(self.real(root))
    }

    /// The volume's as a whole: for root and who serves.
    pub(crate) fn set_default_subvolume(&self, root: NodeId) -> Answer<()> {
        self.writes()?;
        self.is_root_or_serves()?;
        self.extension()?.set_default(self.real(root))
    }
}
