//! `spinney device` changes the set of devices of a volume, or lists it. Called by `args`.
//!
//! The volume is an image, which [`image`] opens, or mounted: then the server of the mount does the work
//! ([`served`], called by `jobs`), and [`mounted`] asks it to. A server in its sandbox can open no file, so the client
//! opens and locks a new device, and passes the descriptor. If the client ends, the server stops as well.
//!
//! A device is named by its path, by its number, or by the word `missing` if one is. A device that is overwritten is
//! empty, unless `--force` is given; a device that is taken out of a volume loses its superblocks last.

mod image;
mod mounted;
mod progress;
mod report;
mod served;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use spinney::blockdev::backends::{FileDevice, FileOptions};
use spinney::blockdev::{self, Access, Locator};
use spinney::btrfs::pool::supers::{marked_target, read_one};

use report::Row;

use super::scrub::Stats;
use super::seed::Seed;
use crate::commands::failure::{Failure, Status};
use crate::commands::human::parse_bytes;
use crate::commands::image::ImageArgs;
use crate::commands::names;
use crate::commands::output::Output;
use crate::existing_data;
use crate::target::Target;

pub(in crate::btrfs) use progress::Changing;
pub(in crate::btrfs) use served::{Resyncing, only_reads, serve};

/// The name of a missing device.
const MISSING: &str = "missing";

/// List, add, remove and replace the devices of a volume
///
/// IMAGE names the devices of the volume: A,B; or it is a directory of a mount, which stays in use meanwhile. A device
/// is named by its path, by its number, or `missing` if one is missing.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney mkfs -d raid1 a.img b.img --size 1G\n",
    "  spinney device list a.img,b.img\n",
    "  spinney device add a.img,b.img c.img --size 2G\n",
    "  spinney device replace a.img missing new.img"
))]
pub(crate) struct Device {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the devices
    #[command(visible_alias = "usage", after_help = concat!(
        "Examples:\n",
        "  spinney device list a.img,b.img\n",
        "  spinney device list --json a.img,b.img | jq '.[] | {id, path, allocated_bytes}'"
    ))]
    List(List),
    /// Add a device
    #[command(after_help = concat!(
        "Nothing is moved to it: `spinney balance start` does that.\n\n",
        "Examples:\n",
        "  spinney device add a.img,b.img c.img --size 2G\n",
        "  spinney device add ./mnt c.img --size 2G       of a mount\n",
        "  spinney device add --json a.img /dev/vdb | jq .id"
    ))]
    Add(Add),
    /// Move everything away from a device, and remove it
    #[command(visible_alias = "delete", after_help = concat!(
        "An interruption leaves the device in the volume, with less on it.\n\n",
        "Examples:\n",
        "  spinney device remove a.img,b.img,c.img b.img\n",
        "  spinney device remove a.img,c.img missing\n",
        "  spinney device remove --json a.img,b.img,c.img 3"
    ))]
    Remove(Remove),
    /// Put another device in the place of one
    #[command(after_help = concat!(
        "The contents come from all copies that are there. A range without any good copy is told, and left\n",
        "out. The new device is read back before the old one is overwritten. An interruption leaves the volume\n",
        "as it was, and the same command may be repeated.\n\n",
        "Examples:\n",
        "  spinney device replace status ./mnt\n",
        "  spinney device replace cancel ./mnt\n",
        "  spinney device replace a.img,b.img b.img new.img\n",
        "  spinney device replace a.img missing new.img\n",
        "  spinney device replace --json a.img,b.img 2 /dev/vdc | jq .written_bytes"
    ))]
    Replace(Replace),
    /// Bring a device up to date that missed commits
    #[command(after_help = concat!(
        "IMAGE names the other devices. DEVICE gets all that was written since its last commit. Data without\n",
        "checksums is compared as a whole, since nothing tells when it was written.\n\n",
        "Examples:\n",
        "  spinney device resync a.img b.img\n",
        "  spinney device resync --json a.img b.img | jq .written_bytes"
    ))]
    Resync(Resync),
    /// Show the progress of a change of the devices of a mount: replace, remove or resync
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney device status ./mnt\n",
        "  spinney device status --json ./mnt | jq '{state, done_bytes, total_bytes, rate, seconds_left}'"
    ))]
    Status(OnServer),
    /// Cancel a change of the devices of a mount
    #[command(after_help = concat!(
        "A device that was being replaced or brought up to date is as before, and the device that was to take\n",
        "its place is emptied. A device that was being removed stays, with less on it.\n\n",
        "Examples:\n",
        "  spinney device cancel ./mnt\n",
        "  spinney device cancel --json ./mnt | jq -r .state"
    ))]
    Cancel(OnServer),
    /// Show the error counters of the devices, as `btrfs device stats`
    #[command(after_help = concat!(
        "They are kept in the volume, by the kernel too: errors met since they were set to zero. Exit status\n",
        "3 tells that one of them is not zero.\n\n",
        "Examples:\n",
        "  spinney device stats a.img,b.img\n",
        "  spinney device stats --reset ./mnt             of a mount\n",
        "  spinney device stats --json a.img,b.img | jq '.[] | select(.write > 0)'"
    ))]
    Stats(Stats),
    /// Mark a volume as a seed, which is only read, or take the mark away
    #[command(after_help = concat!(
        "A seed is the beginning of other volumes, its sprouts: `spinney mkfs --seed IMAGE NEW` makes one.\n\n",
        "Examples:\n",
        "  spinney device seed base.img on\n",
        "  spinney device seed --force base.img off"
    ))]
    Seed(Seed),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    image: ImageArgs,
    /// Report as JSON: a list of {id, path, uuid, device_bytes, total_bytes, allocated_bytes, missing, seed}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Add {
    #[command(flatten)]
    image: ImageArgs,
    /// The new device or file
    #[arg(value_name = "DEVICE")]
    new: PathBuf,
    /// Make a file of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size: Option<u64>,
    /// Overwrite the data that DEVICE holds
    #[arg(short, long)]
    force: bool,
    /// Report as JSON: {id}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Remove {
    #[command(flatten)]
    image: ImageArgs,
    /// The device to remove
    #[arg(value_name = "DEVICE")]
    old: String,
    /// Report as JSON: {id}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Replace {
    #[command(subcommand)]
    order: Option<Order>,
    #[command(flatten)]
    start: WithoutOrder,
}

/// The words of a replacement, if they are there: clap's own `Option` does not see them behind another flattened field.
#[derive(Debug)]
struct WithoutOrder(Option<Replacement>);

impl FromArgMatches for WithoutOrder {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_there = matches.contains_id("old");
        is_there.then(|| Replacement::from_arg_matches(matches)).transpose().map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for WithoutOrder {
    fn augment_args(command: clap::Command) -> clap::Command {
        Replacement::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Replacement::augment_args_for_update(command)
    }
}

#[derive(Debug, Subcommand)]
enum Order {
    /// Replace a device, as without this word
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney device replace start a.img missing new.img\n",
        "  spinney device replace start --json a.img,b.img 2 /dev/vdc | jq .written_bytes"
    ))]
    Start(Replacement),
    /// Show how far the server of a mount is, as `device status`
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney device replace status ./mnt\n",
        "  spinney device replace status --json ./mnt | jq '{done_bytes, total_bytes, rate, seconds_left}'"
    ))]
    Status(OnServer),
    /// Cancel it on a mount, as `device cancel`: the devices are as before
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney device replace cancel ./mnt\n",
        "  spinney device replace cancel --json ./mnt | jq -r .state"
    ))]
    Cancel(OnServer),
}

/// A question or an order to the server of a mount.
#[derive(Debug, Args)]
struct OnServer {
    #[command(flatten)]
    image: ImageArgs,
    /// Report as JSON: {state, change, id, target, done_bytes, total_bytes, began_at, took_ms, failure, rate,
    /// seconds_left}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Replacement {
    #[command(flatten)]
    image: ImageArgs,
    /// The device to replace
    #[arg(value_name = "DEVICE")]
    old: String,
    /// The device that takes its place; a file is made
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Overwrite the data that NEW holds
    #[arg(short, long)]
    force: bool,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {id, written_bytes, same_bytes, lost, lost_files, is_old_left}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Resync {
    #[command(flatten)]
    image: ImageArgs,
    /// The device that missed commits
    #[arg(value_name = "DEVICE")]
    stale: PathBuf,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {id, written_bytes, same_bytes, lost, lost_files, is_old_left}
    #[arg(long)]
    json: bool,
}

impl Device {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::List(command) => command.run(out),
            Command::Add(command) => command.run(out),
            Command::Remove(command) => command.run(out),
            Command::Replace(command) => command.run(out),
            Command::Status(command) => command.status(out),
            Command::Cancel(command) => command.cancel(out),
            Command::Resync(command) => command.run(out),
            Command::Stats(command) => command.run(out),
            Command::Seed(command) => command.run(out),
        }
    }
}

impl List {
    fn run(&self, out: &mut Output) -> Result<()> {
        let rows = match self.image.mounted_dir()? {
            Some(dir) => mounted::list(&dir)?,
            None => image::list(&self.image)?,
        };
        if self.json { out.json(&rows) } else { rows.iter().try_for_each(|row| row.print(out)) }
    }
}

impl Add {
    fn run(&self, out: &mut Output) -> Result<()> {
        let changed = match self.image.mounted_dir()? {
            Some(dir) => {
                let new = New { path: &self.new, size: self.size, force: self.force, old: None };
                let (device, target) = new.open_file()?;
                mounted::add(&dir, device).inspect_err(|_| remove_unless_member(&target))?
            }
            None => image::add(self)?,
        };
        if self.json {
            return out.json(&changed);
        }
        Ok(writeln!(out, "{} is device {}", self.new.display(), changed.id)?)
    }
}

impl Remove {
    fn run(&self, out: &mut Output) -> Result<()> {
        let changed = match self.image.mounted_dir()? {
            Some(dir) => mounted::remove(&dir, &self.old, !self.json)?,
            None => image::remove(self)?,
        };
        if self.json {
            return out.json(&changed);
        }
        Ok(writeln!(out, "device {} is removed", changed.id)?)
    }
}

impl Replace {
    fn run(&self, out: &mut Output) -> Result<()> {
        match (&self.order, &self.start.0) {
            (Some(Order::Start(start)), _) | (None, Some(start)) => start.run(out),
            (Some(Order::Status(command)), _) => command.status(out),
            (Some(Order::Cancel(command)), _) => command.cancel(out),
            (None, None) => Err(Failure::usage("IMAGE is missing").into()),
        }
    }
}

impl OnServer {
    fn status(&self, out: &mut Output) -> Result<()> {
        mounted::status(&self.dir()?)?.tell(self.json, out)
    }

    fn cancel(&self, out: &mut Output) -> Result<()> {
        mounted::cancel(&self.dir()?)?.tell(self.json, out)
    }

    fn dir(&self) -> Result<PathBuf> {
        let image = || self.image.image.display().to_string();
        let text = "no mount; a change of an image runs in its command, which a signal (Ctrl-C) ends";
        let dir = self.image.mounted_dir()?;
        Ok(dir.ok_or_else(|| Failure::usage(format!("{}: {text}", image())))?)
    }
}

impl Replacement {
    fn run(&self, out: &mut Output) -> Result<()> {
        let rebuilt = match self.image.mounted_dir()? {
            Some(dir) => {
                let old = mounted::find(&dir, &self.old)?;
                old.refuse_seed()?;
                let size = Some(old.total_bytes);
                let new = New { path: &self.new, size, force: self.force, old: Some(&old) };
                let (device, target) = new.open_file()?;
                let has_bar = !self.quiet && !self.json;
                let replaced = mounted::replace(&dir, &old, device, has_bar);
                replaced.inspect_err(|_| remove_unless_member(&target))?
            }
            None => image::replace(self)?,
        };
        rebuilt.tell(out, (self.quiet, self.json))
    }
}

impl Resync {
    fn run(&self, out: &mut Output) -> Result<()> {
        let rebuilt = match self.image.mounted_dir()? {
            Some(dir) => {
                let path = plain_path(&Locator::parse(&self.stale)?)?;
                let device = FileDevice::open(&path, &FileOptions::default());
                let device = device.with_context(|| path.display().to_string())?;
                mounted::resync(&dir, device, !self.quiet && !self.json)?
            }
            None => image::resync(self)?,
        };
        rebuilt.tell(out, (self.quiet, self.json))
    }
}

/// A device that is to be overwritten: it holds nothing, unless `force` is given. A file is made, or made longer.
struct New<'a> {
    path: &'a Path,
    size: Option<u64>,
    force: bool,
    /// The device whose place it takes.
    old: Option<&'a Row>,
}

impl New<'_> {
    /// The device, and whether a file is to be made; not opened yet.
    fn inspect(&self) -> Result<(Target, bool)> {
        let target = Target::inspect(self.path, self.path, true)?;
        if !self.force && !self.was_begun(&target) {
            target.refuse_occupied(false)?;
        }
        let is_file = self.size.is_some() && !target.is_device;
        Ok((target, is_file))
    }

    /// True for the target of the same replacement, which was cut short.
    fn was_begun(&self, target: &Target) -> bool {
        let marked = || {
            let device = blockdev::open(&target.part, Access { unlocked: true, ..Access::READ }).ok()?;
            marked_target(&*device)
        };
        self.old.is_some_and(|old| marked().is_some_and(|uuid| names::uuid(&uuid.0) == old.uuid))
    }

    /// Prepares the opened device.
    fn prepare(&self, device: &dyn blockdev::Device, is_file: bool) -> Result<()> {
        let shown = || self.path.display().to_string();
        if let Some(size) = self.size.filter(|size| is_file && device.size_bytes() < *size) {
            device.grow(size).with_context(shown)?;
        }
        existing_data::erase_signatures(device, true)?;
        // Until it is a device of the volume it must not be taken for one of another.
        device.flush().with_context(shown)
    }

    fn open(&self) -> Result<(std::sync::Arc<dyn blockdev::Device>, Target)> {
        let (target, create) = self.inspect()?;
        let opened = blockdev::open(&target.part, Access { create, ..Access::WRITE });
        let device = opened.with_context(|| self.path.display().to_string())?;
        self.prepare(&*device, create)?;
        Ok((device, target))
    }

    /// As [`New::open`], for the server of a mount: a file or block device of this machine.
    fn open_file(&self) -> Result<(FileDevice, Target)> {
        let (target, create) = self.inspect()?;
        let options = FileOptions { create, ..FileOptions::default() };
        let device = FileDevice::open(plain_path(&target.part)?, &options);
        let device = device.with_context(|| self.path.display().to_string())?;
        self.prepare(&device, create)?;
        Ok((device, target))
    }
}

/// Removes the file that a failed change has made, unless it is a device of the volume already.
fn remove_unless_member(target: &Target) {
    let device = blockdev::open(&target.part, Access { unlocked: true, ..Access::READ });
    if device.is_ok_and(|device| read_one(&*device, 0).is_err()) {
        target.remove_new();
    }
}

/// The path of a whole file or block device.
fn plain_path(part: &Locator) -> Result<PathBuf> {
    let path = part.path().filter(|_| part.offset() == 0 && part.size().is_none());
    let text = || format!("{part}: a mount takes a whole file or block device of this machine");
    let path = path.ok_or_else(|| Failure::new(Status::Unsupported, text()))?;
    // The server has it under this name, whatever its own directory is.
    Ok(std::path::absolute(path)?)
}
