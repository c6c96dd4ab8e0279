//! Tests volumes at their limits, compared with the kernel's btrfs.
//!
//! * [`enospc`] fills images to the last byte in ten ways, empties them again, and checks time limits, `df`, `btrfs
//!   check`, and the image mounted by a kernel;
//! * [`ways`] is the work, done by ordinary system calls, the same on both sides; [`filling`] counts it, and has the
//!   expected contents of files;
//! * [`stand`] makes and mounts an image for one side; [`table`] has the rows.
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
