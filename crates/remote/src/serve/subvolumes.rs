//! Changes subvolumes for a client, and finds the names that the kernel has to drop from its cache after them. Called
//! by `serve`.

use vfs::FileSystem as _;
use vfs::file_system::{Answer, Caller, Errno};

use super::Session;
use crate::subvolume_call::SubvolumeCall;

impl Session {
    pub(super) fn change_subvolumes(&self, call: &SubvolumeCall<'_>) -> Answer<()> {
        let fs = self.permitted.subvolumes().ok_or(Errno::EOPNOTSUPP)?;
        let watch = &self.host.watch;
        match *call {
            SubvolumeCall::Create { owner: (uid, gid), parent, name } => {
                let parent = self.known(parent)?;
                fs.create(&Caller { uid, gid, pid: 0 }, parent, name)?;
                watch.name(parent, name);
            }
            SubvolumeCall::Snapshot { source, parent, name, mode } => {
                let (source, parent) = (self.known(source)?, self.known(parent)?);
                fs.snapshot(source, parent, name, mode)?;
                watch.name(parent, name);
            }
            SubvolumeCall::Delete { parent, name } => {
                let parent = self.known(parent)?;
                fs.delete(parent, name)?;
                watch.name(parent, name);
            }
            SubvolumeCall::SetMode { root, mode } => {
                let root = self.known(root)?;
                fs.set_mode(root, mode)?;
                watch.attributes(root);
            }
            SubvolumeCall::ForgetReceived { root } => fs.forget_received(self.known(root)?)?,
            SubvolumeCall::SetDefault { root } => fs.set_default(self.known(root)?)?,
        }
        Ok(())
    }
}
