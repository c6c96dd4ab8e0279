//! `spinney scrub` verifies all data and metadata, and repairs bad copies: `run` scrubs an image, or asks the server of
//! a mount to; `server_scrub` is the scrub of a mount in its server; `status` is the progress; `progress_file` stores
//! it, so that an interrupted scrub can continue; `report` lists the faults; `stats` shows the device's error counters.
//!
//! Invariant: a file system has one scrub at a time: of a mount by its server, of an image by a lock. Failure:
//! remaining bad copies give the exit status of damage. Callers: `args`, and `jobs` in the server of a mount.

mod progress_file;
mod report;
mod run;
mod server_scrub;
mod stats;
mod status;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::format;
use crate::commands::human;
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;

pub(super) use report::Lost;
pub(super) use server_scrub::Scrubbing;
pub(super) use stats::Stats;

/// Read and verify all data and metadata, and repair bad copies
///
/// All copies of data and metadata are read and compared with their checksums. A bad copy is overwritten from a good
/// one; without a good one, the files that it belongs to are named, in snapshots too.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The progress of a scrub is kept in $XDG_STATE_HOME/spinney/scrub.UUID (~/.local/state/spinney without it), a\n",
    "file of the user who scrubs; nothing of it is in the image.\n\n",
    "Examples:\n",
    "  spinney scrub start site.img\n",
    "  spinney scrub status site.img\n",
    "  spinney scrub start --readonly --json site.img | jq .lost\n",
    "  spinney scrub stats site.img"
))]
pub(crate) struct Scrub {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Scrub an image or a mount
    #[command(after_help = concat!(
        "Exit status 3 tells that something is damaged still: no copy is good, or --readonly left it so.\n",
        "A scrub of an image that is interrupted (Ctrl-C) can be resumed. A mount goes on when this is stopped.\n\n",
        "Examples:\n",
        "  spinney scrub start site.img\n",
        "  spinney scrub start --limit 100M ./mnt\n",
        "  spinney scrub start --background ./mnt\n",
        "  spinney scrub start --readonly site.img\n",
        "  spinney scrub start --json site.img | jq '.lost[].path'"
    ))]
    Start(Start),
    /// Resume a paused or interrupted scrub
    #[command(after_help = concat!(
        "The counts continue as well; the named files are those of this part.\n\n",
        "Examples:\n",
        "  spinney scrub resume site.img\n",
        "  spinney scrub resume --json ./mnt | jq .errors"
    ))]
    Resume(Resume),
    /// Show the progress of a scrub, and its findings
    #[command(after_help = concat!(
        "Of a scrub of an image this tells what the user knows who scrubbed it. Exit status 3 tells that there were\n",
        "errors that were not mended.\n\n",
        "Examples:\n",
        "  spinney scrub status site.img\n",
        "  spinney scrub status --json ./mnt | jq -r .state    none, running, paused, interrupted, finished, failed"
    ))]
    Status(Ask),
    /// Pause the scrub of a mount, to be resumed
    #[command(after_help = concat!(
        "A scrub of an image runs in `scrub start` itself: a signal (Ctrl-C) stops it.\n\n",
        "Examples:\n",
        "  spinney scrub pause ./mnt\n",
        "  spinney scrub pause --json ./mnt"
    ))]
    Pause(Ask),
    /// Stop a scrub and forget its progress; repairs stay
    #[command(after_help = concat!(
        "Examples:\n",
        "  spinney scrub cancel ./mnt\n",
        "  spinney scrub cancel --json site.img"
    ))]
    Cancel(Ask),
    /// Show the device's error counters, as `btrfs device stats`
    #[command(after_help = concat!(
        "They are kept in the image, by the kernel too: errors met since they were set to zero. Exit status\n",
        "3 tells that one of them is not zero.\n\n",
        "Examples:\n",
        "  spinney scrub stats site.img\n",
        "  spinney scrub stats --reset site.img\n",
        "  spinney scrub stats --json site.img | jq .corruption"
    ))]
    Stats(Stats),
}

/// Arguments of `scrub start`.
#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    image: ImageArgs,
    /// Only count: write nothing
    #[arg(short, long)]
    readonly: bool,
    /// Begin at this logical address
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    from: u64,
    #[command(flatten)]
    how: How,
    /// Counts of the earlier parts, for the server of a mount
    #[arg(long, hide = true)]
    after: Option<String>,
}

/// Arguments of `scrub resume`.
#[derive(Debug, Args)]
struct Resume {
    #[command(flatten)]
    image: ImageArgs,
    #[command(flatten)]
    how: How,
}

/// How it is run and reported.
#[derive(Debug, Clone, Copy, Args)]
struct How {
    /// Read at most so many bytes a second, of all copies
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    limit: Option<u64>,
    /// Of a mount: do not wait for the end
    #[arg(short, long)]
    background: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {is_whole, place, bytes, errors, mended, left, lost_copies, faults, lost, ...}
    #[arg(long)]
    json: bool,
}

/// Arguments of the commands that report the resulting state.
#[derive(Debug, Args)]
struct Ask {
    #[command(flatten)]
    image: ImageArgs,
    /// Report as JSON: {state, uuid, began_at, seconds, bytes, bytes_total, rate, seconds_left, errors, mended, ...}
    #[arg(long)]
    json: bool,
}

impl Scrub {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        out.outlive_reader();
        match &self.command {
            Command::Start(start) => start.run(out),
            Command::Resume(Resume { image, how }) => run::resume(image, *how, out),
            Command::Status(ask) => run::tell(&ask.image, ask.json, out),
            Command::Pause(ask) => run::pause(&ask.image, ask.json, out),
            Command::Cancel(ask) => run::cancel(&ask.image, ask.json, out),
            Command::Stats(stats) => stats.run(out),
        }
    }
}
