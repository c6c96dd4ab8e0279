//! Sends calls on subvolumes to the server: implements `vfs::Subvolumes` for `Remote`, for commands on a mount.

use vfs::NodeId;
use vfs::file_system::{Answer, Caller, Entry, Errno, SnapshotMode, Subvolumes};

use super::Remote;
use crate::subvolume_call::SubvolumeCall;
use crate::wire::Request;

impl Remote {
    fn change(&self, call: SubvolumeCall<'_>) -> Answer<()> {
        self.forget_dirs();
        self.done(Request::Subvolume(call))
    }
}

impl Subvolumes for Remote {
    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.change(SubvolumeCall::Create { owner: (caller.uid, caller.gid), parent, name })
    }

    fn snapshot(&self, source: NodeId, parent: NodeId, name: &[u8], mode: SnapshotMode) -> Answer<()> {
        self.change(SubvolumeCall::Snapshot { source, parent, name, mode })
    }

    fn delete(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.change(SubvolumeCall::Delete { parent, name })
    }

    /// `_root` is not sent: the server looks up the name and compares the root itself.
    fn delete_root(&self, parent: NodeId, name: &[u8], _root: NodeId) -> Answer<()> {
        self.delete(parent, name)
    }

    /// Not needed: clients read the mode by ioctl, which the kernel passes for every user.
    fn mode(&self, _root: NodeId) -> Answer<SnapshotMode> {
        Err(Errno::EOPNOTSUPP.into())
    }

    fn set_mode(&self, root: NodeId, mode: SnapshotMode) -> Answer<()> {
        self.change(SubvolumeCall::SetMode { root, mode })
    }

    fn forget_received(&self, root: NodeId) -> Answer<()> {
        self.change(SubvolumeCall::ForgetReceived { root })
    }

    fn set_default(&self, root: NodeId) -> Answer<()> {
        self.change(SubvolumeCall::SetDefault { root })
    }

    /// Refused: a client reaches subvolumes by path only, so that permissions on the way are checked.
    fn root(&self, _number: u64) -> Answer<Entry> {
        Err(Errno::EOPNOTSUPP.into())
    }
}
