//! Makes, snapshots and deletes subvolumes by path: methods of `Volume`. The command `subvolume` and the crash explorer
//! use it.

use std::path::Path;

use super::{Volume, gone};
use crate::error::{Blame, Error, Result};
use crate::file_system::{Errno, Follow, NodeId, SnapshotMode, Subvolumes};

/// The cause of a refusal by a format without subvolumes.
#[derive(Debug)]
struct NoSubvolumes;

impl std::fmt::Display for NoSubvolumes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the format of this volume has no subvolumes")
    }
}

impl std::error::Error for NoSubvolumes {}

impl Volume {
    /// True when the format has subvolumes; without them the other methods about them fail with `EOPNOTSUPP`.
    #[must_use]
    pub fn has_subvolumes(&self) -> bool {
        self.fs.subvolumes().is_some()
    }

    /// Makes an empty subvolume.
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        let made = self.extension().and_then(|subvolumes| subvolumes.create(&self.caller, dir.node(), name));
        made.map_err(|error| gone(error).during("create_subvolume").at(path))
    }

    /// Makes a snapshot of the subvolume at `source`, with everything that was written to it before the call.
    ///
    /// # Errors
    /// As [`Subvolumes::snapshot`], and as [`Volume::create_dir`].
    pub fn snapshot(&self, source: impl AsRef<Path>, target: impl AsRef<Path>, mode: SnapshotMode) -> Result<()> {
        let source = source.as_ref();
        let from = self.find(source, Follow::AllButLast)?;
        let (dir, name) = self.find_parent(target.as_ref())?;
        let made = self.extension().and_then(|own| own.snapshot(from.node(), dir.node(), name, mode));
        made.map_err(|error| gone(error).during("snapshot").at(target))
    }

    /// Deletes the subvolume at `path` with everything in it.
    ///
    /// # Errors
    /// As [`Subvolumes::delete`].
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        let deleted = self.extension().and_then(|subvolumes| subvolumes.delete(dir.node(), name));
        deleted.map_err(|error| gone(error).during("delete_subvolume").at(path))
    }

    /// Makes the subvolume at `path` read-only, or writable again.
    ///
    /// # Errors
    /// As [`Subvolumes::set_mode`].
    pub fn set_subvolume_mode(&self, path: impl AsRef<Path>, mode: SnapshotMode) -> Result<()> {
        self.change_subvolume(path.as_ref(), |own, root| own.set_mode(root, mode))
    }

    /// Clears the received UUID of the subvolume at `path`.
    ///
    /// # Errors
    /// As [`Subvolumes::forget_received`].
    pub fn forget_received_at(&self, path: impl AsRef<Path>) -> Result<()> {
        self.change_subvolume(path.as_ref(), |own, root| own.forget_received(root))
    }

    /// Chooses the subvolume at `path` as the one that is opened when none is named.
    ///
    /// # Errors
    /// As [`Subvolumes::set_default`].
    pub fn choose_default_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        self.change_subvolume(path.as_ref(), |own, root| own.set_default(root))
    }

    fn change_subvolume(&self, path: &Path, change: impl FnOnce(&dyn Subvolumes, NodeId) -> Result<()>) -> Result<()> {
        let root = self.find(path, Follow::AllButLast)?;
        self.extension()
            .and_then(|own| change(own, root.node()))
            .map_err(|error| gone(error).during("change_subvolume").at(path))
    }

    fn extension(&self) -> Result<&dyn Subvolumes> {
        self.fs.subvolumes().ok_or_else(|| Error::new(Errno::EOPNOTSUPP, Blame::Program, NoSubvolumes))
    }
}
