//! `spinney restore`: a state that was kept becomes a subvolume again.
//!
//! What is received on the way lies in a directory NAME.restoring beside the subvolume, and goes with it. One that an
//! earlier attempt left is deleted first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::Volume;

use super::compare::{Side, compare};
use super::directory::{Directory, Stream};
use super::state::{self, Name, State};
use super::target::{self, Target};
use super::{differs, image_args, opener};
use commands::failure::{Failure, Status};
use commands::image::ImageArgs;
use commands::names::JsonPath;
use commands::output::Output;
use commands::progress::{Bar, Progress};

/// Behind the name of a subvolume, of the directory in which it is restored.
const WORK_SUFFIX: &str = ".restoring";

/// Bring back a state that `backup` has kept, from an image or a directory of streams
///
/// The state becomes a subvolume of IMAGE that can be changed. Streams are read and compared with the manifest before
/// any of them is used; a state of an image is compared with what was made of it. Into a mount root, and the user who
/// mounted it, may restore.
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
    Image { volume: Volume, dir: PathBuf, states: Vec<(Name, State)> },
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
        let states = state::all_states(state::subvolumes_in(&volume, dir)?);
        Ok(Self::Image { volume, dir: dir.to_owned(), states })
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
        restore(&image_args(image), &from, &chosen, path, &progress)?;
        drop(bar);
        let path = JsonPath(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
        if self.json { out.json(&Report { state, path }) } else { Ok(()) }
    }

    fn choose<'a>(&self, from: &'a Origin) -> Result<(String, Chosen<'a>)> {
        let mut all = from.all();
        let shown = self.from.display();
        if let Some(wanted) = &self.state {
            let found = all.into_iter().find(|(_, state, _)| state == wanted);
            let found = found.ok_or_else(|| Failure::refused(format!("{shown}: no state {wanted}; --list shows all")));
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

fn restore(image: &ImageArgs, from: &Origin, chosen: &Chosen<'_>, path: &Path, progress: &Progress) -> Result<()> {
    let target = target::open(image)?;
    let done = restore_to(&*target, from, chosen, path, progress);
    let closed = target.close();
    done?;
    closed?;
    if let (Origin::Image { volume, dir, .. }, Chosen::State(state)) = (from, chosen) {
        let (source, copy) = (dir.join(&state.name), target::files(image)?);
        let found = compare(Side { volume, dir: &source }, Side { volume: &copy, dir: path }, progress)?;
        if let Some(difference) = found {
            return Err(differs(path, &difference));
        }
    }
    Ok(())
}

fn restore_to(target: &dyn Target, from: &Origin, chosen: &Chosen<'_>, path: &Path, progress: &Progress) -> Result<()> {
    if target.exists(path)? {
        return Err(Failure::refused(format!("{}: is there already", path.display())).into());
    }
    // Without a slash at its end.
    let mut work = path.components().as_path().as_os_str().to_owned();
    work.push(WORK_SUFFIX);
    let work = PathBuf::from(work);
    target.begin(&work)?;
    let mut received = None;
    match (from, chosen) {
        (Origin::Image { volume, dir, .. }, Chosen::State(state)) => {
            received = Some(target.copy(volume, &dir.join(&state.name), &work, progress)?);
        }
        (Origin::Directory(found), Chosen::Stream(stream)) => {
            for stream in found.chain(stream)? {
                received = Some(target.receive(&mut found.read(stream)?, &work)?);
            }
        }
        _ => {}
    }
    let received = received.ok_or_else(|| Failure::new(Status::Corrupt, "nothing was received"))?;
    target.finish(&received, path, &work)
}
