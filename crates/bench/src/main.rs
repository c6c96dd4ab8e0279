//! The program `bench`: workloads, and side-by-side runs of Spinney and the kernel's file systems. `cargo xtask bench`
//! builds and starts it.
//!
//! `bench run` times every row on every system in turn, several times, each in a process
//! of its own, so that load on the machine meets all of them and peak memory is one
//! workload's. It prints a Markdown table of medians and appends the raw figures to a file.
//! `bench one` is what runs in those processes.

mod ageing;
mod fs_mark;
mod growth;
mod kernel_side;
mod latency;
mod library;
mod log;
mod mounts;
mod names;
mod pinned;
mod process;
mod requests;
mod row;
mod runs;
#[cfg(feature = "lock-statistics")]
mod scale;
mod seeds;
mod snapshots;
mod spinney_side;
mod table;
mod tree;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

use row::{Measure, Row, System};

/// Times workloads on Spinney and on the kernel's btrfs.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
    /// Prints at the end what the locks of this process did: of these classes, separated by commas, or of all
    #[cfg(feature = "lock-statistics")]
    #[arg(long, global = true, value_delimiter = ',', num_args = 0.., value_name = "CLASS", require_equals = true)]
    lock_statistics: Option<Vec<String>>,
}

#[derive(Subcommand)]
enum Action {
    /// Times rows side by side, interleaved. Needs root for the kernel's side.
    Run {
        /// Directory on a memory file system for images and the source tree.
        #[arg(long, default_value = "/dev/shm/bench")]
        dir: PathBuf,
        /// Source tree to import.
        #[arg(long)]
        source: PathBuf,
        /// Rounds.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Only rows whose name contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// File that a JSON line is appended to.
        #[arg(long)]
        history: Option<PathBuf>,
        /// The `spinney` program, for `mkfs --rootdir`.
        #[arg(long)]
        program: PathBuf,
        /// The `mkfs.btrfs` to compare with.
        #[arg(long, default_value = "mkfs.btrfs")]
        mkfs: PathBuf,
    },
    /// Times workloads on mounts of several systems, interleaved. Needs root.
    Mount(mounts::Options),
    /// Times the five workloads that the mechanisms were published with, side by side. Needs root.
    Seeds(seeds::Options),
    /// Counts how often threads share the counter of pinned bytes. Needs root, but for --micro.
    Pinned(pinned::Options),
    /// Measures the processor time of single requests, beside a server that does nothing. Needs root.
    Requests(requests::Options),
    /// Shows how data and free space lie after a file system was filled and halved several times. Needs root.
    Ageing(ageing::Options),
    /// Times single operations while everything goes on at once on a mount. Needs root.
    Latency(latency::Options),
    /// Measures how time and memory of operations grow with files, snapshots, extents and sizes. Needs root for mounts.
    Growth(growth::Options),
    /// Measures fsync: the log and, with the feature `ablation`, other ways.
    Log(log::Options),
    /// Records where many writers' data lands: flushes that take their space together and, with the feature `ablation`,
    /// apart.
    Runs(runs::Options),
    /// Times snapshots of small and large subvolumes, and a thousand made and deleted. Needs root for these.
    Snapshots(snapshots::Options),
    /// Says where workloads stop growing with the number of processors, by a simulation of recorded locks.
    #[cfg(feature = "lock-statistics")]
    Scale(scale::Options),
    /// Creates and fsyncs files with many threads on mounts of several systems. Needs root.
    FsMark(fs_mark::Options),
    /// Loops over the names of a directory and prints files per second, for `mount`.
    Names(names::Options),
    /// Runs one workload once and prints one line of JSON.
    One(row::One),
    /// Runs one step of `growth`.
    #[command(hide = true)]
    Grown(growth::Grown),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    #[cfg(feature = "lock-statistics")]
    if let Some(classes) = &arguments.lock_statistics {
        host::statistics::measure(&classes.iter().map(String::as_str).collect::<Vec<_>>());
    }
    perform(arguments.command)?;
    #[cfg(feature = "lock-statistics")]
    if arguments.lock_statistics.is_some() {
        print!("\n{}", host::statistics::markdown(&host::statistics::rows()));
    }
    Ok(())
}

fn perform(action: Action) -> Result<()> {
    match action {
        Action::FsMark(options) => print!("{}", fs_mark::run(&options)?),
        Action::Mount(options) => print!("{}", mounts::run(&options)?),
        Action::Ageing(options) => print!("{}", ageing::run(&options)?),
        Action::Growth(options) => print!("{}", growth::run(&options)?),
        Action::Grown(grown) => growth::grown(&grown)?,
        Action::Latency(options) => print!("{}", latency::run(&options)?),
        Action::Pinned(options) => print!("{}", pinned::run(&options)?),
        Action::Seeds(options) => print!("{}", seeds::run(&options)?),
        Action::Requests(options) => print!("{}", requests::run(&options)?),
        Action::Runs(options) => print!("{}", runs::run(&options)?),
        Action::Snapshots(options) => print!("{}", snapshots::run(&options)?),
        #[cfg(feature = "lock-statistics")]
        Action::Scale(options) => print!("{}", scale::run(&options)?),
        Action::Names(options) => println!("{:.0}", names::run(&options)?),
        Action::Log(options) => print!("{}", log::run(&options)?),
        Action::One(one) => println!("{}", serde_json::to_string(&measure(&one)?)?),
        Action::Run { dir, source, rounds, only, history, program, mkfs } => {
            let rows = row::all().into_iter().filter(|row| row.name().contains(&only)).collect();
            let run = Run { dir, source, rounds, program, mkfs, rows };
            let results = run.all()?;
            print!("{}", table::markdown(&results));
            if let Some(path) = history {
                table::append(&path, results.lines())?;
            }
        }
    }
    Ok(())
}

/// One workload, once, in this process.
fn measure(one: &row::One) -> Result<Measure> {
    row::touch(&one.image())?;
    let (seconds, amount) = match one.system {
        System::Spinney => spinney_side::run(one)?,
        System::Kernel => kernel_side::run(one)?,
    };
    Ok(Measure { seconds, amount, peak_kib: process::peak_kib("self") })
}

struct Run {
    dir: PathBuf,
    source: PathBuf,
    rounds: usize,
    program: PathBuf,
    mkfs: PathBuf,
    rows: Vec<Row>,
}

impl Run {
    fn all(&self) -> Result<table::Results> {
        std::fs::create_dir_all(&self.dir)?;
        let mut results = table::Results::default();
        for round in 0..self.rounds {
            for row in &self.rows {
                for system in [System::Spinney, System::Kernel] {
                    let measure = self.one(row, system).with_context(|| format!("{} on {system:?}", row.name()))?;
                    eprintln!("round {round}: {:<28} {system:?}: {:.3} s", row.name(), measure.seconds);
                    results.add(row, system, measure);
                }
            }
        }
        Ok(results)
    }

    /// One workload in a process of its own.
    fn one(&self, row: &Row, system: System) -> Result<Measure> {
        let output = Command::new(std::env::current_exe()?)
            .args(["one", "--row", row.workload.name(), "--threads", &row.threads.to_string()])
            .args(["--system", system.name()])
            .arg("--dir")
            .arg(&self.dir)
            .arg("--source")
            .arg(&self.source)
            .arg("--program")
            .arg(&self.program)
            .arg("--mkfs")
            .arg(&self.mkfs)
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        let line = String::from_utf8(output.stdout)?;
        let last = line.lines().last().unwrap_or_default();
        let measure: Measure = serde_json::from_str(last)?;
        ensure!(measure.seconds > 0.0, "the clock stood still");
        Ok(measure)
    }
}
