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
mod report;
mod served;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use spinney::blockdev::backends::{FileDevice, FileOptions};
use spinney::blockdev::{self, Access, Locator};

use super::scrub::Stats;
use super::seed::Seed;
use crate::commands::failure::{Failure, Status};
use crate::commands::human::parse_bytes;
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;
use crate::existing_data;
use crate::target::Target;

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
        "as it was.\n\n",
        "Examples:\n",
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
struct Replace {
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
            Some(dir) => mounted::add(&dir, new_file(&self.new, self.size, self.force)?)?,
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
            Some(dir) => mounted::remove(&dir, &self.old)?,
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
        let rebuilt = match self.image.mounted_dir()? {
            Some(dir) => {
                let old = mounted::find(&dir, &self.old)?;
                mounted::replace(&dir, &old, new_file(&self.new, Some(old.total_bytes), self.force)?)?
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
                mounted::resync(&dir, device.with_context(|| path.display().to_string())?)?
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
}

impl New<'_> {
    /// The device, and whether a file is to be made; not opened yet.
    fn inspect(&self) -> Result<(Locator, bool)> {
        let target = Target::inspect(self.path, self.path, true)?;
        if !self.force {
            target.refuse_occupied(false)?;
        }
        Ok((target.part, self.size.is_some() && !target.is_device))
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

    fn open(&self) -> Result<std::sync::Arc<dyn blockdev::Device>> {
        let (part, create) = self.inspect()?;
        let opened = blockdev::open(&part, Access { create, ..Access::WRITE });
        let device = opened.with_context(|| self.path.display().to_string())?;
        self.prepare(&*device, create)?;
        Ok(device)
    }
}

/// As [`New::open`], for the server of a mount: a file or block device of this machine.
fn new_file(path: &Path, size: Option<u64>, force: bool) -> Result<FileDevice> {
    let new = New { path, size, force };
    let (part, create) = new.inspect()?;
    let options = FileOptions { create, ..FileOptions::default() };
    let device = FileDevice::open(plain_path(&part)?, &options).with_context(|| path.display().to_string())?;
    new.prepare(&device, create)?;
    Ok(device)
}

/// The path of a whole file or block device.
fn plain_path(part: &Locator) -> Result<PathBuf> {
    let path = part.path().filter(|_| part.offset() == 0 && part.size().is_none());
    let text = || format!("{part}: a mount takes a whole file or block device of this machine");
    let path = path.ok_or_else(|| Failure::new(Status::Unsupported, text()))?;
    // The server has it under this name, whatever its own directory is.
    Ok(std::path::absolute(path)?)
}
