//! Permits or refuses calls on subvolumes, as the kernel does on a mount that permits users to delete subvolumes
//! (`user_subvol_rm_allowed`). One difference: the owner deletes a read-only subvolume in one step, which takes two
//! there (make it writable, then delete it). `remote::serve` makes the calls.
//!
//! The user that the kernel reports decides. The user that a request names counts only if the caller may act for
//! others.

use vfs::NodeId;
use vfs::file_system::{Answer, Caller, Entry, Errno, SnapshotMode, Subvolumes};

use super::{Permitted, READ, SEARCH, WRITE};

impl Permitted {
    fn extension(&self) -> Answer<&dyn Subvolumes> {
        self.fs.subvolumes().ok_or_else(|| Errno::EOPNOTSUPP.into())
    }

    fn may_delete(&self, parent: NodeId, name: &[u8], root: NodeId) -> Answer<()> {
        if self.extension()?.mode(root)? == SnapshotMode::ReadOnly {
            self.owns_node(root)?;
        }
        self.may(root, WRITE | SEARCH)?;
        self.may_remove(parent, name)
    }
}

impl Subvolumes for Permitted {
    /// Permitted to all who may make a directory in `parent`.
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change_names(parent)?;
        self.extension()?.create(&self.caller(caller), self.real(parent), name)
    }

    /// Permitted to the owner of the source: a snapshot copies all files, also those that other users may not read.
    fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()> {
        self.may_change_names(parent)?;
        self.owns_node(source)?;
        self.may(source, READ)?;
        self.extension()?.snapshot(self.real(source), self.real(parent), name, mode)
    }

    /// Needs permission to change names in the subvolume too, because its files are deleted with it.
    fn delete(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.may_change()?;
        // Without search permission the caller may not learn whether the name exists.
        self.may(parent, SEARCH)?;
        let found = self.fs.lookup(self.real(parent), name)?;
        let deleted = self.delete_root(parent, name, found.node);
        self.fs.forget(found.node, 1);
        deleted
    }

    fn delete_root(&self, parent: NodeId, name: &[u8], root: NodeId) -> Answer<()> {
        self.may_change()?;
        self.may(parent, SEARCH)?;
        self.may_delete(parent, name, root)?;
        self.extension()?.delete_root(self.real(parent), name, root)
    }

    fn mode(&self, root: NodeId) -> Answer<SnapshotMode> {
        self.extension()?.mode(self.real(root))
    }

    fn set_mode(&self, root: NodeId, mode: SnapshotMode) -> Answer<()> {
        self.may_change()?;
        self.owns_node(root)?;
        self.extension()?.set_mode(self.real(root), mode)
    }

    fn forget_received(&self, root: NodeId) -> Answer<()> {
        self.may_change()?;
        self.owns_node(root)?;
        self.extension()?.forget_received(self.real(root))
    }

    /// Permitted to root and the user of the server: the default subvolume belongs to the whole volume.
    fn set_default(&self, root: NodeId) -> Answer<()> {
        self.may_change()?;
        self.may_administer()?;
        self.extension()?.set_default(self.real(root))
    }

    /// Refused: users reach subvolumes by path only, so that permissions on the way are checked.
    fn root(&self, _number: u64) -> Answer<Entry> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
