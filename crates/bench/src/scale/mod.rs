//! `bench scale` says where workloads of the library stop growing with the number of processors. `main` calls it.
//!
//! A workload is run by one thread, on behalf of 128 workers in turn, while every use of a lock is recorded
//! ([`host::statistics::trace`]). A simulation then runs the operations of the workers on 1 to 128 processors: work
//! takes the time that it took, and waiting follows from the locks. The result for two processors is compared with two
//! real threads; the difference is the model's error. Workloads that a mechanism was published with are repeated with
//! the older way of it, where the program has that (the feature `ablation`).

mod chart;
mod machine;
mod operations;
mod simulation;
mod workloads;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use host::statistics::{self, trace};
use serde::Serialize;

use machine::Machine;
use operations::{Operations, Span};
use simulation::{Costs, simulate};
use workloads::{Kind, Older, WORKERS, Workload};

use crate::row::as_float;

/// Options of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// Directory on a memory file system for the image.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Only workloads whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Runs without recording, of which the fastest counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A cache line's way between two cores of the simulated machine, in nanoseconds.
    #[arg(long, default_value_t = 60)]
    transfer_ns: u64,
    /// A picture, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// File that a JSON line for each row is appended to.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

const PROCESSORS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const IMAGE_BYTES: u64 = 2 << 30;
/// Twice the processors have to do this much more, or the workload has stopped growing.
const GROWTH_MIN: f64 = 1.1;

/// One workload in one way.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    /// The older way, if it is that.
    older: Option<&'static str>,
    /// Calls in a second of one real thread, and of two.
    real: [f64; 2],
    /// Calls in a second by the model, for each of [`PROCESSORS`].
    model: Vec<f64>,
    /// How many times as much this machine's two processors do as one, by the model.
    beside: f64,
    /// That, to what two threads showed, less one.
    error: f64,
    /// The number of processors from which twice as many do hardly more.
    stops_at: Option<usize>,
    /// The class of locks that workers wait for most on 128 processors, and its share of all time.
    worst: Option<(&'static str, f64)>,
    /// Times that the simulation gave a lock to a worker that could not have had it.
    forced: u64,
}

/// The table, in Markdown.
///
/// # Errors
/// The volume's; files that cannot be written.
pub(crate) fn run(options: &Options) -> Result<String> {
    let machine = Machine::measure();
    let image = options.dir.join("spinney-scale.img");
    let mut rows = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.name().contains(&options.only)) {
        let older = if cfg!(feature = "ablation") { kind.older() } else { &[] };
        for older in std::iter::once(None).chain(older.iter().copied().map(Some)) {
            let row = measured(kind, older, options, (&image, machine)).with_context(|| kind.name());
            if let Some(older) = older {
                older.set(false);
            }
            rows.push(row?);
            eprintln!("{}: done", kind.name());
        }
    }
    std::fs::remove_file(&image).ok();
    if let Some(path) = &options.chart {
        spinney_cli::picture::write(path, &chart::draw(&rows))?;
    }
    if let Some(path) = &options.history {
        let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
        crate::table::append(path, lines?)?;
    }
    Ok(table(&rows, machine))
}

fn measured(kind: Kind, older: Option<Older>, options: &Options, (image, machine): (&Path, Machine)) -> Result<Row> {
    if let Some(older) = older {
        older.set(true);
    }
    let calls = as_float(u64::try_from(kind.calls())?);
    let mut seconds = [f64::INFINITY; 2];
    for _ in 0..options.runs {
        for (threads, least) in (1..).zip(&mut seconds) {
            *least = least.min(timed(kind, image, threads)?);
        }
    }
    let recorded = recorded(kind, image, seconds[0] * 1e9)?;
    // Two real threads slow each other down by all that they share; processors of the simulation share locks alone.
    let costs = Costs { transfer_ns: options.transfer_ns, ..machine.costs };
    let alone: Vec<_> = PROCESSORS.iter().map(|count| simulate(&recorded, *count, (costs, 1.0))).collect();
    let beside = simulate(&recorded, 2, (machine.costs, machine.slower_beside));
    let per_second = |ns: u64| calls / (as_float(ns) / 1e9);
    let model: Vec<f64> = alone.iter().map(|outcome| per_second(outcome.ns)).collect();
    let beside = per_second(beside.ns) / model[0];
    let stops_at = model.windows(2).position(|pair| pair[1] < pair[0] * GROWTH_MIN).map(|place| PROCESSORS[place]);
    let worst = alone.last().and_then(|outcome| {
        let (class, waited) = outcome.waits.iter().max_by_key(|(_, waited)| **waited)?;
        Some((*class, as_float(*waited) / as_float(outcome.ns) / 128.0))
    });
    Ok(Row {
        workload: kind.name(),
        older: older.map(Older::name),
        real: seconds.map(|seconds| calls / seconds),
        beside,
        error: beside / (seconds[0] / seconds[1]) - 1.0,
        stops_at,
        worst,
        forced: alone.last().map_or(0, |outcome| outcome.forced),
        model,
    })
}

/// Seconds of all calls by so many threads, without a recording.
fn timed(kind: Kind, image: &Path, threads: usize) -> Result<f64> {
    let workload = Workload::new(kind, image, IMAGE_BYTES)?;
    let begin = Instant::now();
    thread::scope(|scope| {
        let workload = &workload;
        let of_thread = |thread: usize| {
            let mine = move |number: &usize| number % WORKERS % threads == thread;
            move || (0..kind.calls()).filter(mine).try_for_each(|number| workload.call(number))
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(of_thread(thread))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("a worker does not panic"))
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The operations, from a recording; all together took `plain_ns` without one.
fn recorded(kind: Kind, image: &Path, plain_ns: f64) -> Result<Operations> {
    statistics::measure(&[]);
    let workload = Workload::new(kind, image, IMAGE_BYTES)?;
    drop(trace::take());
    trace::record(true);
    let mut spans = Vec::with_capacity(kind.calls());
    for number in 0..kind.calls() {
        let from_ns = trace::now_ns();
        workload.call(number)?;
        spans.push(Span { worker: number % WORKERS, from_ns, to_ns: trace::now_ns() });
    }
    trace::record(false);
    statistics::measure(&["none"]);
    let mine = trace::thread_number();
    let recorded = trace::take().into_iter().find(|recorded| recorded.thread == mine).unwrap_or_default();
    anyhow::ensure!(!recorded.is_cut, "more steps than a recording keeps");
    let took: u64 = spans.iter().map(|span| span.to_ns - span.from_ns).sum();
    let steps = u64::try_from(recorded.events.len().max(1))?;
    let extra = (as_float(took) - plain_ns).max(0.0) / as_float(steps);
    let extra_ns = u64::try_from(std::time::Duration::from_secs_f64(extra / 1e9).as_nanos())?;
    Ok(Operations::cut(&recorded.events, &spans, extra_ns))
}

fn table(rows: &[Row], machine: Machine) -> String {
    let costs = machine.costs;
    let mut text = format!(
        "A cache line's way to the other processor {} ns; a wake-up {} ns; work beside the other processor takes {:.2} \
         times as long.\n\n| workload | calls/s, 1 thread | 2 threads | model | error |",
        costs.transfer_ns, costs.wake_ns, machine.slower_beside
    );
    for processors in &PROCESSORS[1..] {
        let _ = write!(text, " {processors} |");
    }
    text.push_str(" stops at | waits for, on 128 |\n|---|---|---|---|---|---|---|");
    text.push_str(&"---|".repeat(PROCESSORS.len() - 1));
    text.push('\n');
    for row in rows {
        let name = row.older.map_or(row.workload.to_owned(), |older| format!("… {older}"));
        let first = row.model[0];
        let gains: Vec<String> = row.model[1..].iter().map(|calls| format!("{:.2}", calls / first)).collect();
        let stops = row.stops_at.map_or("–".to_owned(), |count| count.to_string());
        let worst = row.worst.map_or("–".to_owned(), |(class, share)| format!("{class} {:.0} %", share * 100.0));
        let [one, two] = row.real;
        let _ = writeln!(
            text,
            "| {name} | {one:.0} | {:.2} | {:.2} | {:+.0} % | {} | {stops} | {worst} |",
            two / one,
            row.beside,
            row.error * 100.0,
            gains.join(" | ")
        );
    }
    text
}
