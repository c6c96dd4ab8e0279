//! Makes random trees of subvolumes, and compares them with a model at each commit: the tests do the same with a few
//! seeds. Called by `cargo trials subvolumes`.

use anyhow::{Result, ensure};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::lineage::{self, Report, Settings};

/// Options of the trial.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cargo trials subvolumes --seeds 200 --operations 500")]
pub(crate) struct Options {
    /// Number of histories
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Number of the first
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Operations of each
    #[arg(long, default_value_t = 500)]
    operations: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm/spinney-subvolumes")]
    dir: PathBuf,
}

/// Counts of the results.
#[derive(Default)]
struct Totals {
    seeds: u64,
    report: Report,
    failures: Vec<String>,
}

/// Runs the histories.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(options.jobs > 0, "--jobs: at least one");
    std::fs::create_dir_all(&options.dir)?;
    let settings = Settings { operations: options.operations, ..Settings::default() };
    let (next, totals) = (AtomicU64::new(0), Mutex::new(Totals::default()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.seeds {
                return;
            }
            let found = lineage::run(options.from.saturating_add(number), &settings, &options.dir);
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.seeds = totals.seeds.saturating_add(1);
            match found {
                Ok(report) => totals.report = sum(totals.report, report),
                Err(error) => {
                    println!("{error:#}");
                    totals.failures.push(error.to_string());
                }
            }
        }
    };
    std::thread::scope(|scope| (0..options.jobs).for_each(|_| drop(scope.spawn(work))));
    let Totals { seeds, report, failures } = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "subvolumes: {seeds} histories: {} operations done, {} refused alike, {} subvolumes made; {} commits compared, \
         {} of them clean to btrfs check; {} histories failed",
        report.done,
        report.refused,
        report.made,
        report.commits,
        report.checked,
        failures.len()
    );
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sum(a: Report, b: Report) -> Report {
    Report {
        done: a.done.saturating_add(b.done),
        refused: a.refused.saturating_add(b.refused),
        commits: a.commits.saturating_add(b.commits),
        checked: a.checked.saturating_add(b.checked),
        made: a.made.saturating_add(b.made),
    }
}
