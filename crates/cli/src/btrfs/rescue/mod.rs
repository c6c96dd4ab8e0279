//! `spinney rescue`: copies files out of a damaged image, as far as `btrfs-rescue` finds them.
//!
//! [`args`] has the arguments, [`report`] the losses. A rescued state is a volume like any other, so that the code of
//! `ls` and `get` lists and copies it, under their rules for writing on the host.
//!
//! Failure: losses are reported, and make the exit status 1; the copy continues. Caller: `args` of the crate.

mod args;
mod report;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Error, Result};
use serde::Serialize;
use spinney::blockdev::{self, Access, Device};
use spinney::btrfs::rescue::{Deleted, Rescue as Found, Root, Source, Watch};
use spinney::vfs::file_system::Time;

use crate::commands::failure::{Failure, Status};
use crate::commands::human;
use crate::commands::image::{explain, is_own, locators};
use crate::commands::names::{JsonPath, escaped, escaped_text};
use crate::commands::output::{Output, warn};
use crate::commands::progress::{Bar, Progress};
use args::{Command, Devices, Get, Ls, Roots, Undelete};
use report::Losses;

pub(crate) use args::Rescue;

impl Rescue {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Roots(command) => command.run(out),
            Command::Ls(command) => command.run(out),
            Command::Get(command) => command.run(out),
            Command::Undelete(command) => command.run(out),
        }
    }
}

/// Shows the progress of a scan.
struct Shown {
    is_wanted: bool,
    progress: Arc<Progress>,
    bar: Mutex<Option<Bar>>,
    has_told: AtomicBool,
}

impl Shown {
    fn new(is_wanted: bool) -> Arc<Self> {
        let (progress, bar) = (Arc::default(), Mutex::default());
        Arc::new(Self { is_wanted, progress, bar, has_told: AtomicBool::new(false) })
    }

    fn set(&self, bar: Option<Bar>) {
        if let Ok(mut shown) = self.bar.lock() {
            *shown = bar;
        }
    }
}

impl Watch for Shown {
    fn add_bytes(&self, bytes: u64) {
        self.progress.add_bytes(bytes);
    }

    fn begin(&self, bytes: u64) {
        if self.is_wanted && !self.has_told.swap(true, Ordering::Relaxed) {
            warn(&format!("looking at every block of {}", human::bytes(bytes)));
        }
        self.progress.bytes.store(0, Ordering::Relaxed);
        self.progress.bytes_total.store(bytes, Ordering::Relaxed);
        self.set(Some(Bar::new(&self.progress, self.is_wanted)));
    }

    fn end(&self) {
        self.set(None);
    }
}

impl Devices {
    /// Opens the devices. The flag is true if only the caller could have written them.
    fn open(&self, shows_progress: bool) -> Result<(Found, bool)> {
        self.try_open(shows_progress).map_err(|error| {
            let is_ours = error.downcast_ref::<spinney::btrfs::rescue::Error>().is_some();
            let error =
                if is_ours { error.context(self.image.display().to_string()) } else { explain(&self.image, error) };
            status(error)
        })
    }

    fn try_open(&self, shows_progress: bool) -> Result<(Found, bool)> {
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let mut is_all_own = true;
        for locator in locators(&self.image, &self.device)? {
            if let Some(path) = locator.path().filter(|path| path.is_dir()) {
                let text =
                    format!("{}: a directory; the image itself is read, and must not be mounted", path.display());
                return Err(Failure::refused(text).into());
            }
            let device = blockdev::open(&locator, Access::READ)?;
            is_all_own &= device.host_metadata()?.is_some_and(|found| is_own(&found));
            devices.push(device);
        }
        Ok((Found::open(&devices, 0, Shown::new(shows_progress))?, is_all_own))
    }
}

/// Gives an error of a rescue its exit status.
fn status(error: Error) -> Error {
    let Some(cause) = error.downcast_ref::<spinney::btrfs::rescue::Error>() else { return error };
    let status = match cause {
        spinney::btrfs::rescue::Error::Unsupported(_) => Status::Unsupported,
        spinney::btrfs::rescue::Error::NoSuchRoot(_) | spinney::btrfs::rescue::Error::Members(_) => Status::Refused,
        _ => Status::Corrupt,
    };
    Failure::new(status, crate::commands::failure::one_line(&error)).into()
}

fn print_notes(found: &Found, out: &mut Output) -> Result<()> {
    for note in found.notes() {
        writeln!(out, "note: {}", escaped_text(&note))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct JsonRoots {
    roots: Vec<JsonRoot>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct JsonRoot {
    generation: u64,
    address: u64,
    /// `superblock`, `backup` or `scan`.
    source: &'static str,
    /// Seconds since 1970.
    seconds: i64,
    date: String,
    subvolumes: usize,
    subvolumes_readable: usize,
    is_whole: bool,
}

fn json_root(root: &Root) -> JsonRoot {
    let source = match root.source {
        Source::Superblock => "superblock",
        Source::Backup => "backup",
        Source::Scan => "scan",
    };
    JsonRoot {
        generation: root.generation,
        address: root.at,
        source,
        seconds: root.seconds,
        date: date(root.seconds),
        subvolumes: root.subvolumes,
        subvolumes_readable: root.subvolumes_readable,
        is_whole: root.is_whole,
    }
}

fn date(seconds: i64) -> String {
    if seconds == 0 { "-".to_owned() } else { human::time_short(Time::new(seconds, 0)) }
}

impl Roots {
    fn run(&self, out: &mut Output) -> Result<()> {
        let (found, _) = self.devices.open(!self.quiet && !self.json)?;
        let roots: Vec<JsonRoot> = found.roots().iter().map(json_root).collect();
        if self.json {
            return out.json(&JsonRoots { roots, notes: found.notes() });
        }
        print_notes(&found, out)?;
        writeln!(out, "GENERATION       ADDRESS  DATE                 SUBVOLUMES  ROOT TREE  FOUND BY")?;
        for root in roots {
            let whole = if root.is_whole { "whole" } else { "damaged" };
            let subvolumes = format!("{} of {}", root.subvolumes_readable, root.subvolumes);
            writeln!(
                out,
                "{:>10}  {:>12}  {:<19}  {subvolumes:>10}  {whole:<9}  {}",
                root.generation, root.address, root.date, root.source
            )?;
        }
        Ok(())
    }
}

impl Ls {
    fn run(&self, out: &mut Output) -> Result<()> {
        let (found, _) = self.devices.open(true)?;
        let view = found.view(self.root).map_err(|error| status(error.into()))?;
        self.listing.run(&view.volume(), out)?;
        out.finish()?;
        let losses = Losses::of(&view);
        if losses.is_none() {
            return Ok(());
        }
        // Separate from the listing, in which a name may look like a loss, and which may be JSON.
        let is_terminal = std::io::stderr().is_terminal();
        let mut apart = Output::to(std::io::stderr(), is_terminal);
        losses.print(&mut apart)?;
        apart.finish()?;
        Err(not_whole(&self.devices.image))
    }
}

#[derive(Serialize)]
struct JsonGet {
    /// Entries copied in part or whole.
    entries: u64,
    bytes: u64,
    /// Entries copied whole.
    whole: u64,
    /// Entries copied without a checksum to verify them.
    uncertain: u64,
    /// Entries that could not be read or written; the standard error has the reasons.
    failed: u64,
    /// True if the copy reached its end.
    is_complete: bool,
    #[serde(flatten)]
    losses: Losses,
    notes: Vec<String>,
}

impl Get {
    fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        let Some((dest, paths)) = self.words.split_last() else { return Ok(()) };
        let whole = [PathBuf::from("/")];
        let paths = if paths.is_empty() { &whole } else { paths };
        let (found, is_own) = self.devices.open(self.copy.shows_progress())?;
        let view = found.view(self.root).map_err(|error| status(error.into()))?;
        let copied = self.copy.run(&view.volume(), (&self.devices.image, is_own), (paths, dest))?;
        let losses = Losses::of(&view);
        let (part, lost) = losses.count();
        let (entries, bytes, failed) = (copied.report.entries, copied.report.bytes, copied.report.failed);
        let uncertain = losses.uncertain(entries);
        let whole = entries.saturating_sub(part).saturating_sub(uncertain);
        let is_lost = !losses.is_none();
        let is_over = copied.result.is_ok();
        let told = copied.finish();
        if self.json {
            let notes = found.notes();
            out.json(&JsonGet { entries, bytes, whole, uncertain, failed, is_complete: is_over, losses, notes })?;
        } else {
            print_notes(&found, out)?;
            losses.print(out)?;
            let (bytes, dest) = (human::bytes(bytes), dest.display());
            let saved = format!("{whole} entries whole, {uncertain} uncertain, {part} in part");
            writeln!(out, "{dest}: {saved}, {lost} lost, {failed} not written; {bytes} copied")?;
        }
        if !is_over || !is_lost {
            return told;
        }
        if let Err(error) = told {
            warn(&crate::commands::failure::one_line(&error));
        }
        Err(not_whole(&self.devices.image))
    }
}

fn not_whole(image: &Path) -> Error {
    let text = format!("{}: some files could not be saved; the report lists the losses", image.display());
    Failure::refused(text).into()
}

#[derive(Serialize)]
struct JsonUndelete {
    found: Vec<JsonDeleted>,
    #[serde(flatten)]
    losses: Losses,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct JsonDeleted {
    #[serde(flatten)]
    path: JsonPath,
    generation: u64,
    subvolume: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    date: String,
    is_dir: bool,
}

impl JsonDeleted {
    fn of(deleted: &Deleted) -> Self {
        Self {
            path: JsonPath(deleted.path.clone()),
            generation: deleted.generation,
            subvolume: deleted.subvolume,
            inode: deleted.inode,
            size: deleted.size,
            seconds: deleted.seconds,
            date: date(deleted.seconds),
            is_dir: deleted.is_dir,
        }
    }
}

impl Undelete {
    fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        let (found, is_own) = self.devices.open(self.copy.shows_progress())?;
        let undeleted = found.undelete(self.pattern.as_bytes());
        if !self.json {
            print_notes(&found, out)?;
            for deleted in &undeleted.found {
                let Deleted { path, generation, size, seconds, is_dir, .. } = deleted;
                let slash = if *is_dir { "/" } else { "" };
                let (size, date) = (human::bytes(*size), date(*seconds));
                writeln!(out, "{generation:>8}  {date:<16}  {size:>10}  {}{slash}", escaped(path))?;
            }
        }
        let mut losses = Losses::default();
        let mut ended = Ok(());
        if let Some(dest) = &self.dest {
            ended = self.copy(&undeleted, is_own, dest);
            undeleted.views().iter().for_each(|view| losses.add(view));
        }
        let (part, lost) = losses.count();
        if self.json {
            let found_json = undeleted.found.iter().map(JsonDeleted::of).collect();
            out.json(&JsonUndelete { found: found_json, losses, notes: found.notes() })?;
        } else {
            losses.print(out)?;
        }
        ended?;
        if undeleted.found.is_empty() {
            let text = format!("{}: nothing deleted with such a name was found", self.devices.image.display());
            return Err(Failure::refused(text).into());
        }
        if part + lost == 0 { Ok(()) } else { Err(not_whole(&self.devices.image)) }
    }

    /// Copies the found files, one state after the other.
    fn copy(&self, undeleted: &spinney::btrfs::rescue::Undeleted, is_own: bool, dest: &Path) -> Result<()> {
        let mut generations: Vec<u64> = undeleted.found.iter().map(|deleted| deleted.generation).collect();
        generations.sort_unstable();
        generations.dedup();
        let mut ended = Ok(());
        for generation in generations {
            let Some(view) = undeleted.view(generation) else { continue };
            let mut paths: Vec<PathBuf> = Vec::new();
            for deleted in undeleted.found.iter().filter(|deleted| deleted.generation == generation) {
                let path = Path::new(OsStr::from_bytes(&deleted.path));
                // A directory is copied with its contents. Sorted by path, it comes before them.
                if !paths.iter().any(|known: &PathBuf| path.starts_with(known)) {
                    paths.push(path.to_owned());
                }
            }
            std::fs::create_dir_all(dest).with_context(|| dest.display().to_string())?;
            for (number, paths) in (1..).zip(without_same_names(paths)) {
                let name = match number {
                    1 => format!("generation-{generation}"),
                    number => format!("generation-{generation}-{number}"),
                };
                let into = dest.join(name);
                make_dir(&into)?;
                let copied = self.copy.run(&view.volume(), (&self.devices.image, is_own), (&paths, &into))?;
                ended = ended.and(copied.finish());
            }
        }
        ended
    }
}

/// Makes a directory, unless it exists.
fn make_dir(dir: &Path) -> Result<()> {
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(Error::from(error).context(dir.display().to_string()))
        }
        Err(_) if std::fs::symlink_metadata(dir).is_ok_and(|found| !found.is_dir()) => {
            Err(Failure::refused(format!("{}: not a directory", dir.display())).into())
        }
        _ => Ok(()),
    }
}

/// Divides the paths so that no list has two with the same last name: each list is copied to a directory of its own.
fn without_same_names(paths: Vec<PathBuf>) -> Vec<Vec<PathBuf>> {
    let mut lists: Vec<Vec<PathBuf>> = Vec::new();
    let mut counts: HashMap<OsString, usize> = HashMap::new();
    for path in paths {
        let count = counts.entry(path.file_name().unwrap_or_default().to_owned()).or_default();
        match lists.get_mut(*count) {
            Some(list) => list.push(path),
            None => lists.push(vec![path]),
        }
        *count += 1;
    }
    lists
}
