//! `spinney scrub`: `run` scrubs an image, and has a mount scrubbed; `served` is what the server of a mount knows of
//! its scrub; `status` is how far one has come; `saved` keeps that where an interrupted one goes on from; `report` is
//! what was found; `stats` shows the device's error counters.
//!
//! Invariant: of a file system there is one scrub at a time, of a mount by its server, of an image by its lock.
//! Failure: bad copies that are left end with the status of damage. Caller: the command line, and the jobs of a mount.

mod report;
mod run;
mod saved;
mod served;
mod stats;
mod status;

use anyhow::Result;
use clap::{Args, Subcommand};

use super::format;
use crate::commands::human;
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;

pub(super) use served::Scrubbing;
pub(super) use stats::Stats;

/// Read everything, check it, and write bad copies anew from good ones
///
/// All copies of all data and metadata are read and compared with their checksums. Where one is bad and another good,
/// the good one is written over it; where none is good, the files are named that it belongs to, in snapshots too.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "How far a scrub has come is kept in $XDG_STATE_HOME/spinney/scrub.UUID (~/.local/state/spinney without it), a\n",
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
    /// Go on with a scrub that was paused or interrupted
    #[command(after_help = concat!(
        "What it counts goes on from there too; the files that it names are those of this part.\n\n",
        "Examples:\n",
        "  spinney scrub resume site.img\n",
        "  spinney scrub resume --json ./mnt | jq .errors"
    ))]
    Resume(Resume),
    /// Tell how far a scrub has come, and what it has found
    #[command(after_help = concat!(
        "Of a scrub of an image this tells what the user knows who scrubbed it. Exit status 3 tells that there were\n",
        "errors that were not mended.\n\n",
        "Examples:\n",
        "  spinney scrub status site.img\n",
        "  spinney scrub status --json ./mnt | jq -r .state    none, running, paused, interrupted, finished, failed"
    ))]
    Status(Ask),
    /// Have a mount stop its scrub, to be resumed
    #[command(after_help = concat!(
        "Of an image nobody scrubs but `scrub start` itself: a signal (Ctrl-C) stops that.\n\n",
        "Examples:\n",
        "  spinney scrub pause ./mnt\n",
        "  spinney scrub pause --json ./mnt"
    ))]
    Pause(Ask),
    /// Stop a scrub and forget how far it came: what it mended stays mended
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
    /// What was counted before, as the server of a mount is told it
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

/// How it is carried out and told.
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

/// Arguments of the commands that tell how it is afterwards.
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
