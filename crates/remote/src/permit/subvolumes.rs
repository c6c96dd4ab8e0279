//! Permissions on subvolumes, as in the kernel's btrfs with `user_subvol_rm_allowed`. One difference: the owner deletes
//! a read-only subvolume in one step, which takes two there (make it writable, then delete it).
//!
//! [`super::Who`] decides, which the kernel reports for the socket. The user that a request names counts only if the
//! client may act for other users.

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

    /// A file that extents may be shared into. Sharing changes no contents, so the owner needs no write permission, and
    /// a read-only subvolume does not refuse it.
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

    /// Permitted to all who may make a directory in `parent`.
    pub(crate) fn create_subvolume(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change_names(parent)?;
        self.extension()?.create(&self.caller(caller), self.real(parent), name)
    }

    /// Permitted to the owner of the source: a snapshot copies all files, also those that other users may not read.
    pub(crate) fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()> {
        self.may_change_names(parent)?;
        self.owns_node(source)?;
        self.may(source, READ)?;
        self.extension()?.snapshot(self.real(source), self.real(parent), name, mode)
    }

    /// Needs permission to change names in the subvolume too, because its files are deleted with it.
    pub(crate) fn delete_subvolume(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.writes()?;
        // Without search permission the caller may not learn whether the name exists.
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

    /// Permitted to root and the user of the server: the default subvolume belongs to the whole volume.
    pub(crate) fn set_default_subvolume(&self, root: NodeId) -> Answer<()> {
        self.writes()?;
        self.is_root_or_serves()?;
        self.extension()?.set_default(self.real(root))
    }
}
