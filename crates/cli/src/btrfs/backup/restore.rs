//! `spinney restore`: a state that was kept becomes a subvolume again.
//!
//! What is received on the way lies in a directory NAME.restoring beside the subvolume, and goes with it. One that an
//! earlier attempt left is deleted first.
//!
//! A state that the volume has is not received again; another one is received as the difference to the newest state
//! that the volume has. The state is kept with the snapshots of backups, as the parent of the next one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::Volume;

use super::compare::{Side, compare};
use super::directory::{Directory, Stream};
use super::state::{self, Name, State};
use super::target::{self, Target};
use super::{differs, image_args, opener};
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ImageArgs;
use crate::commands::names::JsonPath;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// Behind the name of a subvolume, of the directory in which it is restored.
const WORK_SUFFIX: &str = ".restoring";

/// Bring back a state that `backup` has kept, from an image or a directory of streams
///
/// The state becomes a subvolume of IMAGE that can be changed. Streams are read and compared with the manifest before
/// any of them is used; the restored subvolume is compared with the state in an image. The state is kept in DIR of
/// --snapshots, so that the next backup sends only the difference. Only root and the user who mounted it may restore
/// into a mount.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney restore backup.img site.img:/home-restored\n",
    "  spinney restore backup.img site.img /home-restored\n",
    "  spinney restore backup.img /mnt/site /home-restored     into what is mounted\n",
    "  spinney restore --state home.2026-11-25T031500Z ./streams site.img /home\n",
    "  spinney restore --list --json backup.img | jq -r .states[].state"
))]
pub(crate) struct Restore {
    /// Image or directory that a backup went to
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Image, or directory of a mount, in which the state is brought back
    #[arg(value_name = "IMAGE", required_unless_present = "list")]
    image: Option<PathBuf>,
    /// The subvolume that it becomes there
    #[arg(value_name = "PATH", required_unless_present = "list")]
    path: Option<PathBuf>,
    /// The state, as NAME.TIME; by default the newest
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Take the newest state of this name; needed where there are several
    #[arg(long, value_parser = Name::new)]
    name: Option<Name>,
    /// Directory in the image FROM that has the states
    #[arg(long, value_name = "DIR", default_value = "/")]
    from_dir: PathBuf,
    /// Directory in IMAGE that keeps the state, as the parent of the next backup
    #[arg(long, value_name = "DIR", default_value = "/.spinney-backups")]
    snapshots: PathBuf,
    /// Do not keep the state: the next backup sends everything again
    #[arg(long, conflicts_with = "snapshots")]
    no_snapshot: bool,
    /// List the states, and restore nothing
    #[arg(long)]
    list: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {state, path}, or {states: [{state}]} with --list
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    state: String,
    #[serde(flatten)]
    path: JsonPath,
}

#[derive(Serialize)]
struct List {
    states: Vec<ListEntry>,
}

#[derive(Serialize)]
struct ListEntry {
    state: String,
}

/// Where states come from.
enum Origin {
    Image { volume: Volume, dir: PathBuf, states: Vec<(Name, State)>, changed: Vec<String> },
    Directory(Directory),
}

/// A state that was chosen.
enum Chosen<'a> {
    State(&'a State),
    Stream(&'a Stream),
}

impl Origin {
    fn open(path: &Path, dir: &Path) -> Result<Self> {
        if path.is_dir() {
            // Which name does not matter to what is only read.
            let name = Name::of_path(Path::new("/"))?;
            return Ok(Self::Directory(Directory::open(path, &name)?));
        }
        let volume = opener(path)(false)?;
        let found = state::subvolumes_in(&volume, dir)?;
        let changed = state::all_changed(&found);
        Ok(Self::Image { volume, dir: dir.to_owned(), states: state::all_states(found), changed })
    }

    /// The states with the names that they have, the oldest first.
    fn all(&self) -> Vec<(&Name, String, Chosen<'_>)> {
        match self {
            Self::Image { states, .. } => {
                states.iter().map(|(name, state)| (name, state.name.clone(), Chosen::State(state))).collect()
            }
            Self::Directory(found) => {
                let mut streams: Vec<&Stream> = found.streams.iter().collect();
                streams.sort_by_key(|stream| stream.stamp);
                let all = streams.into_iter();
                all.map(|stream| (&stream.name, stream.name.at(stream.stamp), Chosen::Stream(stream))).collect()
            }
        }
    }
}

impl Restore {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let from = Origin::open(&self.from, &self.from_dir)?;
        if self.list {
            return list(&from, self.json, out);
        }
        let (Some(image), Some(path)) = (&self.image, &self.path) else {
            return Err(Failure::usage("an image and a path are needed").into());
        };
        let (state, chosen) = self.choose(&from)?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        if let (Origin::Directory(found), Chosen::Stream(stream)) = (&from, &chosen) {
            for stream in found.chain(stream)? {
                found.check(stream, &progress)?;
            }
        }
        let kept = (!self.no_snapshot).then(|| self.snapshots.join(&state));
        let to = Destination { path, kept: kept.as_deref() };
        restore(&image_args(image), &from, &chosen, &to, &progress)?;
        drop(bar);
        let path = JsonPath(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
        if self.json { out.json(&Report { state, path }) } else { Ok(()) }
    }

    fn choose<'a>(&self, from: &'a Origin) -> Result<(String, Chosen<'a>)> {
        let mut all = from.all();
        let shown = self.from.display();
        if let Some(wanted) = &self.state {
            let found = all.into_iter().find(|(_, state, _)| state == wanted);
            let found = found.ok_or_else(|| match from {
                Origin::Image { changed, .. } if changed.contains(wanted) => Failure::refused(format!(
                    "{shown}: {wanted} was changed after it was received; it is no longer a state of the backup"
                )),
                _ => Failure::refused(format!("{shown}: no state {wanted}; --list shows all")),
            });
            return Ok(found.map(|(_, state, chosen)| (state, chosen))?);
        }
        if let Some(name) = &self.name {
            all.retain(|(of, _, _)| *of == name);
        }
        let first = all.first().map(|(name, _, _)| (*name).clone());
        if let Some((other, _, _)) = all.iter().find(|(name, _, _)| Some(*name) != first.as_ref()) {
            let first = first.as_ref().map_or("", Name::text);
            let text = format!("{shown}: states of {first} and of {}; choose with --name or --state", other.text());
            return Err(Failure::usage(text).into());
        }
        let found = all.pop().ok_or_else(|| Failure::refused(format!("{shown}: no states of a backup")));
        Ok(found.map(|(_, state, chosen)| (state, chosen))?)
    }
}

fn list(from: &Origin, json: bool, out: &mut Output) -> Result<()> {
    let states = from.all().into_iter().map(|(_, state, _)| state);
    if json {
        return out.json(&List { states: states.map(|state| ListEntry { state }).collect() });
    }
    for state in states {
        std::io::Write::write_all(out, format!("{state}\n").as_bytes())?;
    }
    Ok(())
}

/// The subvolumes that a restore makes.
struct Destination<'a> {
    /// The subvolume.
    path: &'a Path,
    /// The path where its state is kept.
    kept: Option<&'a Path>,
}

fn restore(
    image: &ImageArgs,
    from: &Origin,
    chosen: &Chosen<'_>,
    to: &Destination<'_>,
    progress: &Progress,
) -> Result<()> {
    let target = target::open(image)?;
    let done = restore_to(&*target, from, chosen, to, progress);
    let closed = target.close();
    done?;
    closed?;
    if let (Origin::Image { volume, dir, .. }, Chosen::State(state)) = (from, chosen) {
        let (source, copy) = (dir.join(&state.name), target::files(image)?);
        let found = compare(Side { volume, dir: &source }, Side { volume: &copy, dir: to.path }, progress)?;
        if let Some(difference) = found {
            return Err(differs(to.path, &difference));
        }
    }
    Ok(())
}

fn restore_to(
    target: &dyn Target,
    from: &Origin,
    chosen: &Chosen<'_>,
    to: &Destination<'_>,
    progress: &Progress,
) -> Result<()> {
    if target.exists(to.path)? {
        return Err(Failure::refused(format!("{}: already exists", to.path.display())).into());
    }
    let uuid = match chosen {
        Chosen::State(state) => state.sent_uuid(),
        Chosen::Stream(stream) => stream.uuid,
    };
    if target.has(uuid)? {
        return target.revive(uuid, to.path);
    }
    // Without a slash at its end.
    let mut work = to.path.components().as_path().as_os_str().to_owned();
    work.push(WORK_SUFFIX);
    let work = PathBuf::from(work);
    target.begin(&work)?;
    let mut received = None;
    match (from, chosen) {
        (Origin::Image { volume, dir, states, .. }, Chosen::State(state)) => {
            let parent = last_common(target, states, state)?.map(|parent| dir.join(&parent.name));
            let paths = (&*dir.join(&state.name), parent.as_deref());
            received = Some(target.copy(volume, paths, &work, progress)?);
        }
        (Origin::Directory(found), Chosen::Stream(stream)) => {
            let mut chain = found.chain(stream)?;
            chain.drain(..known_before(target, &chain)?);
            for stream in chain {
                received = Some(target.receive(&mut found.read(stream)?, &work)?);
            }
        }
        _ => {}
    }
    let received = received.ok_or_else(|| Failure::new(Status::Corrupt, "nothing was received"))?;
    target.finish(&received, to.path, &work, to.kept)
}

/// The newest state of the same name, older than the one to restore, that the target also has.
fn last_common<'a>(target: &dyn Target, states: &'a [(Name, State)], state: &State) -> Result<Option<&'a State>> {
    let name = states.iter().find(|(_, one)| one.stamp == state.stamp && one.name == state.name).map(|(name, _)| name);
    for (of, other) in states.iter().rev() {
        if Some(of) == name && other.stamp < state.stamp && target.has(other.sent_uuid())? {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// How many streams at the start of a chain the target need not receive, because it has the state after them.
fn known_before(target: &dyn Target, chain: &[&Stream]) -> Result<usize> {
    for (index, stream) in chain.iter().enumerate().rev() {
        if target.has(stream.uuid)? {
            return Ok(index + 1);
        }
    }
    Ok(0)
}
