//! Defines [`Target`], the side in which a state is restored: a volume, or a mount through its server. `restore` calls
//! it.

use std::io::Read;
use std::path::{Path, PathBuf};

use btrfs::Volume;
use checking::Watch;
use vfs::SnapshotMode;

use crate::error::{Error, Result};
use crate::{state, transfer};

/// The side in which a state is restored: a volume, or one that a server has open. Every method fails with the errors
/// of the volume.
#[expect(clippy::missing_errors_doc, reason = "the errors of all are those of the volume")]
pub trait Target {
    /// True if there is something at the path.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Makes the working directory; an earlier one is deleted first.
    fn begin(&self, work: &Path) -> Result<()>;

    /// Receives a stream in the working directory; returns the path of the subvolume.
    fn receive(&self, input: &mut (dyn Read + Send), work: &Path, watch: &dyn Watch) -> Result<PathBuf>;

    /// Takes a writable snapshot of the received state and deletes the working directory. The received state is kept
    /// as `kept` if that name is free.
    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()>;

    /// True if the volume has a state, unchanged.
    fn has(&self, uuid: [u8; 16]) -> Result<bool>;

    /// Takes a writable snapshot of a state that the volume has.
    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()>;
}

impl Target for Volume {
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.by_paths().exists(path)?)
    }

    fn begin(&self, work: &Path) -> Result<()> {
        clear(self, work)?;
        Ok(self.create_dir(work)?)
    }

    fn receive(&self, input: &mut (dyn Read + Send), work: &Path, watch: &dyn Watch) -> Result<PathBuf> {
        transfer::last(&transfer::receive(self, work, false, input, watch)?)
    }

    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()> {
        self.snapshot(received, path, SnapshotMode::ReadWrite)?;
        if let Some(kept) = kept.filter(|kept| !self.by_paths().exists(kept).unwrap_or(true)) {
            self.create_dir_all(kept.parent().unwrap_or(Path::new("/")))?;
            // A read-only snapshot of it keeps the received UUID. The received subvolume itself cannot be moved out
            // of its directory, because it is read-only.
            self.snapshot(received, kept, SnapshotMode::ReadOnly)?;
        }
        clear(self, work)?;
        Ok(self.sync()?)
    }

    fn has(&self, uuid: [u8; 16]) -> Result<bool> {
        Ok(state::copy_of(self, uuid)?.is_some())
    }

    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()> {
        let state = state::copy_of(self, uuid)?.ok_or(Error::NothingReceived)?;
        self.snapshot_of(state, path, SnapshotMode::ReadWrite)?;
        Ok(self.sync()?)
    }
}

/// Deletes the working directory of a restore, if it is there.
fn clear(volume: &Volume, work: &Path) -> Result<()> {
    if !volume.by_paths().exists(work)? {
        return Ok(());
    }
    let entries = volume.read_dir(work)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let names = entries.collect::<Result<Vec<_>, _>>()?;
    for name in names {
        volume.delete_subvolume(work.join(name))?;
    }
    Ok(volume.remove_dir(work)?)
}
