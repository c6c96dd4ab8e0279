//! Subvolumes by path.

use std::path::Path;

use btrfs_disk::TreeId;

use super::Volume;
use super::walk::Follow;
use crate::error::{CallerError, Error, Result};
use crate::subvol::{self, NewSubvolume, SnapshotMode, SubvolumeInfo};

/// Permission bits of a new subvolume's root directory.
const SUBVOLUME_PERMISSIONS: u32 = 0o755;

impl Volume {
    /// All subvolumes and snapshots but the top level, in the order of their numbers.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        subvol::list(self.namespace())
    }

    /// Makes an empty subvolume.
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<TreeId> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        let (uid, gid) = self.inner.owner;
        let new = NewSubvolume { xattrs: &[], permissions: SUBVOLUME_PERMISSIONS, uid, gid };
        let made = subvol::create(self.namespace(), &dir, name, new);
        made.and_then(|id| self.sync_marked(&dir).map(|()| id)).map_err(|error| error.at(path))
    }

    /// Makes a snapshot of the subvolume at `source`, with everything that was written to it
    /// before the call. Subvolumes inside of it are empty directories in the snapshot.
    ///
    /// # Errors
    /// `InvalidArgument` when `source` is no subvolume, and as [`Volume::create_dir`].
    pub fn snapshot(&self, source: impl AsRef<Path>, target: impl AsRef<Path>, mode: SnapshotMode) -> Result<TreeId> {
        let source = self.subvolume_at(source.as_ref())?;
        let target = target.as_ref();
        let (dir, name) = self.find_parent(target)?;
        subvol::snapshot(self.namespace(), source, &dir, name, mode)
            .and_then(|id| self.sync_marked(&dir).map(|()| id))
            .map_err(|error| error.at(target))
    }

    /// Deletes the subvolume or snapshot at `path` with everything in it, and gives its space
    /// back. Files of it that are open can be read and written until they are closed; the space
    /// comes back with the last of them. A crash meanwhile leaves the rest to the next open for
    /// writing.
    ///
    /// # Errors
    /// `InvalidArgument` when it is no subvolume, `Busy` when it is the default subvolume or the
    /// one that paths start in, `NotEmpty` when it contains other subvolumes, `ReadOnly`.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        let deleted = self.subvolume_at(path)?;
        if deleted == self.inner.top {
            return Err(Error::from(CallerError::Busy).at(path));
        }
        let result = subvol::delete(self.namespace(), &dir, name)
            .and_then(|()| self.sync_marked(&dir))
            .and_then(|()| subvol::drop_dead_trees(self.namespace()));
        result.map_err(|error| error.at(path))
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

    /// The subvolume whose root is at `path`.
    fn subvolume_at(&self, path: &Path) -> Result<TreeId> {
        let found = self.walker().find(path, Follow::AllButLast)?;
        if !found.is_subvolume_root() {
            return Err(Error::from(CallerError::InvalidArgument).at(path));
        }
        Ok(found.tree)
    }
}
