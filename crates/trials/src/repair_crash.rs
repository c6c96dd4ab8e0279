//! Cuts power during repairs and undos of planted damage, at many points: runs the crash test of `btrfs-repair` with
//! more states than the test suite does. Each state must be the damaged one or the repaired one, and its undo must
//! restore the damaged one to the last byte. Called by `cargo trials repair-crash`.

use anyhow::{Context, Result};
use clap::Args;
use std::process::{Command, ExitCode};

/// Number of states.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of states after power cuts
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
