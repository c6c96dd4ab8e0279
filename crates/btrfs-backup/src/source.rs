//! Defines [`Source`], the side that is backed up: a volume, or a mount through its server, as the command `backup` has
//! it. `backup` calls it.

use std::io::Write;
use std::path::Path;

use btrfs::{SendOptions, Volume};
use vfs::SnapshotMode;

use crate::error::{Error, Result};
use crate::state::{self, Found};

/// The options of the streams of backups: the same each time, so that an interrupted receipt can be resumed.
pub const SEND_OPTIONS: SendOptions =
    SendOptions { version: 2, compressed_data: true, no_data: false, rest_from: None, takes_changed: false };

/// The side that is backed up: a volume, or one that a server has open.
pub trait Source: Sync {
    /// The UUID of the subvolume at `path`, and those of the deleted subvolumes that it descends from.
    ///
    /// # Errors
    /// [`Error::NotASubvolume`]; those of the volume.
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>>;

    /// The subvolumes in a directory; none if there is no such directory.
    ///
    /// # Errors
    /// Those of the volume.
    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>>;

    /// Makes a read-only snapshot and the directories above it. Both are durable when it returns.
    ///
    /// # Errors
    /// Those of the volume.
    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()>;

    /// Deletes a subvolume.
    ///
    /// # Errors
    /// Those of the volume.
    fn delete(&self, path: &Path) -> Result<()>;

    /// Writes the stream of a subvolume with [`SEND_OPTIONS`]: all of it, or its difference to `parent`.
    ///
    /// # Errors
    /// [`Error::Send`].
    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()>;

    /// Its files, to compare a copy with them.
    fn files(&self) -> &vfs::Volume;
}

impl Source for Volume {
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>> {
        let id = self.subvolume_at(path).map_err(|_| Error::NotASubvolume(path.to_owned()))?;
        state::lineage(self, id)
    }

    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>> {
        state::subvolumes_in(self, dir)
    }

    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()> {
        self.create_dir_all(snapshot.parent().unwrap_or(Path::new("/")))?;
        if self.is_changed_since_receipt(self.subvolume_at(path)?)? {
            // A read-only snapshot of it would inherit the received UUID, which names another state.
            self.snapshot(path, snapshot, SnapshotMode::ReadWrite)?;
            self.set_subvolume_read_only(snapshot, true)?;
        } else {
            self.snapshot(path, snapshot, SnapshotMode::ReadOnly)?;
        }
        Ok(self.sync()?)
    }

    fn delete(&self, path: &Path) -> Result<()> {
        Ok(self.delete_subvolume(path)?)
    }

    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()> {
        let sent = Self::send(self, path, parent, &[], &SEND_OPTIONS, output);
        sent.map_err(|error| Error::Send { path: path.to_owned(), error })
    }

    fn files(&self) -> &vfs::Volume {
        self.by_paths()
    }
}
