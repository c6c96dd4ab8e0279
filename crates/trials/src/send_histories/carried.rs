//! Forwards and back: a subvolume that was received is changed where it went, and goes back to where it came from as an
//! increment of what is there; changed there again, it goes the other way once more.
//!
//! At its origin the parent has no received UUID, and so a stream that names it as a source of clones is refused by
//! `btrfs receive` before 6.10.

use std::path::Path;

use anyhow::{Context as _, Result};
use spinney::{SendOptions, SnapshotMode, TreeId, Volume};
use testkit::Random;

use super::place::WORK;
use super::{Folder, Maker, Stream, Totals, changed, check_streams, history};
use crate::system::{Mount, run as run_program};

/// Where subvolumes are received that were carried.
const FOLDER: &str = "carried";

/// One way: what is changed where, and what makes the stream of it.
pub(super) struct Trip<'a> {
    pub(super) from: &'a Path,
    pub(super) to: &'a Path,
    /// The subvolume that both have, as `from` names it.
    pub(super) parent: &'a str,
    /// What it is called afterwards.
    pub(super) name: &'a str,
    pub(super) maker: Maker,
    pub(super) changes: usize,
}

impl Trip<'_> {
    /// Changes a copy of the parent, and sends it; the path that it has where it is received.
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
        check_streams((dir, program), images, &streams, options, totals).context("carried on")?;
        Ok(format!("{FOLDER}/{}", self.name))
    }

    /// Makes a snapshot of the parent that can be changed the subvolume that changes.
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
