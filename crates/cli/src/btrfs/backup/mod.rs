//! `spinney backup`: states of a subvolume, kept in the image and sent elsewhere, each as what differs from the last.
//!
//! ```text
//! snapshot in the source -> sent, as a difference from the newest state that both have -> read back, compared
//!                        -> pruned on both sides, but for the newest that both have, and parents of streams that stay
//! ```
//!
//! Invariants
//! * A state counts as one of the destination only when it is whole there: an image's has a received UUID, a
//!   directory's is in the manifest, which is replaced at once and after the stream is on disk.
//! * What a break leaves is found again by its name: a state that the destination lacks is sent by the next backup, and
//!   what lies half-made at the destination is gone on with or deleted.
//! * Nothing is deleted whose name is not one that backups give, of the same name of backups.
//!
//! Failure: a copy that does not read back as its source is deleted and told. Callers: `args`. Volumes come from
//! closures, so that they can be anything that opens one.

mod compare;
mod directory;
mod image;
mod output;
mod restore;
mod rule;
mod served;
mod source;
mod stamp;
mod state;
mod target;
mod transfer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::Volume;

use super::format;
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};
pub(crate) use restore::Restore;
use rule::Rule;
pub(super) use served::serve;
use source::Source;
use stamp::Stamp;
use state::{Name, State};

/// Keep states of a subvolume, and send them to another image, to a directory or to the standard output
///
/// Makes a read-only snapshot, sends what differs from the newest one that both sides have, reads back what
/// arrived, and deletes on both sides what --keep lets go of: never the newest state that both have, and never a
/// stream that another one builds on. A backup that was cut short is finished, or cleared away, by the next one.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true, after_help = concat!(
    "Destinations:\n",
    "  an image     each state is a read-only subvolume there, as `spinney receive` makes them\n",
    "  a directory  each state is a file NAME.TIME.UUID.stream, and manifest.json says which build on which;\n",
    "               without --full now and then no stream can be deleted, since the next builds on it\n",
    "  -            the whole state as a stream; the report goes to the standard error\n\n",
    "Of a mount root, and the user who mounted it, may make a backup; paths begin at its directory. Data written to\n",
    "an image is compared with its source, which the user has to be allowed to read.\n\n",
    "Snapshots are called NAME.TIME. For several destinations use several names: each keeps snapshots of its own.\n",
    "A name belongs to one subvolume, and `spinney restore` makes a new one. Use --adopt once to continue the name\n",
    "with it: the next state is sent as the difference to the restored one.\n\n",
    "Examples:\n",
    "  spinney backup site.img:/home backup.img\n",
    "  spinney backup site.img /home backup.img\n",
    "  spinney backup --keep hourly=24,daily=7 site.img /home backup.img\n",
    "  spinney backup /mnt/site /home backup.img               of what is mounted\n",
    "  spinney backup --full --keep weekly=8 site.img /home ./streams\n",
    "  spinney backup site.img - | ssh host spinney receive backup.img\n",
    "  spinney backup --dry-run --json site.img /home backup.img | jq .actions[]"
))]
pub(crate) struct Backup {
    #[command(flatten)]
    image: ImageArgs,
    /// The subvolume in the image; the root by default
    #[arg(value_name = "SUBVOL", default_value = "/")]
    source: PathBuf,
    /// Image or directory that the backup goes to, or - for the standard output
    #[arg(value_name = "DEST", required = true)]
    dest: PathBuf,
    /// Keep the last state of so many periods, and let others go: last, hourly, daily, weekly, monthly, yearly
    #[arg(long, value_name = "PERIOD=COUNT,..")]
    keep: Option<Rule>,
    /// Call the states NAME.TIME; by default after the subvolume
    #[arg(long, value_parser = Name::new)]
    name: Option<Name>,
    /// Directory in the image for the snapshots
    #[arg(long, value_name = "DIR", default_value = "/.spinney-backups")]
    snapshots: PathBuf,
    /// Directory in the destination image for the states
    #[arg(long, value_name = "DIR", default_value = "/")]
    into: PathBuf,
    /// Go on under a name that another subvolume's states have, or whose states are gone from the image
    #[arg(long)]
    adopt: bool,
    /// Send the whole state, not what differs from another
    #[arg(long)]
    full: bool,
    /// Take this for the time, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    time: Option<i64>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {name, actions: [{action, side, state, parent, bytes}]}
    #[arg(long)]
    json: bool,
}

/// Where backups go.
trait Destination {
    /// True where it remembers what it got.
    fn keeps(&self) -> bool {
        true
    }

    /// True where it has this state of the source, whole: another one can build on it.
    fn has(&self, state: &State) -> bool;

    /// True where it has had it, and may have lost it.
    fn knows(&self, state: &State) -> bool {
        self.has(state)
    }

    /// True if another subvolume has the name of the state, such as a changed copy of it.
    fn is_taken(&self, state: &State) -> bool {
        let _ = state;
        false
    }

    /// How many states it has had of this name, of whatever source.
    fn count(&self) -> usize;

    /// What of it is not there any more, or not whole.
    fn losses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Deletes what backups that were cut short left there. Returns what.
    fn clear(&mut self) -> Result<Vec<String>>;

    /// Receives a state, as what differs from `parent` where there is one. Returns the bytes of the stream.
    fn receive(&mut self, sent: &Sent<'_>, progress: &Progress) -> Result<u64>;

    /// Reads back what was received.
    fn verify(&mut self, sent: &Sent<'_>, progress: &Progress) -> Result<()>;

    /// What a rule lets go of, but for what is needed. Deletes it, unless this is a trial.
    fn prune(&mut self, rule: &Rule, newest: Stamp, is_trial: bool) -> Result<Vec<String>>;
}

/// A state that is sent.
struct Sent<'a> {
    source: &'a dyn Source,
    /// Where the states are.
    dir: &'a Path,
    state: &'a State,
    parent: Option<&'a State>,
}

impl Sent<'_> {
    fn path(&self) -> PathBuf {
        self.dir.join(&self.state.name)
    }

    fn parent_path(&self) -> Option<PathBuf> {
        self.parent.map(|parent| self.dir.join(&parent.name))
    }
}

/// Something that was done, or would be.
#[derive(Debug, Serialize)]
struct Action {
    action: &'static str,
    side: &'static str,
    state: String,
    /// The state that a stream builds on.
    parent: Option<String>,
    /// Of a stream.
    bytes: Option<u64>,
}

/// Name of what the server of a mount is asked for.
const JOB: &str = "backup";
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";

impl Action {
    fn new(action: &'static str, side: &'static str, state: impl Into<String>) -> Self {
        Self { action, side, state: state.into(), parent: None, bytes: None }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    actions: &'a [Action],
}

impl Backup {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let name = self.name.clone().map_or_else(|| Name::of_path(&self.source), Ok)?;
        let is_output = self.dest.as_os_str() == "-";
        let mut dest: Box<dyn Destination> = match is_output {
            true => Box::new(output::StandardOutput),
            false if self.dest.is_dir() => Box::new(directory::Directory::open(&self.dest, &name)?),
            false => Box::new(image::Image::open(opener(&self.dest), &self.into, &name)?),
        };
        for text in dest.losses() {
            eprintln!("spinney: {text}; it is no longer used as a parent");
        }
        let source = source::open(&self.image, self.dry_run)?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let mut actions = Vec::new();
        let done = self.run_on(&*source, &mut *dest, &name, &progress, &mut actions);
        drop(bar);
        let closed = source.close();
        // What was done is told, whatever became of the rest.
        if is_output {
            self.tell(&name, &actions, &mut std::io::stderr().lock())?;
        } else if self.json {
            out.json(&Report { name: name.text(), actions: &actions })?;
        } else {
            self.tell(&name, &actions, out)?;
        }
        done?;
        closed
    }

    fn tell(&self, name: &Name, actions: &[Action], out: &mut impl std::io::Write) -> Result<()> {
        if self.json {
            serde_json::to_writer(&mut *out, &Report { name: name.text(), actions })?;
            return Ok(writeln!(out)?);
        }
        let would = if self.dry_run { "would " } else { "" };
        for action in actions {
            write!(out, "{would}{} {} ({})", action.action, action.state, action.side)?;
            if let Some(parent) = &action.parent {
                write!(out, ", from {parent}")?;
            }
            if let Some(bytes) = action.bytes {
                write!(out, ", {bytes} bytes")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn run_on(
        &self,
        source: &dyn Source,
        dest: &mut dyn Destination,
        name: &Name,
        progress: &Progress,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let lineage = source.lineage(&self.source)?;
        let dir = &self.snapshots;
        let found = source.subvolumes_in(dir)?;
        for name in state::changed(&found, name) {
            let path = dir.join(name);
            eprintln!("spinney: {}: was changed since it was made; it is no longer used as a parent", path.display());
        }
        let newest = state::newest(&found, name);
        let mut states = state::states(found, name);
        let shared = state::common(&states, |state| dest.knows(state)).map(|state| state.stamp);
        if dest.keeps() {
            self.check_name(name, &lineage, &states, shared.is_some() || dest.count() == 0)?;
            self.finish_last(source, dest, &mut states, shared, progress, actions)?;
        }
        let stamp = self.stamp(newest)?;
        actions.push(Action::new("snapshot", SOURCE, name.at(stamp)));
        if self.dry_run {
            let parent = state::common(&states, |state| dest.has(state)).filter(|_| !self.full);
            let parent = parent.map(|state| state.name.clone());
            actions.push(Action { parent, ..Action::new("send", DESTINATION, name.at(stamp)) });
        } else {
            source.freeze(&self.source, &dir.join(name.at(stamp)))?;
            states = state::states(source.subvolumes_in(dir)?, name);
            if let Some(state) = states.iter().find(|state| state.stamp == stamp) {
                self.send(source, dest, (&states, state), progress, actions)?;
            }
        }
        states.retain(|state| state.is_of(&lineage) || dest.knows(state));
        self.prune(source, dest, (&states, stamp), actions)
    }

    /// Refuses to mix the states of two subvolumes: a rule would let the one's go for the other's.
    fn check_name(&self, name: &Name, lineage: &[[u8; 16]], states: &[State], is_known: bool) -> Result<()> {
        if self.adopt {
            return Ok(());
        }
        let what = match states.last() {
            Some(last) if !last.is_of(lineage) => {
                format!("{} is a snapshot of another subvolume", self.snapshots.join(&last.name).display())
            }
            _ if !is_known => format!("{} has states of that name, none of which is in the image", self.dest.display()),
            _ => return Ok(()),
        };
        let (source, name) = (self.source.display(), name.text());
        let text = format!(
            "{source} cannot be backed up as {name}: {what}; give another --name, or --adopt to go on under this one"
        );
        Err(Failure::refused(text).into())
    }

    /// Sends the newest state that the destination lacks, and deletes older ones that it lacks: what backups that were
    /// cut short have left.
    fn finish_last(
        &self,
        source: &dyn Source,
        dest: &mut dyn Destination,
        states: &mut Vec<State>,
        shared: Option<Stamp>,
        progress: &Progress,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let is_lacking = |last: &mut State| shared.is_none_or(|shared| last.stamp > shared) && !dest.is_taken(last);
        let Some(last) = states.pop_if(is_lacking) else {
            return self.clear(dest, actions);
        };
        while let Some(older) = states.pop_if(|older| shared.is_some_and(|shared| older.stamp > shared)) {
            if !self.dry_run {
                source.delete(&self.snapshots.join(&older.name))?;
            }
            actions.push(Action::new("delete", SOURCE, older.name));
        }
        states.push(last.clone());
        if self.dry_run {
            let parent = state::common(states, |state| dest.has(state)).map(|state| state.name.clone());
            actions.push(Action { parent, ..Action::new("send", DESTINATION, last.name) });
            return Ok(());
        }
        self.send(source, dest, (states, &last), progress, actions)?;
        self.clear(dest, actions)
    }

    fn clear(&self, dest: &mut dyn Destination, actions: &mut Vec<Action>) -> Result<()> {
        if !self.dry_run {
            actions.extend(dest.clear()?.into_iter().map(|left| Action::new("clear", DESTINATION, left)));
        }
        Ok(())
    }

    fn send(
        &self,
        source: &dyn Source,
        dest: &mut dyn Destination,
        (states, state): (&[State], &State),
        progress: &Progress,
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let parent = state::common(states, |other| other.stamp < state.stamp && dest.has(other));
        let sent = Sent { source, dir: &self.snapshots, state, parent: parent.filter(|_| !self.full) };
        let bytes = dest.receive(&sent, progress)?;
        let parent = sent.parent.map(|parent| parent.name.clone());
        actions.push(Action { parent, bytes: Some(bytes), ..Action::new("send", DESTINATION, &state.name) });
        if dest.keeps() {
            dest.verify(&sent, progress)?;
            actions.push(Action::new("verify", DESTINATION, &state.name));
        }
        Ok(())
    }

    /// Lets go of states of both sides.
    fn prune(
        &self,
        source: &dyn Source,
        dest: &mut dyn Destination,
        (states, newest): (&[State], Stamp),
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let Some(rule) = &self.keep else { return Ok(()) };
        let pruned = dest.prune(rule, newest, self.dry_run)?;
        actions.extend(pruned.into_iter().map(|name| Action::new("delete", DESTINATION, name)));
        let mut stamps: Vec<Stamp> = states.iter().map(|state| state.stamp).collect();
        if !stamps.contains(&newest) {
            stamps.push(newest);
        }
        for stamp in state::to_prune(&stamps, Some(rule), &BTreeSet::from([newest])) {
            let Some(state) = states.iter().find(|state| state.stamp == stamp) else { continue };
            if !self.dry_run {
                source.delete(&self.snapshots.join(&state.name))?;
            }
            actions.push(Action::new("delete", SOURCE, &state.name));
        }
        Ok(())
    }

    /// The time of the new state, which is later than that of every other.
    fn stamp(&self, newest: Option<Stamp>) -> Result<Stamp> {
        let clock =
            || SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|now| i64::try_from(now.as_secs()).ok());
        let now = self.time.or_else(clock).and_then(Stamp::new);
        let now = now.ok_or_else(|| Failure::usage("the time is not between the years 1970 and 9999"))?;
        let Some(last) = newest else { return Ok(now) };
        let next = last.next().ok_or_else(|| Failure::refused("there is no time after the last state"))?;
        Ok(now.max(next))
    }
}

/// Opens a volume, to write to it or not.
type Open = Box<dyn Fn(bool) -> Result<Volume>>;

/// The image at a path.
fn image_args(path: &Path) -> ImageArgs {
    ImageArgs { image: path.to_owned(), ..ImageArgs::default() }
}

/// What opens it.
fn opener(path: &Path) -> Open {
    let image = image_args(path);
    Box::new(move |writes| match writes {
        true => format::open_writable(&image),
        false => format::open_image_as(&image, true),
    })
}

/// The failure of a copy that is not what it is a copy of.
fn differs(path: &Path, difference: &compare::Difference) -> anyhow::Error {
    let inside = difference.path.display();
    let text = format!("{}: the backup is not as its source: {inside}: {}", path.display(), difference.what);
    Failure::new(Status::Corrupt, text).into()
}
