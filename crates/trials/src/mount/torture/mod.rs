//! Tests full volumes, and compares them with the kernel's btrfs.
//!
//! * [`enospc`] fills images to the last byte in ten ways, empties them again, and checks time limits, `df`, `btrfs
//!   check`, and the image mounted by a kernel;
//! * [`ways`] fills and empties a mount by ordinary system calls, ours and the kernel's alike; [`filling`] counts the
//!   work, and has the expected contents of files;
//! * [`stand`] makes an image and mounts it, with Spinney or with the kernel; [`table`] has the rows of the report.
//!
//! Needs root. Called by `cargo trials torture`.

mod enospc;
mod filling;
mod stand;
mod table;
mod ways;

use anyhow::Result;
use std::process::ExitCode;

/// The trial to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Fill images until nothing fits and empty them again, in ten ways, on mounts and on the kernel's btrfs.
    Enospc(enospc::Options),
}

/// Runs the trial.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Enospc(options) => enospc::run(options),
    }
}
