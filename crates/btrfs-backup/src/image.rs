//! Keeps backups in another volume, as read-only subvolumes with the UUID of the state that they are copies of. The
//! command `backup` opens it as a destination.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use btrfs::Volume;
use checking::Watch;

use crate::compare::{Dir, compare};
use crate::destination::{Destination, Sent};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::rule::Rule;
use crate::stamp::Stamp;
use crate::state::{self, State};
use crate::transfer::{pipe, receive};

/// Opens a volume, for writing if its argument is true.
type Opener<'a> = Box<dyn Fn(bool) -> Result<Volume> + 'a>;

/// A directory of a volume, in which each state is a read-only subvolume. The volume is open only while it is used.
pub struct VolumeDestination<'a> {
    open: Opener<'a>,
    dir: PathBuf,
    name: Name,
    states: Vec<State>,
    /// States of the source that the volume has, in any directory.
    copies: BTreeSet<[u8; 16]>,
    /// Names of states that were changed after they were received.
    changed: Vec<String>,
}

impl<'a> VolumeDestination<'a> {
    /// The directory `dir` of the volume that `open` opens, for writing if its argument is true.
    ///
    /// # Errors
    /// Those of `open` and of the volume.
    pub fn open(open: impl Fn(bool) -> Result<Volume> + 'a, dir: &Path, name: &Name) -> Result<Self> {
        let volume = open(false)?;
        let mut image = Self {
            open: Box::new(open),
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

impl Destination for VolumeDestination<'_> {
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

    fn receive(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<u64> {
        let volume = (self.open)(true)?;
        volume.create_dir_all(&self.dir)?;
        let received = |input: &mut (dyn Read + Send)| receive(&volume, &self.dir, true, input, watch);
        let report = pipe(|output| sent.write(output), received);
        let read = self.read(&volume);
        // An incomplete state stays also after a failure, to be resumed.
        let closed = volume.close();
        let bytes = report?.bytes;
        closed?;
        read?;
        Ok(bytes)
    }

    fn verify(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<()> {
        // Opened anew, so that it is read from where it was written to.
        let volume = (self.open)(false)?;
        let (from, copy) = (sent.path(), self.dir.join(&sent.state.name));
        let source = Dir { volume: sent.source.files(), path: &from };
        let compared = compare(source, Dir { volume: &volume, path: &copy }, watch);
        volume.close()?;
        if matches!(compared, Err(Error::Differs { .. })) {
            self.delete(std::slice::from_ref(&sent.state.name))?;
        }
        compared
    }

    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>> {
        let pruned = rule.dropped(self.states.iter().map(|state| state.stamp), newest);
        let names: Vec<String> = pruned.into_iter().map(|stamp| self.name.at(stamp)).collect();
        if !is_trial {
            self.delete(&names)?;
        }
        Ok(names)
    }
}
