//! Times the counter of pinned bytes and reservations alone: nanoseconds per operation with one to eight threads, and
//! nanoseconds until a cache line is at another processor. Called by `pinned`; `simulation` starts from its figures.
//!
//! A figure is the time from the first thread's start to the last one's end, divided by the operations of all threads:
//! on a machine with two processors, an operation that scales takes half the time with two threads, and no less with
//! more. The smallest of several runs counts, since other programs may use the machine.

use std::fmt::Write as _;
use std::hint;
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use blockdev::backends::MemoryDevice;
use btrfs_store::ablation::{Sums, set_sums};
use btrfs_store::make::MakeOptions;
use btrfs_store::options::StoreOptions;
use btrfs_store::space::ShardedCounter;
use btrfs_store::store::{Need, Store};
use host::statistics::Class;
use serde::Serialize;

use super::Way;
use crate::row::as_float;

pub(super) const THREADS: [u32; 4] = [1, 2, 4, 8];
const RUNS: usize = 7;
const ADDS: u32 = 400_000;
const RESERVATIONS: u32 = 40_000;
/// Bytes of a tree block: an addition counts one freed block.
const BLOCK_BYTES: i64 = 16 << 10;
/// Additions up to the subtraction of their sum, as when a transaction frees tree blocks and its commit unpins them.
const BLOCKS_PER_COMMIT: u32 = 8192;
/// The batch of the counter of pinned bytes: `PINNED_BATCH` of the store.
const OUR_BATCH: u32 = 64 << 20;
const DEVICE_BYTES: u64 = 1 << 30;
/// Round trips of the cache line in one run.
const HANDOVERS: u64 = 200;
const HANDOVER_RUNS: usize = 500;

/// Nanoseconds of an operation, one for each of [`THREADS`].
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) way: Option<Way>,
    pub(super) ns: Vec<f64>,
}

/// All that was measured.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Measured {
    pub(super) rows: Vec<Row>,
    /// A line's way from one processor to another.
    pub(super) transfer_ns: f64,
}

impl Measured {
    /// An addition by a single thread.
    pub(super) fn add_ns(&self, way: Way) -> f64 {
        let row = self.rows.iter().find(|row| row.way == Some(way));
        row.and_then(|row| row.ns.first()).copied().unwrap_or(f64::NAN)
    }
}

/// Measures everything, which takes some seconds.
pub(super) fn measure() -> Result<Measured> {
    let mut rows = Vec::new();
    for way in Way::ALL {
        let ns = THREADS.iter().map(|threads| smallest(|| Ok(additions(way, *threads)))).collect::<Result<_>>()?;
        rows.push(Row { what: "addition", way: Some(way), ns });
    }
    set_sums(Sums::Chosen);
    let device = Arc::new(MemoryDevice::new(DEVICE_BYTES));
    let store = Store::make(vec![device], &MakeOptions::default(), &StoreOptions::default())?;
    let ns = THREADS.iter().map(|threads| smallest(|| reservations(&store, *threads))).collect::<Result<_>>()?;
    rows.push(Row { what: "reservation, made and given back", way: None, ns });
    Ok(Measured { rows, transfer_ns: transfer_ns() })
}

fn smallest(mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..RUNS {
        least = least.min(run()?);
    }
    Ok(least)
}

/// Runs `work` on each thread, all from the same moment on; nanoseconds by `operations`.
fn timed(threads: u32, operations: u32, work: impl Fn() + Sync) -> f64 {
    let barrier = Barrier::new(usize::try_from(threads).unwrap_or(1) + 1);
    let begin = thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                work();
            });
        }
        let begin = Instant::now();
        barrier.wait();
        begin
    });
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(operations)
}

fn additions(way: Way, threads: u32) -> f64 {
    static CLASS: Class = Class::new("micro-benchmark");
    set_sums(match way {
        Way::OurBatch => Sums::Chosen,
        Way::Batch32 => Sums::Batch(32),
        Way::Locked => Sums::Locked,
    });
    let counter = ShardedCounter::new(&CLASS, OUR_BATCH);
    let each = ADDS / threads;
    timed(threads, each * threads, || {
        for number in 1..=each {
            if number % BLOCKS_PER_COMMIT == 0 {
                counter.add(-BLOCK_BYTES * i64::from(BLOCKS_PER_COMMIT - 1));
            } else {
                counter.add(BLOCK_BYTES);
            }
        }
    })
}

fn reservations(store: &Store, threads: u32) -> Result<f64> {
    let need = Need { items: 3, data: 4096 };
    drop(store.reserve(need)?);
    let each = RESERVATIONS / threads;
    let failed = AtomicU64::new(0);
    let ns = timed(threads, each * threads, || {
        for _ in 0..each {
            match store.reserve(need) {
                Ok(reservation) => drop(hint::black_box(reservation)),
                Err(_) => drop(failed.fetch_add(1, SeqCst)),
            }
        }
    });
    anyhow::ensure!(failed.into_inner() == 0, "reservations failed in an empty store");
    Ok(ns)
}

/// A cache line's way from one processor to another, in nanoseconds: the smallest time of a turn of two threads that
/// write a number in turns. In a run in which both share a processor, the scheduler determines the time; in some of the
/// many short runs each has a processor of its own.
pub(crate) fn transfer_ns() -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..HANDOVER_RUNS {
        let (turn, mut begin) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| take_turns(&turn, 1, || {}));
            take_turns(&turn, 0, || begin = Instant::now());
            while turn.load(SeqCst) < 2 * HANDOVERS {
                hint::spin_loop();
            }
            let turns = as_float(2 * HANDOVERS - 2);
            least = least.min(begin.elapsed().as_secs_f64() * 1e9 / turns);
        });
    }
    least
}

/// Writes whenever the number is even (`parity` 0) or odd, and calls `warm` once both threads run.
fn take_turns(turn: &AtomicU64, parity: u64, mut warm: impl FnMut()) {
    for number in 0..HANDOVERS {
        while turn.load(SeqCst) != 2 * number + parity {
            hint::spin_loop();
        }
        if number == 1 {
            warm();
        }
        turn.store(2 * number + parity + 1, SeqCst);
    }
}

pub(super) fn markdown(measured: &Measured) -> String {
    let mut table = String::from("| nanoseconds by operation, threads: |");
    for threads in THREADS {
        let _ = write!(table, " {threads} |");
    }
    table.push_str("\n|---|---|---|---|---|\n");
    for row in &measured.rows {
        let way = row.way.map_or_else(String::new, |way| format!(", {}", way.name()));
        let _ = write!(table, "| {}{way} |", row.what);
        for ns in &row.ns {
            let _ = write!(table, " {ns:.1} |");
        }
        table.push('\n');
    }
    let _ = writeln!(table, "\na cache line's way to the other processor: {:.0} ns", measured.transfer_ns);
    table
}
