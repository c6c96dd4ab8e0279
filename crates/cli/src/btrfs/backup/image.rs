//! Backups in another image: read-only subvolumes with the UUID of the state that they are of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use spinney::btrfs::Volume;

use super::compare::{Side, compare};
use super::rule::Rule;
use super::stamp::Stamp;
use super::state::{self, Name, State};
use super::{Destination, Open, Sent, differs, transfer};
use crate::commands::progress::Progress;

pub(super) struct Image {
    open: Open,
    dir: PathBuf,
    name: Name,
    states: Vec<State>,
    /// States of the source that the volume has, in any directory.
    copies: BTreeSet<[u8; 16]>,
    /// Names of states that were changed after they were received.
    changed: Vec<String>,
}

impl Image {
    /// What an image has in a directory.
    pub(super) fn open(open: Open, dir: &Path, name: &Name) -> Result<Self> {
        let volume = open(false)?;
        let mut image = Self {
            open,
            dir: dir.to_owned(),
            name: name.clone(),
            states: Vec::new(),
            copies: BTreeSet::new(),
            changed: Vec::new(),
        };
        image.read(&volume)?;
        volume.close()?;
        Ok(image)
    }

    /// Finds the states that the volume has.
    fn read(&mut self, volume: &Volume) -> Result<()> {
        let found = state::subvolumes_in(volume, &self.dir)?;
        self.changed = state::changed(&found, &self.name);
        self.states = received(state::states(found, &self.name));
        self.copies = state::whole(volume)?;
        Ok(())
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let volume = (self.open)(true)?;
        for name in names {
            volume.delete_subvolume(self.dir.join(name))?;
        }
        Ok(volume.close()?)
    }
}

/// Those that came from a stream.
fn received(states: Vec<State>) -> Vec<State> {
    states.into_iter().filter(State::is_received).collect()
}

impl Destination for Image {
    fn has(&self, state: &State) -> bool {
        self.copies.contains(&state.sent_uuid())
    }

    fn is_taken(&self, state: &State) -> bool {
        self.changed.contains(&state.name)
    }

    fn losses(&self) -> Vec<String> {
        let changed = self.changed.iter().map(|name| self.dir.join(name));
        changed.map(|path| format!("{}: was changed after it was received", path.display())).collect()
    }

    fn count(&self) -> usize {
        self.states.len()
    }

    fn clear(&mut self) -> Result<Vec<String>> {
        let volume = (self.open)(false)?;
        let left = state::leftovers(state::subvolumes_in(&volume, &self.dir)?, &self.name);
        volume.close()?;
        self.delete(&left)?;
        Ok(left)
    }

    fn receive(&mut self, sent: &Sent<'_>, progress: &Progress) -> Result<u64> {
        let volume = (self.open)(true)?;
        volume.create_dir_all(&self.dir)?;
        let paths = (&*sent.path(), sent.parent_path());
        let report = transfer::transfer(sent.source, (paths.0, paths.1.as_deref()), &volume, &self.dir, progress);
        let read = self.read(&volume);
        // What can be gone on with stays, whatever failed.
        let closed = volume.close();
        let bytes = report?.bytes;
        closed?;
        read?;
        Ok(bytes)
    }

    fn verify(&mut self, sent: &Sent<'_>, progress: &Progress) -> Result<()> {
        // Opened anew, so that it is read from where it was written to.
        let volume = (self.open)(false)?;
        let (from, copy) = (sent.path(), self.dir.join(&sent.state.name));
        let source = Side { volume: sent.source.files(), dir: &from };
        let found = compare(source, Side { volume: &volume, dir: &copy }, progress);
        volume.close()?;
        let Some(difference) = found? else { return Ok(()) };
        self.delete(std::slice::from_ref(&sent.state.name))?;
        Err(differs(&copy, &difference))
    }

    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>> {
        let mut stamps: Vec<Stamp> = self.states.iter().map(|state| state.stamp).collect();
        if !stamps.contains(&newest) {
            stamps.push(newest);
        }
        let pruned = state::to_prune(&stamps, Some(rule), &BTreeSet::from([newest]));
        let names: Vec<String> = pruned.into_iter().map(|stamp| self.name.at(stamp)).collect();
        if !is_trial {
            self.delete(&names)?;
        }
        Ok(names)
    }
}
