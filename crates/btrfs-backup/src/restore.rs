//! Restores a state of a backup as a subvolume. Called by the command `restore`, through `spinney::btrfs::restore`.
//!
//! The streams are received in a working directory NAME.restoring beside the subvolume, which is deleted at the end.
//! One that an earlier attempt left is deleted first.
//!
//! A state that the target has is not received again; another one is received as the difference to the newest state
//! that the target has. The state is kept with the snapshots of backups, as the parent of the next one.

use std::path::{Path, PathBuf};

use btrfs::Volume;
use checking::Watch;

use crate::compare::{Dir, compare};
use crate::directory::{Directory, Stream};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::repository::{Identities, Repository, catalog};
use crate::state::{self, State};
use crate::target::Target;
use crate::transfer::pipe;

/// The end of the name of the working directory.
const WORK_SUFFIX: &str = ".restoring";

/// The backups that states are restored from.
#[derive(Debug)]
pub struct Origin(Kind);

#[derive(Debug)]
enum Kind {
    Volume { volume: Volume, dir: PathBuf, states: Vec<(Name, State)>, changed: Vec<String> },
    Directory(Directory),
    Repository(Box<Repository>, Option<Identities>),
}

/// A state that was chosen.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    name: &'a Name,
    state: Kept<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    State(&'a State),
    Stream(&'a Stream),
    Objects(&'a catalog::Stream),
}

impl Chosen<'_> {
    /// Its name and time, as NAME.TIME.
    #[must_use]
    pub fn state(&self) -> String {
        match self.state {
            Kept::State(state) => state.name.clone(),
            Kept::Stream(stream) => stream.name.at(stream.stamp),
            Kept::Objects(stream) => stream.head.state(),
        }
    }

    fn uuid(&self) -> [u8; 16] {
        match self.state {
            Kept::State(state) => state.sent_uuid(),
            Kept::Stream(stream) => stream.uuid,
            Kept::Objects(stream) => stream.head.uuid,
        }
    }
}

impl Origin {
    /// The states in the directory `dir` of a volume.
    ///
    /// # Errors
    /// Those of the volume.
    pub fn volume(volume: Volume, dir: &Path) -> Result<Self> {
        let found = state::subvolumes_in(&volume, dir)?;
        let changed = state::all_changed(&found);
        Ok(Self(Kind::Volume { volume, dir: dir.to_owned(), states: state::all_states(found), changed }))
    }

    /// The streams in a directory of the host.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn directory(path: &Path) -> Result<Self> {
        // The name selects states of a backup; a restore reads those of all names.
        let any = Name::of_path(Path::new("/"))?;
        Ok(Self(Kind::Directory(Directory::open(path, &any)?)))
    }

    /// The states in a repository. Encrypted ones need the identities.
    #[must_use]
    pub fn repository(repository: Repository, identities: Option<Identities>) -> Self {
        Self(Kind::Repository(Box::new(repository), identities))
    }

    /// All states, the oldest first.
    #[must_use]
    pub fn states(&self) -> Vec<Chosen<'_>> {
        match &self.0 {
            Kind::Volume { states, .. } => {
                states.iter().map(|(name, state)| Chosen { name, state: Kept::State(state) }).collect()
            }
            Kind::Directory(found) => {
                let mut streams: Vec<&Stream> = found.streams.iter().collect();
                streams.sort_by_key(|stream| stream.stamp);
                let states = streams.into_iter();
                states.map(|stream| Chosen { name: &stream.name, state: Kept::Stream(stream) }).collect()
            }
            Kind::Repository(found, _) => {
                let mut streams: Vec<&catalog::Stream> = found.streams().iter().collect();
                streams.sort_by_key(|stream| stream.head.stamp);
                let states = streams.into_iter();
                states.map(|stream| Chosen { name: &stream.head.name, state: Kept::Objects(stream) }).collect()
            }
        }
    }

    /// The state `state`; without one the newest state of `name`, or of the only name that there is.
    ///
    /// # Errors
    /// [`Error::NoState`], [`Error::Changed`], [`Error::NoStates`], [`Error::SeveralNames`].
    pub fn choose(&self, state: Option<&str>, name: Option<&Name>) -> Result<Chosen<'_>> {
        let mut all = self.states();
        if let Some(wanted) = state {
            return all.into_iter().find(|chosen| chosen.state() == wanted).ok_or_else(|| match &self.0 {
                Kind::Volume { changed, .. } if changed.iter().any(|one| one == wanted) => {
                    Error::Changed(wanted.to_owned())
                }
                _ => Error::NoState(wanted.to_owned()),
            });
        }
        all.retain(|chosen| name.is_none_or(|name| chosen.name == name));
        let Some(last) = all.last().copied() else { return Err(Error::NoStates) };
        match all.first().filter(|first| all.iter().any(|other| other.name != first.name)) {
            None => Ok(last),
            Some(first) => {
                let other = all.iter().find(|other| other.name != first.name).unwrap_or(&last);
                Err(Error::SeveralNames(first.name.text().to_owned(), other.name.text().to_owned()))
            }
        }
    }
}

/// The subvolumes that a restore makes.
#[derive(Debug, Clone, Copy)]
pub struct Restore<'a> {
    /// The path of the restored subvolume, which can be changed.
    pub path: &'a Path,
    /// The path where the state is kept, read-only, as the parent of the next backup.
    pub kept: Option<&'a Path>,
}

impl Restore<'_> {
    /// Restores a state. Streams are first compared with the manifest.
    ///
    /// # Errors
    /// Every [`Error`]; [`Error::Cancelled`] after the watch cancelled it. The working directory of a restore that
    /// failed or was cancelled stays until the next one.
    pub fn run(&self, from: &Origin, chosen: Chosen<'_>, target: &dyn Target, watch: &dyn Watch) -> Result<()> {
        let done = self.receive(from, chosen, target, watch);
        done.map_err(|error| if watch.is_cancelled() { Error::Cancelled } else { error })
    }

    /// Compares the restored subvolume with the state in a volume. It should be opened anew, so that the comparison
    /// reads the device.
    ///
    /// # Errors
    /// [`Error::Differs`]; those of the volumes; [`Error::Cancelled`].
    pub fn verify(&self, from: &Origin, chosen: Chosen<'_>, files: &vfs::Volume, watch: &dyn Watch) -> Result<()> {
        let (Kind::Volume { volume, dir, .. }, Kept::State(state)) = (&from.0, chosen.state) else { return Ok(()) };
        let source = dir.join(&state.name);
        compare(Dir { volume, path: &source }, Dir { volume: files, path: self.path }, watch)
    }

    fn receive(&self, from: &Origin, chosen: Chosen<'_>, target: &dyn Target, watch: &dyn Watch) -> Result<()> {
        if let (Kind::Directory(found), Kept::Stream(stream)) = (&from.0, chosen.state) {
            for stream in found.chain(stream)? {
                found.check(stream, watch)?;
            }
        }
        if let (Kind::Repository(found, None), Kept::Objects(stream)) = (&from.0, chosen.state)
            && let Some(sealed) = found.chain(stream)?.iter().find(|stream| stream.head.is_encrypted)
        {
            return Err(Error::NeedsIdentity(sealed.head.state()));
        }
        if target.exists(self.path)? {
            return Err(Error::Exists(self.path.to_owned()));
        }
        if target.has(chosen.uuid())? {
            return target.revive(chosen.uuid(), self.path);
        }
        // Without a slash at its end.
        let mut work = self.path.components().as_path().as_os_str().to_owned();
        work.push(WORK_SUFFIX);
        let work = PathBuf::from(work);
        target.begin(&work)?;
        let mut received = None;
        match (&from.0, chosen.state) {
            (Kind::Volume { volume, dir, states, .. }, Kept::State(state)) => {
                let parent = last_common(target, states, chosen.name, state)?.map(|parent| dir.join(&parent.name));
                let path = dir.join(&state.name);
                let send =
                    |output: &mut dyn std::io::Write| crate::Source::send(volume, &path, parent.as_deref(), output);
                received = Some(pipe(send, |input| target.receive(input, &work, watch))?);
            }
            (Kind::Directory(found), Kept::Stream(stream)) => {
                let mut chain = found.chain(stream)?;
                chain.drain(..known_before(target, chain.iter().map(|stream| stream.uuid))?);
                for stream in chain {
                    received = Some(target.receive(&mut found.read(stream)?, &work, watch)?);
                }
            }
            (Kind::Repository(found, identities), Kept::Objects(stream)) => {
                let mut chain = found.chain(stream)?;
                chain.drain(..known_before(target, chain.iter().map(|stream| stream.head.uuid))?);
                for stream in chain {
                    let mut input = found.stream(stream, identities.as_ref())?;
                    received = Some(target.receive(&mut input, &work, watch)?);
                    if !target.has(stream.head.uuid)? {
                        return Err(Error::NothingReceived);
                    }
                }
            }
            _ => {}
        }
        target.finish(&received.ok_or(Error::NothingReceived)?, self.path, &work, self.kept)
    }
}

/// The newest state of the same name, older than the one to restore, that the target also has.
fn last_common<'a>(
    target: &dyn Target,
    states: &'a [(Name, State)],
    name: &Name,
    state: &State,
) -> Result<Option<&'a State>> {
    for (of, other) in states.iter().rev() {
        if of == name && other.stamp < state.stamp && target.has(other.sent_uuid())? {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// The number of streams at the start of a chain that the target need not receive, because it has the state after
/// them.
fn known_before(target: &dyn Target, chain: impl Iterator<Item = [u8; 16]>) -> Result<usize> {
    let uuids: Vec<[u8; 16]> = chain.collect();
    for (index, uuid) in uuids.iter().enumerate().rev() {
        if target.has(*uuid)? {
            return Ok(index + 1);
        }
    }
    Ok(0)
}
