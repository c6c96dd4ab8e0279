//! What of subvolumes only btrfs knows: their list, their flags, and which is the default.

use std::path::Path;

use btrfs_disk::TreeId;

use super::Volume;
use crate::error::{CallerError, Error, Result};
use crate::opened::Follow;
use crate::subvol::{self, Received, SubvolumeInfo};

impl Volume {
    /// All subvolumes and snapshots but the top level, in the order of their numbers.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        subvol::list(self.namespace())
    }

    /// Chooses the subvolume that is opened, and mounted, when none is named.
    ///
    /// # Errors
    /// `InvalidArgument` when `path` is no subvolume, `ReadOnly`.
    pub fn set_default_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let id = self.subvolume_at(path.as_ref())?;
        subvol::set_default_subvolume(self.namespace(), id).map_err(|error| error.at(path))
    }

    /// The number of the subvolume that is opened when none is named.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn default_subvolume(&self) -> Result<TreeId> {
        subvol::default_subvolume(self.namespace())
    }

    /// Makes a subvolume read-only, or writable again.
    ///
    /// # Errors
    /// `InvalidArgument` when `path` is no subvolume, `ReadOnly` (the volume).
    pub fn set_subvolume_read_only(&self, path: impl AsRef<Path>, read_only: bool) -> Result<()> {
        let id = self.subvolume_at(path.as_ref())?;
        subvol::set_read_only(self.namespace(), id, read_only).map_err(|error| error.at(path))
    }

    /// Ends the receipt of a subvolume: what it was received from is noted, and it is read-only from now on, both in
    /// one commit and durable when this returns.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, `ReadOnly`; what a sync can fail with.
    pub fn set_subvolume_received(&self, id: TreeId, received: &Received) -> Result<()> {
        subvol::set_received(self.namespace(), id, received)?;
        self.opened.sync()
    }

    /// The number of the subvolume whose root directory is at `path`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` where something else is there; damage, I/O.
    pub fn subvolume_at(&self, path: &Path) -> Result<TreeId> {
        let found = self.opened.walker().find(path, Follow::AllButLast)?;
        if !found.is_subvolume_root() {
            return Err(Error::from(CallerError::InvalidArgument).at(path));
        }
        Ok(found.tree)
    }
}
