//! Tests check, scrub, rescue and repair on many small hostile images: as the fuzz targets for damaged images do, but
//! without nightly Rust and coverage feedback, in one process. Called by `cargo trials fuzz-images`.
//!
//! The number of an execution determines its image and operation. An image with a new outcome is kept and mutated
//! again, so that outcomes multiply: the numbers of an execution are those of its ancestors, and its own. `--only` with
//! these numbers repeats it.
//!
//! Failure: a panic, an execution that takes longer than [`TIME_MAX`], more memory than [`MEMORY_BYTES_MAX`]. If the
//! process itself dies, the files `running-*` hold the executions of its threads.

mod execution;
mod pool;
mod progress;
mod tally;

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::hostile::{SmallBase, small_bases};

use execution::{Execution, Kind};
use pool::Pool;
use tally::Tally;

/// An execution that takes longer hangs. `progress` counts its polls, since the whole machine may stop for longer.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Most memory of the process, in bytes.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// Failures at different places after which the search ends.
const FAILURES_MAX: usize = 20;

thread_local! {
    /// Message and place of a thread's last panic.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials fuzz-images --executions 1000000 --threads 2")]
pub(crate) struct Options {
    /// Number of images
    #[arg(long, default_value_t = 100_000)]
    executions: u64,
    /// Most seconds to run
    #[arg(long)]
    seconds: Option<u64>,
    /// Seed of the images
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first image
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Threads; each works on an image of its own.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Operations; the cheap ones are most frequent
    #[arg(long, value_enum, value_delimiter = ',', default_value = "check,scrub,rescue,repair")]
    what: Vec<Kind>,
    /// Only the execution with these numbers, with its mutations and outcome
    #[arg(long, value_delimiter = ',')]
    only: Vec<u64>,
    /// Seconds between two lines of progress.
    #[arg(long, default_value_t = 60)]
    progress_s: u64,
    /// Directory for notes on running executions
    #[arg(long, default_value = "target/fuzz-images")]
    dir: PathBuf,
}

/// State shared by the threads.
struct Shared<'a> {
    options: &'a Options,
    bases: &'a [SmallBase],
    next: AtomicU64,
    pool: Mutex<Pool>,
    /// The execution of each thread.
    running: Vec<Mutex<Option<Execution>>>,
    /// The counts of each thread.
    tallies: Vec<Mutex<Tally>>,
    failures: Mutex<Vec<(String, String)>>,
    is_over: AtomicBool,
}

/// Runs the executions, and reports failures.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(!options.what.is_empty() && options.threads > 0, "nothing to do");
    let bases = small_bases()?;
    if !options.only.is_empty() {
        return only(options, &bases);
    }
    std::fs::create_dir_all(&options.dir)?;
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string().replace('\n', " ");
        LAST_PANIC.with_borrow_mut(|last| *last = text);
    }));
    let shared = Shared {
        options,
        bases: &bases,
        next: AtomicU64::new(options.from),
        pool: Mutex::default(),
        running: (0..options.threads).map(|_| Mutex::default()).collect(),
        tallies: (0..options.threads).map(|_| Mutex::default()).collect(),
        failures: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    let started = Instant::now();
    let watched = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.threads)
            .map(|thread| {
                let shared = &shared;
                scope.spawn(move || work(shared, thread))
            })
            .collect();
        let watched =
            progress::watch(&shared, started, || workers.iter().all(std::thread::ScopedJoinHandle::is_finished));
        shared.is_over.store(true, Ordering::Relaxed);
        watched
    });
    watched?;
    progress::report(&shared, started.elapsed())?;
    let is_good = lock(&shared.failures).is_empty();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one execution, and prints all details. A panic is left to the default hook.
fn only(options: &Options, bases: &[SmallBase]) -> Result<ExitCode> {
    let execution = Execution::new(&options.what, &options.only);
    let image = execution.image(bases, options.seed)?;
    println!("{execution}: base {}: {}", image.base, image.changes.join("; "));
    let began = Instant::now();
    let end = execution.run(&image.device);
    println!("{}, {:?}", end.word, began.elapsed());
    Ok(ExitCode::SUCCESS)
}

fn work(shared: &Shared<'_>, thread: usize) -> Result<()> {
    let options = shared.options;
    let note = File::create(options.dir.join(format!("running-{thread}")))?;
    let (Some(running), Some(tally)) = (shared.running.get(thread), shared.tallies.get(thread)) else { return Ok(()) };
    let end = options.from.saturating_add(options.executions);
    while !shared.is_over.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(());
        }
        let mut numbers = lock(&shared.pool).parents(options.seed, number);
        numbers.push(number);
        let execution = Execution::new(&options.what, &numbers);
        note.write_all_at(format!("{execution:<100}\n").as_bytes(), 0)?;
        let began = Instant::now();
        *lock(running) = Some(execution.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let image = execution.image(shared.bases, options.seed)?;
            let made = began.elapsed();
            Ok::<_, anyhow::Error>((execution.run(&image.device), made))
        }));
        *lock(running) = None;
        match ended {
            Ok(Ok((end, made))) => {
                lock(tally).add(&execution, end.word, made, began.elapsed());
                lock(&shared.pool).ended(&execution, end);
            }
            Ok(Err(error)) => fail(shared, &format!("no image: {error:#}"), &execution),
            Err(_) => fail(shared, &LAST_PANIC.with_borrow(Clone::clone), &execution),
        }
    }
    Ok(())
}

/// Notes a failure, and prints it unless one at the same place was printed.
fn fail(shared: &Shared<'_>, what: &str, execution: &Execution) {
    // The place of the panic, without the numbers in its message.
    let place: String = what.split(".rs:").next().unwrap_or(what).to_owned()
        + what.split(".rs:").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let mut failures = lock(&shared.failures);
    if failures.iter().any(|(known, _)| *known == place) {
        return;
    }
    let text: String = what.chars().take(2000).collect();
    let again = format!("--seed {} {}", shared.options.seed, execution.again());
    println!("fuzz-images: FAILED: {execution}: {text}; again with {again}");
    failures.push((place, text));
    if failures.len() >= FAILURES_MAX {
        shared.is_over.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
