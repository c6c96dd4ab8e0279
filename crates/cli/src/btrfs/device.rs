//! `spinney device` changes the set of devices of a volume, or lists it. Called by `args`. The volume is not mounted.
//!
//! A device is named by its path, by its number, or by the word `missing` if one is. A device that is overwritten is
//! empty, unless `--force` is given; a device that is taken out of a volume loses its superblocks last.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::blockdev::{self, Access, Device as Block, Locator};
use spinney::btrfs::pool::{Error as PoolError, Intent, MemberError, Members, Mode, supers};
use spinney::btrfs::{DeviceState, Generation, RebuildReport, Volume, open_with};
use spinney::{Devices, VolumeOptions};

use super::format;
use super::seed::{self, Seed};
use crate::commands::failure::{Failure, Status};
use crate::commands::human::{self, parse_bytes};
use crate::commands::image::{ImageArgs, explain, open_devices};
use crate::commands::names;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};
use crate::existing_data;
use crate::target::Target;

/// The name of a missing device.
const MISSING: &str = "missing";

/// List, add, remove and replace the devices of a volume
///
/// The volume is not mounted. IMAGE names its devices: A,B. A device of it is named by its path, by its number, or
/// `missing` if one is missing.
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
        "Nothing is moved to it: `spinney balance start A,B,DEVICE` does that.\n\n",
        "Examples:\n",
        "  spinney device add a.img,b.img c.img --size 2G\n",
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
        "IMAGE names the other devices. DEVICE gets all that was written since its last commit; the rest is\n",
        "compared with the other copies.\n\n",
        "Examples:\n",
        "  spinney device resync a.img b.img\n",
        "  spinney device resync --json a.img b.img | jq .written_bytes"
    ))]
    Resync(Resync),
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
    /// Report as JSON: a list of {id, path, uuid, device_bytes, total_bytes, allocated_bytes, missing}
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
    /// Report as JSON: {id, written_bytes, same_bytes, lost}
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
    /// Report as JSON: {id, written_bytes, same_bytes, lost}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    id: u64,
    path: Option<String>,
    uuid: String,
    device_bytes: u64,
    total_bytes: u64,
    allocated_bytes: u64,
    missing: bool,
}

#[derive(Serialize)]
struct Changed {
    id: u64,
}

#[derive(Serialize)]
struct Rebuilt {
    id: u64,
    written_bytes: u64,
    same_bytes: u64,
    /// Logical addresses and lengths of ranges without a good copy.
    lost: Vec<(u64, u64)>,
}

impl Device {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::List(command) => command.run(out),
            Command::Add(command) => command.run(out),
            Command::Remove(command) => command.run(out),
            Command::Replace(command) => command.run(out),
            Command::Resync(command) => command.run(out),
            Command::Seed(command) => command.run(out),
        }
    }
}

impl List {
    fn run(&self, out: &mut Output) -> Result<()> {
        let set = Set::open(&self.image, true, self.image.degraded)?;
        let rows = set.volume.devices().into_iter().map(|device| Row {
            id: device.id.0,
            path: (!device.is_missing).then(|| names::escaped_text(&device.name).into_owned()),
            uuid: names::uuid(&device.uuid.0),
            device_bytes: device.device_bytes,
            total_bytes: device.total_bytes,
            allocated_bytes: device.used_bytes,
            missing: device.is_missing,
        });
        let rows: Vec<Row> = rows.collect();
        if self.json {
            return out.json(&rows);
        }
        for row in rows {
            let (allocated, total) = (human::bytes(row.allocated_bytes), human::bytes(row.total_bytes));
            let path = row.path.as_deref().unwrap_or(MISSING);
            writeln!(out, "{:>4}  {path}: {allocated} of {total} allocated", row.id)?;
        }
        Ok(())
    }
}

impl Add {
    fn run(&self, out: &mut Output) -> Result<()> {
        let set = Set::open(&self.image, false, self.image.degraded)?;
        let new = open_new(&self.new, self.size, self.force)?;
        let id = set.volume.add_device(&new).with_context(|| self.new.display().to_string())?;
        set.close()?;
        if self.json {
            return out.json(&Changed { id });
        }
        Ok(writeln!(out, "{} is device {id}", self.new.display())?)
    }
}

impl Remove {
    fn run(&self, out: &mut Output) -> Result<()> {
        let set = Set::open(&self.image, false, self.image.degraded || self.old == MISSING)?;
        let old = set.find(&self.old)?;
        seed::refuse(&old)?;
        let id = old.id.0;
        let removed = set.volume.remove_device(id, &mut |_| ControlFlow::Continue(()));
        removed.with_context(|| self.old.clone())?;
        set.close()?;
        if self.json {
            return out.json(&Changed { id });
        }
        Ok(writeln!(out, "device {id} is removed")?)
    }
}

impl Replace {
    fn run(&self, out: &mut Output) -> Result<()> {
        let set = Set::open(&self.image, false, self.image.degraded || self.old == MISSING)?;
        let old = set.find(&self.old)?;
        seed::refuse(&old)?;
        let new = open_new(&self.new, Some(old.total_bytes), self.force)?;
        let report = set.rebuild(&old, new, (Generation(0), true), self.quiet)?;
        let source = set.device(&old);
        set.close()?;
        if let Some(source) = source {
            supers::retire(&*source)?;
        }
        told(out, &old, report, (self.quiet, self.json))
    }
}

impl Resync {
    fn run(&self, out: &mut Output) -> Result<()> {
        let shown = || self.stale.display().to_string();
        let stale = blockdev::open(&Locator::parse(&self.stale)?, Access::WRITE).with_context(shown)?;
        self.check_is_behind(&stale)?;
        let set = Set::open(&self.image, false, true)?;
        let superblock = supers::read(&*stale, Intent::ReadOnly).with_context(shown)?;
        let item = superblock.fields().dev_item;
        let known = set.volume.devices().into_iter().find(|device| device.id.0 == item.devid.get());
        let known = known.filter(|device| device.uuid == item.uuid && device.is_missing);
        let Some(device) =
            known.filter(|_| superblock.fields().fsid.0 == set.volume.info().map_or([0; 16], |i| i.uuid))
        else {
            let text = format!("{}: expected a device that {} lacks", shown(), self.image.image.display());
            return Err(Failure::new(Status::Refused, text).into());
        };
        let report = set.rebuild(&device, stale, (superblock.generation(), false), self.quiet)?;
        set.close()?;
        told(out, &device, report, (self.quiet, self.json))
    }
}

impl Resync {
    /// Refuses a device that is not behind the others: its contents would be lost.
    fn check_is_behind(&self, stale: &Arc<dyn Block>) -> Result<()> {
        let mut devices = open_devices(&self.image, &self.image.request().read_only(true))?;
        devices.push(Arc::clone(stale));
        let is_it = |error: &MemberError| matches!(error, MemberError::Stale { device, .. } if device == stale.name());
        let why = match Members::read(&devices, Intent::ReadOnly, None, Mode::Strict) {
            Err(PoolError::Members(error)) if is_it(&error) => return Ok(()),
            Err(PoolError::Members(error)) => error.to_string(),
            Err(error) => return Err(error.into()),
            Ok(members) if members.lagging().any(|(_, error)| is_it(&error)) => return Ok(()),
            Ok(_) => format!("{}: missed no commit", self.stale.display()),
        };
        Err(Failure::refused(why).into())
    }
}

/// The devices of a volume, and the volume.
struct Set {
    devices: Devices,
    volume: Volume,
}

impl Set {
    fn open(image: &ImageArgs, read_only: bool, degraded: bool) -> Result<Self> {
        if image.mounted_dir()?.is_some() {
            let text = format!("{}: unmount it first: devices change in images", image.image.display());
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        let request: VolumeOptions = image.request().read_only(read_only);
        let request = if degraded && !image.degraded { request.flag("degraded") } else { request };
        let opened = open_devices(image, &request).and_then(|devices| {
            let volume = open_with(devices.clone(), &request, |own| own)?;
            Ok(Self { devices, volume })
        });
        opened.map_err(|error| format::of_another(&image.image).unwrap_or_else(|| explain(&image.image, error)))
    }

    /// The device that a text names.
    fn find(&self, text: &str) -> Result<DeviceState> {
        let devices = self.volume.devices();
        let mut found = devices.into_iter().filter(|device| match text {
            MISSING => device.is_missing,
            _ => device.id.0.to_string() == text || (!device.is_missing && Path::new(&device.name) == Path::new(text)),
        });
        match (found.next(), found.next()) {
            (Some(device), None) => Ok(device),
            (Some(_), Some(_)) => {
                Err(Failure::usage(format!("{text}: several devices are missing: give a number")).into())
            }
            (None, _) => Err(Failure::refused(format!("{text}: no device of this volume")).into()),
        }
    }

    fn device(&self, state: &DeviceState) -> Option<Arc<dyn Block>> {
        self.devices.iter().find(|device| !state.is_missing && device.name() == state.name).cloned()
    }

    fn rebuild(
        &self,
        old: &DeviceState,
        new: Arc<dyn Block>,
        how: (Generation, bool),
        quiet: bool,
    ) -> Result<RebuildReport> {
        let progress = Arc::new(Progress::default());
        progress.bytes_total.store(old.used_bytes, Ordering::Relaxed);
        let _bar = Bar::new(&progress, !quiet);
        let name = new.name().to_owned();
        let rebuilt = self.volume.rebuild_device(old.id.0, new, how, &mut |report| {
            progress.bytes.store(report.written_bytes.saturating_add(report.same_bytes), Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        rebuilt.with_context(|| name)
    }

    fn close(self) -> Result<()> {
        Ok(self.volume.close()?)
    }
}

/// Opens a device that is to be overwritten: it holds nothing, unless `force` is given. A file is made, or made longer.
fn open_new(path: &Path, size: Option<u64>, force: bool) -> Result<Arc<dyn Block>> {
    let target = Target::inspect(path, path, true)?;
    if !force {
        target.refuse_occupied(false)?;
    }
    let (part, is_device, shown) = (&target.part, target.is_device, || path.display().to_string());
    let access = Access { create: size.is_some() && !is_device, ..Access::WRITE };
    let device = blockdev::open(part, access).with_context(shown)?;
    if let Some(size) = size.filter(|size| !is_device && device.size_bytes() < *size) {
        device.grow(size).with_context(shown)?;
    }
    existing_data::erase_signatures(&*device, true)?;
    // Until it is a device of the volume it must not be taken for one of another.
    device.flush().with_context(shown)?;
    Ok(device)
}

/// Prints the result of writing a device anew. Ranges without a good copy make the command fail.
fn told(out: &mut Output, device: &DeviceState, report: RebuildReport, (quiet, json): (bool, bool)) -> Result<()> {
    let RebuildReport { written_bytes, same_bytes, lost, .. } = report;
    let id = device.id.0;
    let lost_bytes: u64 = lost.iter().map(|(_, len)| *len).sum();
    if json {
        out.json(&Rebuilt { id, written_bytes, same_bytes, lost })?;
    } else if !quiet {
        let (written, same) = (human::bytes(written_bytes), human::bytes(same_bytes));
        writeln!(out, "device {id}: {written} written, {same} were there already")?;
    }
    match lost_bytes {
        0 => Ok(()),
        bytes => {
            let text =
                format!("device {id}: {} have no good copy; `spinney scrub` names the files", human::bytes(bytes));
            Err(Failure::new(Status::Corrupt, text).into())
        }
    }
}
