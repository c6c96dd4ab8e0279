//! `spinney balance` moves the extents of an image or a mount into other block groups, and shows, pauses, resumes or
//! cancels a balance. Called by `args`; of a mount the server does the work, asked through `server_report`.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, Subcommand};
use rustix::io::Errno;
use serde::Serialize;
use spinney::btrfs::{
    BalanceEnd, BalanceSpec, BalanceStatus, CallerError, Error as Cause, Volume, balance as run_balance, resume_balance,
};
use spinney::{Blame, Errno as Number, Error as VolumeError, ProgressFn};

use super::format;
use super::server_report::{self, read_reply};
use crate::commands::failure::{Failure, Status};
use crate::commands::human;
use crate::commands::image::{ImageArgs, ReadArgs};
use crate::commands::interrupt::Interrupt;
use crate::commands::names;
use crate::commands::output::Output;
use crate::commands::polling::Polling;
use crate::commands::progress::{Bar, Progress};

/// Shown if an interrupted balance prevents a new one.
const CUT_SHORT: &str = "a balance was cut short here: `balance resume` goes on with it, `balance cancel` forgets it";

/// Rewrite block groups: compact them, return space, convert profiles
///
/// All extents of the chosen block groups are moved to others, and the groups are returned to free space. Extents that
/// snapshots and clones share stay shared. The image is consistent after each step: an interrupted balance, even by a
/// crash, can be resumed with `balance resume`; a kernel that mounts the image resumes it by itself. Images without a
/// free-space tree cannot be balanced.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Filters are those of `btrfs balance`, parted by commas; `all` for none:\n",
    "  usage=PERCENT, usage=MIN..MAX    groups that are less full\n",
    "  limit=COUNT, limit=MIN..MAX      so many groups\n",
    "  profiles=single|dup              groups that are stored so\n",
    "  convert=single, convert=dup      to be stored so; with `soft` not those that are\n",
    "  devid=N, drange=START..END, vrange=START..END, stripes=MIN..MAX\n\n",
    "Examples:\n",
    "  spinney balance start site.img -d usage=50 -m usage=50\n",
    "  spinney balance start site.img -m convert=dup -s convert=dup\n",
    "  spinney balance status ./mnt\n",
    "  spinney balance status --json site.img | jq -r .state"
))]
pub(crate) struct Balance {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Balance an image or a mount; without filters all block groups are rewritten
    #[command(after_help = concat!(
        "A mount goes on by itself when this is stopped; an image is left as it is, to be resumed.\n\n",
        "Examples:\n",
        "  spinney balance start site.img\n",
        "  spinney balance start site.img -d usage=20\n",
        "  spinney balance start --background ./mnt -d all\n",
        "  spinney balance start site.img -m convert=single -s convert=single -f\n",
        "  spinney balance start --json site.img | jq .completed"
    ))]
    Start {
        #[command(flatten)]
        image: ImageArgs,
        /// Groups of data
        #[arg(short, long, value_name = "FILTERS")]
        data: Option<String>,
        /// Groups of metadata
        #[arg(short, long, value_name = "FILTERS")]
        metadata: Option<String>,
        /// Groups of the chunk tree; by default those of metadata, where these are converted
        #[arg(short, long, value_name = "FILTERS")]
        system: Option<String>,
        /// Allow metadata to be stored in fewer copies than before
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        how: How,
    },
    /// Resume an interrupted balance
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney balance resume site.img\n",
        "  spinney balance resume --json site.img | jq .completed"
    ))]
    Resume {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        how: How,
    },
    /// Show whether a balance is unfinished, and its progress
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney balance status ./mnt\n",
        "  spinney balance status --json site.img | jq -r .state       none, running or paused"
    ))]
    Status {
        #[command(flatten)]
        image: ReadArgs,
        /// Report as JSON: {state, spec, expected, completed, without_room, moved_bytes, failure}
        #[arg(long)]
        json: bool,
    },
    /// Pause the balance of a mount, to be resumed
    #[command(after_help = concat!(
        "A balance of an image runs in `balance start` itself: a signal (Ctrl-C) pauses it.\n\n",
        "Examples:\n",
        "  spinney balance pause ./mnt\n",
        "  spinney balance pause --json ./mnt"
    ))]
    Pause {
        #[command(flatten)]
        image: ImageArgs,
        /// Report as JSON, as `balance status` does
        #[arg(long)]
        json: bool,
    },
    /// Forget an unfinished balance; completed work stays
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney balance cancel site.img\n",
        "  spinney balance cancel --json ./mnt"
    ))]
    Cancel {
        #[command(flatten)]
        image: ImageArgs,
        /// Report as JSON, as `balance status` does
        #[arg(long)]
        json: bool,
    },
}

/// How it is run and reported.
#[derive(Debug, Clone, Copy, Args)]
struct How {
    /// Of a mount: do not wait for the balance to end
    #[arg(short, long)]
    background: bool,
    /// No progress bar and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON, as `balance status` does
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    state: &'static str,
    /// Types and filters of an unfinished balance.
    spec: Option<String>,
    /// Number of block groups to be balanced.
    expected: u64,
    considered: u64,
    completed: u64,
    /// Number of block groups that could not be moved for lack of space.
    without_room: u64,
    moved_bytes: u64,
    failure: Option<String>,
}

impl From<&BalanceStatus> for Report {
    fn from(status: &BalanceStatus) -> Self {
        let progress = &status.progress;
        Self {
            state: match (&status.spec, status.is_running) {
                (_, true) => "running",
                (Some(_), false) => "paused",
                (None, false) => "none",
            },
            spec: status.spec.map(|spec| spec.to_string()),
            expected: progress.expected,
            considered: progress.considered,
            completed: progress.completed,
            without_room: progress.without_room,
            moved_bytes: progress.moved_bytes,
            failure: status.failure.clone(),
        }
    }
}

impl Balance {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Start { image, how, .. } => {
                let spec = self.spec()?;
                match image.mounted_dir()? {
                    Some(dir) => order_and_watch(&dir, &format!("start {spec}"), *how, out),
                    None => balance(image, Some(&spec), *how, out, |volume, watch| run_balance(volume, spec, watch)),
                }
            }
            Command::Resume { image, how } => match image.mounted_dir()? {
                Some(dir) => order_and_watch(&dir, "resume", *how, out),
                None => {
                    let paused = of_image(&format::open_image_as(image, true)?)?.spec;
                    balance(image, paused.as_ref(), *how, out, resume_balance)
                }
            },
            Command::Status { image, json } => {
                let status = match image.mounted_dir()? {
                    Some(dir) => of_mount(&dir)?,
                    None => of_image(&format::open_read_only(image)?)?,
                };
                report(&status, *json, out)
            }
            Command::Pause { image, json } => {
                let dir = image.mounted_dir()?.ok_or_else(|| {
                    Failure::usage(format!(
                        "{}: no mount; to pause is to stop the program that balances it",
                        name(image)
                    ))
                })?;
                order(&dir, "pause")?;
                report(&of_mount(&dir)?, *json, out)
            }
            Command::Cancel { image, json } => {
                let status = match image.mounted_dir()? {
                    Some(dir) => {
                        order(&dir, "cancel")?;
                        of_mount(&dir)?
                    }
                    None => {
                        let volume = format::open_writable(image)?;
                        volume.cancel_balance().map_err(|error| explain(image, error))?;
                        let status = of_image(&volume)?;
                        volume.close()?;
                        status
                    }
                };
                report(&status, *json, out)
            }
        }
    }

    fn spec(&self) -> Result<BalanceSpec> {
        let Command::Start { data, metadata, system, force, .. } = &self.command else {
            return Ok(BalanceSpec::default());
        };
        let usage = |error: spinney::btrfs::NotBalance| Failure::usage(error.to_string());
        let filters = |text: &str| if text == "all" { String::new() } else { text.to_owned() };
        let mut spec = BalanceSpec::default();
        if data.is_none() && metadata.is_none() && system.is_none() {
            spec = BalanceSpec::all();
        }
        if let Some(text) = data {
            spec = spec.data(&filters(text)).map_err(usage)?;
        }
        if let Some(text) = metadata {
            spec = spec.metadata(&filters(text)).map_err(usage)?;
        }
        let with_metadata = metadata.as_ref().filter(|text| text.contains("convert="));
        if let Some(text) = system.as_ref().or(with_metadata) {
            spec = spec.system(&filters(text)).map_err(usage)?;
        }
        Ok(if *force { spec.force() } else { spec })
    }
}

fn name(image: &ImageArgs) -> String {
    names::escaped(image.image.as_os_str().as_bytes()).to_string()
}

/// Balances an image.
fn balance(
    image: &ImageArgs,
    spec: Option<&BalanceSpec>,
    how: How,
    out: &mut Output,
    run: impl FnOnce(&Volume, ProgressFn<'_>) -> Result<BalanceEnd, VolumeError>,
) -> Result<()> {
    if how.background {
        return Err(Failure::usage(format!("{}: only a mount goes on in the background", name(image))).into());
    }
    // It may lead out of profiles that are only read.
    let volume = format::open_with(image, &image.request(), |own| match spec {
        Some(spec) => own.leave_parity(spec),
        None => own,
    })?;
    let interrupt = Interrupt::catch()?;
    let shown = Arc::new(Progress::default());
    let bar = Bar::new(&shown, !how.quiet);
    let ended = run(&volume, &mut |progress| {
        shown.show(progress);
        if interrupt.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(bar);
    let progress = match ended {
        Ok(BalanceEnd::Done(progress) | BalanceEnd::Paused(progress)) => progress,
        Err(error) => return Err(explain(image, error)),
    };
    let status = BalanceStatus { progress, ..of_image(&volume)? };
    volume.close()?;
    tell(&status, how, out)?;
    interrupt.end_by_it();
    Ok(())
}

/// Sends an order to the server of a mount, and shows the progress.
fn order_and_watch(dir: &Path, text: &str, how: How, out: &mut Output) -> Result<()> {
    order(dir, text)?;
    let shown = Arc::new(Progress::default());
    let bar = Bar::new(&shown, !how.quiet && !how.background);
    let mut status = of_mount(dir)?;
    let mut polling = Polling::default();
    while status.is_running && !how.background {
        shown.show(&(&status.progress).into());
        polling.wait();
        status = of_mount(dir)?;
    }
    drop(bar);
    if let Some(failure) = &status.failure {
        let kind = if status.progress.without_room > 0 { Status::NoSpace } else { Status::Io };
        return Err(Failure::new(kind, format!("{}: {failure}", dir.display())).into());
    }
    tell(&status, how, out)
}

fn order(dir: &Path, text: &str) -> Result<()> {
    server_report::order(dir, BalanceStatus::XATTR, text, "balance", |error| {
        let text = match error {
            Errno::BUSY => "a balance is under way: `balance status` tells how far it is",
            Errno::EXIST => CUT_SHORT,
            Errno::NOENT => "there is no balance that has not ended",
            Errno::INVAL => "metadata would be stored in fewer copies (-f does that), or mixed groups differ",
            _ => return None,
        };
        Some(server_report::refusal(dir, text))
    })
}

fn explain(image: &ImageArgs, error: VolumeError) -> anyhow::Error {
    let cause = error.cause::<Cause>().and_then(Cause::caller_error);
    let too_few = match cause {
        Some(cause @ CallerError::FewDevices { .. }) => Some(cause.to_string()),
        _ => None,
    };
    let text = match error.errno() {
        Number::EEXIST => CUT_SHORT,
        Number::EBUSY if error.blame() == Blame::Caller => {
            "new data kept arriving where something was moved; `balance resume` goes on"
        }
        Number::ENOENT => "there is no balance that has not ended",
        Number::EINVAL if cause == Some(CallerError::FewerCopies) => {
            "metadata would be stored in fewer copies: -f does that"
        }
        Number::EINVAL if let Some(text) = &too_few => text,
        Number::EINVAL => "data and metadata lie together here: they are balanced alike, or not at all",
        _ => return anyhow::Error::new(error).context(name(image)),
    };
    Failure::refused(format!("{}: {text}", name(image))).into()
}

/// The status that the server of a mount reports.
fn of_mount(dir: &Path) -> Result<BalanceStatus> {
    read_reply(dir, BalanceStatus::XATTR, "balance")
}

fn of_image(volume: &Volume) -> Result<BalanceStatus> {
    Ok(BalanceStatus { spec: volume.paused_balance()?, ..BalanceStatus::default() })
}

fn report(status: &BalanceStatus, json: bool, out: &mut Output) -> Result<()> {
    if json { out.json(&Report::from(status)) } else { print(status, out) }
}

fn tell(status: &BalanceStatus, how: How, out: &mut Output) -> Result<()> {
    match how {
        How { json: true, .. } => out.json(&Report::from(status)),
        How { quiet: true, .. } => Ok(()),
        How { .. } => print(status, out),
    }
}

fn print(status: &BalanceStatus, out: &mut Output) -> Result<()> {
    let Report { state, spec, expected, considered, completed, without_room, moved_bytes, failure } =
        Report::from(status);
    match (state, &spec) {
        ("none", _) if completed > 0 || expected > 0 => writeln!(out, "done")?,
        ("none", _) if considered > 0 => writeln!(out, "done: none of {considered} block groups was chosen")?,
        ("none", _) => writeln!(out, "no balance")?,
        (_, Some(spec)) => writeln!(out, "{state}: {spec}")?,
        (_, None) => writeln!(out, "{state}")?,
    }
    if expected > 0 {
        let moved = human::bytes(moved_bytes);
        writeln!(out, "{completed} of {expected} block groups written anew, {moved} moved")?;
    }
    if without_room > 0 {
        writeln!(out, "{without_room} had no room")?;
    }
    match failure {
        Some(failure) => Ok(writeln!(out, "the last one failed: {failure}")?),
        None => Ok(()),
    }
}
