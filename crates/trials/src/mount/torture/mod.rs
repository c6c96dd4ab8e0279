//! What a volume has to stand at its limits, beside the kernel's btrfs.
//!
//! * [`enospc`] fills images to the last byte in ten ways, empties them again, and judges: by limits of time, by what
//!   `df` says, by `btrfs check`, and by a kernel that mounts what is left;
//! * [`ways`] is the work, done by ordinary system calls, so that it is the same on both sides; [`filling`] counts it,
//!   and knows what a file has to say when it is read;
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

/// What is run.
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

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Enospc(options) => enospc::run(options),
    }
}
