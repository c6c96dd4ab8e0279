//! Power cuts and killed servers behind NBD: `cargo trials nbd-crash`.
//!
//! * [`served_format`]: the crash explorer's workloads run on our client, over our server, over the explorer's device,
//!   which records what reaches the medium: a flush that the client or the server answered too early, or a write that
//!   either changed, is a state that breaks a promise.
//! * [`killed_server`]: servers are killed with SIGKILL while two writers fsync through a volume; every fsync that
//!   succeeded has to be there afterwards, and the writers have to get errors.
//!
//! Fails with the state, or with the round and the record that is lost.

mod killed_server;
mod served_format;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use crash_explorer::{Config, Progress, explore_all, watched};

use crate::formats::Kind;
use served_format::Served;

const PROGRESS: &str = "{bar:30} {pos} of {len} states, {per_sec}, {msg}, {eta}";

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials nbd-crash --states 2000 --rounds 5")]
pub(crate) struct Options {
    /// Format of the volumes of the states
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Number of states; 0 for none
    #[arg(long, default_value_t = 20_000)]
    states: u64,
    /// Number of killed servers of each kind; 0 for none
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The `spinney` program
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Directory for images of failures
    #[arg(long, default_value = "target/nbd-crash")]
    keep: PathBuf,
}

/// Runs both parts.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.states > 0 {
        explore(options)?;
    }
    killed_server::run(&options.program, options.rounds, options.seed)?;
    Ok(ExitCode::SUCCESS)
}

fn explore(options: &Options) -> Result<()> {
    let progress = Arc::new(Progress::default());
    let format: Arc<dyn crash_explorer::Format> = match options.format {
        Kind::Btrfs => Arc::new(Served::new(btrfs_crash::Btrfs)),
        Kind::F2fs => Arc::new(Served::new(f2fs_crash::F2fs)),
    };
    let config = Config {
        format,
        states: options.states,
        seed: options.seed,
        threads: 0,
        workload: None,
        state: None,
        witness: None,
        judge_every: 1,
        failures_max: 10,
        keep: Some(options.keep.clone()),
        progress: Some(Arc::clone(&progress)),
    };
    let start = Instant::now();
    let report = watched(&progress, options.states, PROGRESS, || explore_all(&config))?;
    for failure in &report.failures {
        println!("FAILED {}: {}\n{}", failure.state, failure.reason, failure.story);
    }
    println!(
        "nbd-crash: {} workloads through a server, {} states ({} with a log), {} failures, {:.0} s, seed {}",
        report.workloads,
        report.states,
        report.replayed,
        report.failure_count,
        start.elapsed().as_secs_f64(),
        options.seed
    );
    ensure!(report.failure_count == 0, "{} states are wrong", report.failure_count);
    Ok(())
}
