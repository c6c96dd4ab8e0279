//! `bench pinned` measures how often the counter of pinned bytes is shared between threads, in the workload that the
//! mechanism was published with: a file is allocated and snapshotted, then four jobs write 4 KiB at random places of
//! it. `main` calls it.
//!
//! It runs on Spinney's mount, of a program with the features `ablation` and `lock-statistics`, in three ways that
//! follow each other in every round, in another order each: with our batch, with the kernel's default of 32, and with
//! one lock instead of shards (mount option `older=`). The server writes down what its locks did when it is unmounted
//! (`lock_statistics=`). Each run writes the same number of blocks, so that counts compare.
//!
//! `--micro` times the counter and reservations alone, with one to eight threads ([`micro`]); then, and after the
//! mounts, [`simulation`] says what more processors would see than this machine has.
//!
//! Failure: where our counter is shared more than a twentieth as often as with the kernel's batch.

mod micro;
mod simulation;

#[cfg(feature = "lock-statistics")]
pub(crate) use micro::transfer_ns;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::mounts::{self, Medium};
use crate::row::as_float;
use crate::table::{append, median, shuffled, spread};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
cargo xtask bench builds what it needs, and runs this (as root, for the mounts):
  cargo xtask bench pinned --history bench/history/pinned.jsonl
  cargo xtask bench pinned --micro                  the counter and reservations alone; no root")]
pub(crate) struct Options {
    /// Rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Times the counter and reservations alone, with 1, 2, 4 and 8 threads, and simulates more.
    #[arg(long)]
    micro: bool,
    /// Assume that a cache line takes this many nanoseconds to another processor; by default the measured time
    #[arg(long, value_name = "NS")]
    transfer_ns: Option<f64>,
    /// Print JSON: medians of each way and class, and the simulation
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: mounts::Place,
}

/// How sums are kept that many threads change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    OurBatch,
    Batch32,
    Locked,
}

impl Way {
    const ALL: [Self; 3] = [Self::OurBatch, Self::Batch32, Self::Locked];

    const fn name(self) -> &'static str {
        match self {
            Self::OurBatch => "our batch",
            Self::Batch32 => "batch 32",
            Self::Locked => "one lock",
        }
    }

    /// More mount options.
    const fn older(self) -> &'static str {
        match self {
            Self::OurBatch => "",
            Self::Batch32 => ",older=pinned-batch-32",
            Self::Locked => ",older=pinned-locked",
        }
    }
}

const WORKLOAD: &str = "snap_randwrite_count";
/// Blocks that the jobs of [`WORKLOAD`] write, all together.
const WRITES: u64 = 4 * (128 << 20) / 4096;
/// The counters that are switched, by their classes: the kernel has one for both.
const PINNED: &str = "pinned bytes";
const EXPECTED: &str = "expected bytes";
/// The others in the table: those that were taken most often.
const OTHERS_MAX: usize = 12;
/// Our counter may be shared once where the kernel's batch shares it so often.
const LESS_MIN: f64 = 20.0;
/// How long the server may take to write its table after the mount is gone.
const TABLE_WAIT: Duration = Duration::from_secs(20);

/// Counts of one class of locks in one run; see `host::statistics::Row`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Lock {
    class: String,
    acquisitions: u64,
    shared: u64,
    contended: u64,
    wait_ns: u64,
    hold_ns: u64,
    transfers: u64,
}

#[derive(Deserialize)]
struct Locks {
    locks: Vec<Lock>,
}

/// One run on a mount.
#[derive(Debug, Clone, Serialize)]
struct Run {
    way: Way,
    /// Writes in a second, with the sync at their end.
    iops: f64,
    locks: Vec<Lock>,
}

/// Runs the selected parts, and returns the tables.
pub(crate) fn run(options: &Options) -> Result<String> {
    if options.micro {
        ensure!(cfg!(feature = "ablation"), "build it with --features ablation: cargo xtask bench pinned --micro");
        let measured = micro::measure()?;
        let loads = simulation::Load::of_micro(&supposed(options, &measured));
        let simulated = simulation::all(&loads);
        return Ok(if options.json {
            format!("{}\n", serde_json::json!({ "micro": measured, "simulated": simulated }))
        } else {
            format!("{}\n{}", micro::markdown(&measured), simulation::markdown(&loads, &simulated))
        });
    }
    let runs = on_mounts(options)?;
    let measured = micro::measure()?;
    let loads = simulation::Load::of_workload(&supposed(options, &measured), &work(&runs));
    let simulated = simulation::all(&loads);
    let less = times_less(&runs);
    let text = if options.json {
        let medians: Vec<_> = Way::ALL.iter().map(|way| (way, of(&runs, *way))).collect();
        format!("{}\n", serde_json::json!({ "locks": medians, "times_less": less, "simulated": simulated }))
    } else {
        let holds = if less >= LESS_MIN { "holds" } else { "DOES NOT HOLD" };
        format!(
            "{}\nshared {less:.0} times less often than with batch 32, aimed at {LESS_MIN:.0}: {holds}\n\n{}\n{}",
            markdown(&runs),
            micro::markdown(&measured),
            simulation::markdown(&loads, &simulated)
        )
    };
    ensure!(less >= LESS_MIN, "{text}");
    Ok(text)
}

/// Initial values of the simulation.
fn supposed(options: &Options, measured: &micro::Measured) -> micro::Measured {
    let transfer_ns = options.transfer_ns.unwrap_or(measured.transfer_ns);
    micro::Measured { transfer_ns, ..measured.clone() }
}

fn on_mounts(options: &Options) -> Result<Vec<Run>> {
    mounts::check_tools(&options.place, &[WORKLOAD], &["spinney"])?;
    let file = options.place.dir().join("locks.json");
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for way in shuffled(&Way::ALL.map(Way::name), round) {
            let way = Way::ALL.into_iter().find(|known| known.name() == way).context("a way")?;
            let run = on_mount(&options.place, &file, way)?;
            eprintln!("round {round}: {:<10} {:.0} IOPS, {:?}", way.name(), run.iops, run.lock(PINNED));
            if let Some(path) = options.place.history() {
                append(path, [&run])?;
            }
            runs.push(run);
        }
    }
    Ok(runs)
}

fn on_mount(place: &mounts::Place, file: &Path, way: Way) -> Result<Run> {
    if file.exists() {
        std::fs::remove_file(file)?;
    }
    let system = format!("spinney-user_subvol_ioctls,lock_statistics={}{}", file.display(), way.older());
    let iops = mounts::run_one(place, Medium::Memory, &system, WORKLOAD, None)?.value;
    let locks = read(file)?;
    let run = Run { way, iops, locks };
    ensure!(run.lock(PINNED).acquisitions > 0, "{}: nothing was pinned: {:?}", file.display(), run.locks);
    Ok(run)
}

/// The table of a server that is about to end, or has ended.
fn read(file: &Path) -> Result<Vec<Lock>> {
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') {
            return Ok(serde_json::from_str::<Locks>(&text)?.locks);
        }
        if waited > TABLE_WAIT {
            bail!("{}: the server wrote no table; is it built with the feature lock-statistics?", file.display());
        }
        thread::sleep(step);
        waited += step;
    }
}

impl Run {
    /// Counts of a class; zeros if it is not listed.
    fn lock(&self, class: &str) -> Lock {
        let nothing = || Lock { class: class.to_owned(), ..Lock::default() };
        self.locks.iter().find(|lock| lock.class == class).cloned().unwrap_or_else(nothing)
    }
}

/// Medians of the runs in one way, each figure by itself.
fn middle(runs: &[Run], way: Way, class: &str) -> Lock {
    let locks: Vec<Lock> = runs.iter().filter(|run| run.way == way).map(|run| run.lock(class)).collect();
    let of = |figure: fn(&Lock) -> u64| {
        let mut figures: Vec<u64> = locks.iter().map(figure).collect();
        figures.sort_unstable();
        figures.get(figures.len() / 2).copied().unwrap_or(0)
    };
    Lock {
        class: class.to_owned(),
        acquisitions: of(|lock| lock.acquisitions),
        shared: of(|lock| lock.shared),
        contended: of(|lock| lock.contended),
        wait_ns: of(|lock| lock.wait_ns),
        hold_ns: of(|lock| lock.hold_ns),
        transfers: of(|lock| lock.transfers),
    }
}

/// Every class in one way, the most often taken first.
fn of(runs: &[Run], way: Way) -> Vec<Lock> {
    let in_way = runs.iter().filter(|run| run.way == way);
    let mut classes: Vec<&str> = in_way.flat_map(|run| &run.locks).map(|lock| lock.class.as_str()).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut locks: Vec<Lock> = classes.into_iter().map(|class| middle(runs, way, class)).collect();
    locks.sort_by_key(|lock| std::cmp::Reverse(lock.acquisitions));
    locks
}

fn iops(runs: &[Run], way: Way) -> Vec<f64> {
    runs.iter().filter(|run| run.way == way).map(|run| run.iops).collect()
}

/// How many times less often than with the kernel's batch our counter is shared.
fn times_less(runs: &[Run]) -> f64 {
    let shared = |way| as_float(middle(runs, way, PINNED).acquisitions);
    shared(Way::Batch32) / shared(Way::OurBatch)
}

/// Work between two changes of the counters, for the simulation.
fn work(runs: &[Run]) -> simulation::Work {
    let taken = |way| middle(runs, way, PINNED).acquisitions.saturating_add(middle(runs, way, EXPECTED).acquisitions);
    let seconds = as_float(WRITES) / median(iops(runs, Way::OurBatch));
    simulation::Work {
        seconds,
        adds: taken(Way::Locked),
        shared: BTreeMap::from(Way::ALL.map(|way| (way, taken(way)))),
    }
}

fn markdown(runs: &[Run]) -> String {
    let mut table = String::from("| counter | IOPS: smallest / **median** / largest |\n|---|---|\n");
    for way in Way::ALL {
        let _ = writeln!(table, "| {} | {} |", way.name(), spread(&iops(runs, way), 0));
    }
    table.push_str(
        "\n| class | counter | acquisitions | shared | contended | wait, \u{b5}s | hold, \u{b5}s | transfers |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for class in [PINNED, EXPECTED] {
        for way in Way::ALL {
            line(&mut table, way, &middle(runs, way, class));
        }
    }
    let others = of(runs, Way::OurBatch).into_iter().filter(|lock| ![PINNED, EXPECTED].contains(&lock.class.as_str()));
    for lock in others.take(OTHERS_MAX) {
        line(&mut table, Way::OurBatch, &lock);
    }
    table
}

fn line(table: &mut String, way: Way, lock: &Lock) {
    let Lock { class, acquisitions, shared, contended, transfers, .. } = lock;
    let (wait, hold, way) = (lock.wait_ns / 1000, lock.hold_ns / 1000, way.name());
    let _ = writeln!(
        table,
        "| {class} | {way} | {acquisitions} | {shared} | {contended} | {wait} | {hold} | {transfers} |"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(way: Way, iops: f64, acquisitions: u64) -> Run {
        let lock = |class: &str, acquisitions| Lock {
            class: class.to_owned(),
            acquisitions,
            hold_ns: acquisitions * 1000,
            ..Lock::default()
        };
        Run { way, iops, locks: vec![lock(PINNED, acquisitions), lock("Cache", 70), lock(EXPECTED, 3)] }
    }

    fn runs() -> Vec<Run> {
        vec![
            ran(Way::OurBatch, 100.0, 10),
            ran(Way::Batch32, 90.0, 4_000),
            ran(Way::Locked, 80.0, 5_000),
            ran(Way::OurBatch, 300.0, 30),
            ran(Way::OurBatch, 200.0, 20),
        ]
    }

    #[test]
    fn ways_are_compared_by_medians() {
        let runs = runs();
        assert_eq!(middle(&runs, Way::OurBatch, PINNED).acquisitions, 20);
        assert!((times_less(&runs) - 200.0).abs() < 1e-9);
        let classes: Vec<String> = of(&runs, Way::OurBatch).into_iter().map(|lock| lock.class).collect();
        assert_eq!(classes, ["Cache", PINNED, EXPECTED]);
        let table = markdown(&runs);
        assert!(table.contains("| our batch | 100 / **200** / 300 |"), "{table}");
        assert!(table.contains("| pinned bytes | batch 32 | 4000 | 0 | 0 | 0 | 4000 | 0 |"), "{table}");
        assert!(table.contains("| Cache | our batch | 70 |") && !table.contains("| Cache | batch 32 |"), "{table}");
        let work = work(&runs);
        assert_eq!((work.adds, work.shared[&Way::OurBatch]), (5_003, 23));
    }

    #[test]
    fn a_table_of_the_server_is_read() {
        let text = "{\"locks\":[{\"class\":\"Cache\",\"acquisitions\":2,\"shared\":1,\"contended\":0,\"wait_ns\":0,\
                    \"hold_ns\":90,\"transfers\":1}]}\n";
        let locks = serde_json::from_str::<Locks>(text).expect("a table").locks;
        let expected = Lock { acquisitions: 2, shared: 1, hold_ns: 90, transfers: 1, ..Lock::default() };
        assert_eq!(locks, [Lock { class: "Cache".to_owned(), ..expected }]);
    }
}
