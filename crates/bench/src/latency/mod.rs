//! `bench latency` measures how long single operations wait while everything goes on at once on a mount: writes, new
//! files, renames, reads, syncs of files and of all, snapshots and their deletion, and a balance that never ends.
//! `main` calls it.
//!
//! Each system gets a fresh file system in memory, and the same threads ([`mod@work`]). Every operation is timed and
//! counted in a histogram of its kind ([`histogram`]); the slowest are kept with the time at which they began, to be
//! compared with each other and with what a server says it did then. A round is a fresh file system: many short ones
//! look at how a volume begins. Failure: an operation that fails ends the run with its error, and one that does not
//! end within [`END_MAX`] of the others as well.

mod asker;
mod chart;
mod histogram;
mod kind;
mod work;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use spinney_cli::picture;

use crate::mounts::{self, Medium, Up};
use crate::table::append;
use kind::{Kind, Slow, Times};
use work::{LOADS, Load, Stand};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
As root. `cargo xtask bench` builds what it needs, and runs this:
  cargo xtask bench latency                                   ten minutes of everything at once
  cargo xtask bench latency --systems spinney,btrfs --seconds 60
  cargo xtask bench latency --pause-ms 1                      more than the processors have time for
  cargo xtask bench latency --seconds 20 --without balance --slowest 40
  cargo xtask bench latency --rounds 50 --seconds 2 --only names,replace,fsync
  cargo xtask bench latency --history bench/history/latency.jsonl --chart docs/pictures/latency.svg")]
pub(crate) struct Options {
    /// Seconds of each round on each system.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Rounds, each on fresh file systems.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Systems: spinney, spinney-OPTION,OPTION (separated by `+`), and btrfs, the kernel's
    #[arg(long, value_delimiter = ',', default_values = ["spinney"])]
    systems: Vec<String>,
    /// Only these loads.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Load>,
    /// Not these loads.
    #[arg(long, value_delimiter = ',')]
    without: Vec<Load>,
    /// Shows so many of the slowest operations, with the time at which they began.
    #[arg(long, default_value_t = 10)]
    slowest: usize,
    /// Milliseconds that each thread pauses after an operation; 1 takes all that two processors have.
    #[arg(long, default_value_t = 4)]
    pause_ms: u64,
    /// Limit of p99.99 for each kind of operation on Spinney, in milliseconds
    #[arg(long, default_value_t = 100)]
    limit_ms: u64,
    /// Prints JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// A picture of the number of operations over their duration, as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    place: mounts::Place,
}

/// Snapshots are made through the mount.
const OPTIONS: &str = "user_subvol_ioctls";

/// Longest wait for the last operations.
const END_MAX: Duration = Duration::from_secs(180);

/// Shares of the operations in the table, of 10,000.
const SHARES: [(u64, &str); 4] = [(5_000, "p50"), (9_900, "p99"), (9_990, "p99.9"), (9_999, "p99.99")];

/// Results of one system in all rounds.
#[derive(Debug)]
struct Measured {
    system: String,
    times: Times,
}

/// Runs everything, and returns tables.
///
/// # Errors
/// The first failure, and an operation that does not end.
pub(crate) fn run(options: &Options) -> Result<String> {
    let systems: Vec<&str> = options.systems.iter().map(String::as_str).collect();
    mounts::check_tools(&options.place, &[], &systems)?;
    let mut measured: Vec<Measured> = options
        .systems
        .iter()
        .map(|system| Measured { system: system.clone(), times: Times::new(Instant::now()) })
        .collect();
    for round in 0..options.rounds {
        for one in &mut measured {
            let times = one_round(options, &one.system).with_context(|| one.system.clone())?;
            if let Some(slow) = times.slowest().first() {
                eprintln!("round {round}: {}: longest: {}", one.system, line_of(slow).trim());
            }
            one.times.merge(&times);
        }
    }
    let reports: Vec<Report> = measured.iter().map(|one| Report::of(options, one)).collect();
    if let Some(path) = options.place.history() {
        append(path, &reports)?;
    }
    if let Some(path) = &options.chart {
        let systems: Vec<(&str, &Times)> = measured.iter().map(|one| (one.system.as_str(), &one.times)).collect();
        picture::write(path, &chart::draw(&systems))?;
    }
    if options.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&reports)?));
    }
    Ok(measured.iter().map(|one| text_of(options, one)).collect())
}

/// All loads at once on a fresh file system.
fn one_round(options: &Options, system: &str) -> Result<Times> {
    let is_ours = system.starts_with("spinney");
    let mounted = match system.split_once('-') {
        Some((name, more)) => format!("{name}-{OPTIONS},{}", more.replace('+', ",")),
        None if is_ours => format!("{system}-{OPTIONS}"),
        None => system.to_owned(),
    };
    let up = Up::new(&options.place, Medium::Memory, &mounted)?;
    let dir = up.dir().to_owned();
    let balance: &[&str] =
        if is_ours { &["balance", "start", "--quiet"] } else { &["balance", "start", "--full-balance"] };
    let program = if is_ours { options.place.program().display().to_string() } else { "btrfs".to_owned() };
    let mut words = vec![program];
    words.extend(balance.iter().map(|word| (*word).to_owned()));
    words.push(dir.display().to_string());
    let pause = Duration::from_millis(options.pause_ms);
    let mut stand = Stand { dir, begin: Instant::now(), is_over: AtomicBool::new(false), balance: words, pause };
    stand.prepare().context("preparing the files")?;
    stand.begin = Instant::now();
    let stand = Arc::new(stand);
    let ended = work(options, &stand);
    if ended.is_err() {
        stand.is_over.store(true, Ordering::Relaxed);
    }
    ended
}

fn work(options: &Options, stand: &Arc<Stand>) -> Result<Times> {
    let (told, ends) = mpsc::channel();
    let mut running = Vec::new();
    for (load, count) in LOADS {
        let is_chosen = options.only.is_empty() || options.only.contains(load);
        if !is_chosen || options.without.contains(load) {
            continue;
        }
        for _ in 0..*count {
            let (number, stand, told, load) = (running.len(), Arc::clone(stand), told.clone(), *load);
            running.push(load);
            thread::spawn(move || {
                let done = stand.work(load, u64::try_from(number).unwrap_or(0));
                // The receiver is gone if another thread failed before.
                let _ = told.send(done);
            });
        }
    }
    drop(told);
    ensure!(!running.is_empty(), "no load is left to be run");
    let mut all = Times::new(stand.begin);
    let end = stand.begin + Duration::from_secs(options.seconds);
    let mut left = running.len();
    while left > 0 {
        let now = Instant::now();
        let is_over = now >= end;
        if is_over {
            stand.is_over.store(true, Ordering::Relaxed);
        }
        match ends.recv_timeout(if is_over { END_MAX } else { end - now }) {
            Ok(done) => {
                all.merge(&done?);
                left -= 1;
            }
            Err(_) if !is_over => {}
            Err(_) => bail!("{left} of {} threads do not end: an operation hangs ({running:?})", running.len()),
        }
    }
    Ok(all)
}

fn line_of(slow: &Slow) -> String {
    let (begin, took) = (slow.begin_us / 1000, slow.took_us);
    let (seconds, millis) = (begin / 1000, begin % 1000);
    format!("{:>10}.{millis:03} s  {:>9}.{:03} ms  {}\n", seconds, took / 1000, took % 1000, slow.kind.name())
}

/// Milliseconds.
fn shown(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000_000, ns / 1000 % 1000)
}

/// The kinds whose p99.99 exceeds the limit.
fn beyond(times: &Times, limit_ms: u64) -> Vec<(Kind, u64)> {
    let waits = times.kinds().filter(|(kind, _)| *kind != Kind::Balance);
    let found = waits.map(|(kind, histogram)| (kind, histogram.percentile_ns(SHARES[3].0)));
    found.filter(|(_, ns)| *ns > limit_ms * 1_000_000).collect()
}

fn text_of(options: &Options, one: &Measured) -> String {
    let names: Vec<&str> = SHARES.iter().map(|(_, name)| *name).collect();
    let mut text = format!("\n{} (ms)\n\n| operation | count | {} | max |\n", one.system, names.join(" | "));
    text.push_str(&"|---".repeat(SHARES.len() + 3));
    text.push_str("|\n");
    for (kind, histogram) in one.times.kinds() {
        let shares: Vec<String> = SHARES.iter().map(|(share, _)| shown(histogram.percentile_ns(*share))).collect();
        let (count, max) = (histogram.count(), shown(histogram.max_ns()));
        let _ = writeln!(text, "| {} | {count} | {} | {max} |", kind.name(), shares.join(" | "));
    }
    let beyond = beyond(&one.times, options.limit_ms);
    let _ = match beyond.as_slice() {
        [] => writeln!(text, "\np99.99 of every operation is within {} ms: holds", options.limit_ms),
        some => {
            let some: Vec<String> = some.iter().map(|(kind, ns)| format!("{} {}", kind.name(), shown(*ns))).collect();
            writeln!(text, "\np99.99 is beyond {} ms: {}: DOES NOT HOLD", options.limit_ms, some.join(", "))
        }
    };
    let slowest = one.times.slowest();
    if options.slowest > 0 && !slowest.is_empty() {
        text.push_str("\nThe slowest: when they began, how long they took\n\n");
        slowest.iter().take(options.slowest).for_each(|slow| text.push_str(&line_of(slow)));
    }
    text
}

/// One system, as it is kept.
#[derive(Serialize)]
struct Report {
    system: String,
    seconds: u64,
    pause_ms: u64,
    rounds: usize,
    is_within_limit: bool,
    kinds: Vec<KindReport>,
    slowest: Vec<Slow>,
}

#[derive(Serialize)]
struct KindReport {
    kind: Kind,
    count: u64,
    p50_ns: u64,
    p99_ns: u64,
    p99_9_ns: u64,
    p99_99_ns: u64,
    max_ns: u64,
    /// Where a range of times ends, and how many there were in it.
    ranges: Vec<(u64, u64)>,
}

impl Report {
    fn of(options: &Options, one: &Measured) -> Self {
        let kinds = one.times.kinds().map(|(kind, histogram)| {
            let [p50_ns, p99_ns, p99_9_ns, p99_99_ns] = SHARES.map(|(share, _)| histogram.percentile_ns(share));
            let (count, max_ns, ranges) = (histogram.count(), histogram.max_ns(), histogram.ranges());
            KindReport { kind, count, p50_ns, p99_ns, p99_9_ns, p99_99_ns, max_ns, ranges }
        });
        Self {
            system: one.system.clone(),
            seconds: options.seconds,
            pause_ms: options.pause_ms,
            rounds: options.rounds,
            is_within_limit: beyond(&one.times, options.limit_ms).is_empty(),
            kinds: kinds.collect(),
            slowest: one.times.slowest().iter().take(options.slowest).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_kind_beyond_the_limit_is_told_and_a_balance_is_not() {
        let begin = Instant::now();
        let mut times = Times::new(begin);
        times.note(Kind::Balance, begin, Duration::from_secs(5));
        times.note(Kind::Write, begin, Duration::from_millis(99));
        assert!(beyond(&times, 100).is_empty());
        times.note(Kind::Fsync, begin, Duration::from_millis(101));
        assert_eq!(beyond(&times, 100), [(Kind::Fsync, 101_000_000)]);
        assert!(beyond(&times, 102).is_empty());
    }
}
