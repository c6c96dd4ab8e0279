//! Cuts power during repairs and undos of planted damage, in many places: the test of `btrfs-repair` that does so, with
//! more states than in a run of all tests. Every state has to be the damaged one or the repaired one, and its undo the
//! damaged one to the last byte.

use anyhow::{Context, Result};
use clap::Args;
use std::process::{Command, ExitCode};

/// How many states.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// States that power cuts leave.
    #[arg(long, default_value_t = 100_000)]
    states: u64,
}

/// Runs the test.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--quiet", "--profile", "checked", "--workspace", "--test", "repairs", "--"]);
    cargo.args(["a_power_cut", "--nocapture"]).env("REPAIR_STATES", options.states.to_string());
    let status = cargo.status().context("cargo cannot be run")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
