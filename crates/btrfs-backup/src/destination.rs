//! Defines [`Destination`], the interface of the places that backups go to, which `image`, `directory`, `repository`
//! and `stream` implement. `backup` calls it.

use std::io::Write;
use std::path::{Path, PathBuf};

use checking::Watch;

use crate::error::Result;
use crate::rule::Rule;
use crate::source::Source;
use crate::stamp::Stamp;
use crate::state::State;

/// A place that backups go to.
pub trait Destination {
    /// True if it remembers the states that it received.
    fn keeps(&self) -> bool {
        true
    }

    /// True if all of this state of the source is there, so that another one can build on it.
    fn has(&self, state: &State) -> bool;

    /// True if it received this state, even if it lost it since.
    fn knows(&self, state: &State) -> bool {
        self.has(state)
    }

    /// True if another subvolume has the name of the state, such as a changed copy of it.
    fn is_taken(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// The number of states that it received under its name, of any source.
    fn count(&self) -> usize;

    /// Messages about states that are missing or incomplete now.
    fn losses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Deletes the remains of interrupted backups. Returns their names.
    ///
    /// # Errors
    /// Those of the volume or the host.
    fn clear(&mut self) -> Result<Vec<String>>;

    /// Receives a state. Returns the bytes of the stream.
    ///
    /// # Errors
    /// Those of the source, and of the volume or the host.
    fn receive(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<u64>;

    /// Reads back the state that was received last.
    ///
    /// # Errors
    /// [`crate::Error::Differs`]; as [`Destination::receive`].
    fn verify(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<()>;

    /// The states that a rule drops, without those that are still needed. Deletes them unless `is_trial`.
    ///
    /// # Errors
    /// Those of the volume or the host.
    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>>;

    /// Gives the place back for other backups; called at the end of each, also of a failed one.
    ///
    /// # Errors
    /// Those of the place.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A state that is sent.
pub struct Sent<'a> {
    pub(crate) source: &'a dyn Source,
    /// The directory of the states.
    pub(crate) dir: &'a Path,
    pub(crate) state: &'a State,
    pub(crate) parent: Option<&'a State>,
}

impl Sent<'_> {
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join(&self.state.name)
    }

    /// Writes the stream of the state.
    ///
    /// # Errors
    /// As [`Source::send`].
    pub fn write(&self, output: &mut dyn Write) -> Result<()> {
        let parent = self.parent.map(|parent| self.dir.join(&parent.name));
        self.source.send(&self.path(), parent.as_deref(), output)
    }
}
