//! Sends a subvolume back: the receiver changes the received subvolume and sends it to its origin as an increment; the
//! origin changes it and sends it once more.
//!
//! At the origin the parent has no received UUID, so `btrfs receive` before 6.10 refuses a stream that names it as a
//! clone source. Called by `send_histories`.

use std::path::Path;

use anyhow::{Context as _, Result};
use btrfs::{SendOptions, TreeId, Volume};
use testkit::Random;
use vfs::SnapshotMode;

use super::place::WORK;
use super::{Folder, Maker, Stream, Totals, changed, check_streams, history};
use crate::system::{Mount, run as run_program};

/// The directory for subvolumes that were sent back.
const FOLDER: &str = "carried";

/// One direction: the volume that changes the subvolume, and the program that sends it.
pub(super) struct Trip<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    /// The subvolume that both volumes have, by its name in `from`.
    pub(super) parent: &'a str,
    /// Its name after the transfer.
    pub(super) name: &'a str,
    pub(super) maker: Maker,
    pub(super) changes: usize,
}

impl Trip<'_> {
    /// Changes a copy of the parent and sends it; returns its path on the receiver.
    pub(super) fn go(
        &self,
        (dir, program): (&Folder, &str),
        options: &SendOptions,
        random: &mut Random,
        totals: &mut Totals,
    ) -> Result<String> {
        self.copy_parent()?;
        let how = (self.maker, random.below(4));
        let done = changed(self.from, how, |place| {
            let done = history::change(place, self.changes, random)?;
            place.snapshot(self.name)?;
            Ok(done)
        })?;
        totals.changes = totals.changes.saturating_add(done);
        let (name, parent) = (self.name.to_owned(), Some(self.parent.to_owned()));
        let streams = [Stream { folder: FOLDER, name, parent, clones: Vec::new() }];
        let images = (self.from, self.to);
        check_streams((dir, program), images, &streams, options, totals).context("sent back")?;
        Ok(format!("{FOLDER}/{}", self.name))
    }

    /// Replaces the working subvolume by a writable snapshot of the parent.
    fn copy_parent(&self) -> Result<()> {
        match self.maker {
            Maker::Kernel => {
                let mount = Mount::new(self.from, "subvolid=5")?;
                let (work, parent) = (mount.path().join(WORK), mount.path().join(self.parent));
                let (work_name, parent) = (work.to_string_lossy(), parent.to_string_lossy());
                if work.exists() {
                    run_program("btrfs", &["subvolume", "delete", &work_name])?;
                }
                run_program("btrfs", &["subvolume", "snapshot", &parent, &work_name])?;
                mount.unmount()
            }
            Maker::Library => {
                let volume = Volume::options().subvolume_id(TreeId::FS).open(self.from)?;
                if volume.exists(WORK)? {
                    volume.delete_subvolume(WORK)?;
                }
                volume.snapshot(self.parent, WORK, SnapshotMode::ReadWrite)?;
                Ok(volume.close()?)
            }
        }
    }
}
