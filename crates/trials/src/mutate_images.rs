//! Tests mutated images: gives known fields other values, corrects the checksums, and reads each image, changes it and
//! reads it again. No image may cause a panic, a hang or unbounded memory, and no change may destroy other data.
//!
//! Child processes of a build with all checks of arithmetic try the images; this process watches them. The number of an
//! image and the seed determine its contents. Called by `cargo trials mutate-images`.

use anyhow::{Context, Result, ensure};
use blockdev::backends::{FileDevice, FileOptions};
use clap::Args;
use std::io::{BufRead as _, BufReader, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use testkit::hostile::{Base, Outcome, bases, trial};

/// Memory of a child: address space, so that asking for more fails at once.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// An image that takes longer counts as a hang.
const SECONDS_MAX: u64 = 30;
/// Images that one child works through before the next takes over.
const RUN_IMAGES: u64 = 2000;
/// The trial ends after this many failures: further ones are probably similar.
const FAILURES_MAX: usize = 200;

/// Message and place of the last panic.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Options of the trial.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of images; half of them have a log
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Seed of the images
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of the first image
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Number of processes
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Only this image, with its mutations and their results
    #[arg(long)]
    only: Option<u64>,
    /// A small image to mutate, besides the generated ones, clean or with a log
    #[arg(long)]
    base: Vec<PathBuf>,
    /// Internal: work through the numbers from FROM on, and report each on a line
    #[arg(long, hide = true)]
    child: bool,
}

/// Counts of the results.
#[derive(Debug, Default)]
struct Totals {
    tried: u64,
    logs: u64,
    readable: u64,
    writable: u64,
    written: u64,
    compared: u64,
    failures: Vec<(u64, String)>,
}

/// Runs the images, or those of a child.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.child || options.only.is_some() {
        return child(options);
    }
    let program = build(root)?;
    let totals = Mutex::new(Totals::default());
    let next = Mutex::new(options.from);
    let end = options.from.saturating_add(options.count);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..options.jobs.max(1)).map(|_| scope.spawn(|| work(&program, options, (&next, end), &totals))).collect();
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(options, &totals))
}

fn report(options: &Options, totals: &Totals) -> ExitCode {
    for (number, what) in &totals.failures {
        println!("image {number}: {what}");
    }
    let kind = |word: &str| totals.failures.iter().filter(|(_, what)| what.starts_with(word)).count();
    println!(
        "mutate-images: seed {}: {} images, {} with a log: {} could be read, {} opened for writing, {} written, \
         {} names compared: {} panics, {} hangs, {} ended (memory), {} lost something",
        options.seed,
        totals.tried,
        totals.logs,
        totals.readable,
        totals.writable,
        totals.written,
        totals.compared,
        kind("panic"),
        kind("hang"),
        kind("ended"),
        kind("lost"),
    );
    if totals.failures.is_empty() && totals.tried > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This program with all checks: itself if it was built so, or else a build of the whole workspace, which shares its
/// parts with the tests.
fn build(root: &Path) -> Result<PathBuf> {
    if cfg!(debug_assertions) {
        return Ok(std::env::current_exe()?);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile", "checked", "--workspace", "--bin", "trials"]);
    ensure!(command.current_dir(root).status()?.success(), "the build failed");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("checked/trials"))
}

fn work(program: &Path, options: &Options, (next, end): (&Mutex<u64>, u64), totals: &Mutex<Totals>) {
    loop {
        let (from, to) = {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let from = *next;
            *next = from.saturating_add(RUN_IMAGES).min(end);
            (from, *next)
        };
        if from >= to {
            return;
        }
        let mut at = from;
        while at < to {
            match watch(program, options, (at, to), totals) {
                Ok(reached) => at = reached,
                Err(error) => {
                    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    totals.failures.push((at, format!("ended: {error:#}")));
                    return;
                }
            }
            if totals.lock().unwrap_or_else(PoisonError::into_inner).failures.len() > FAILURES_MAX {
                return;
            }
        }
    }
}

/// Has a child work through some images; returns the number of the first that it did not try.
fn watch(program: &Path, options: &Options, (from, to): (u64, u64), totals: &Mutex<Totals>) -> Result<u64> {
    let mut command = Command::new(program);
    command.args(["mutate-images", "--child"]);
    for (name, value) in [("--seed", options.seed), ("--from", from), ("--count", to.saturating_sub(from))] {
        command.args([name, &value.to_string()]);
    }
    for base in &options.base {
        command.arg("--base").arg(base);
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("a pipe")?;
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let mut at = from;
    let ended = loop {
        match lines.recv_timeout(Duration::from_secs(SECONDS_MAX)) {
            Ok(line) => at = note(&line, at, totals)?,
            Err(RecvTimeoutError::Timeout) => break "hang",
            Err(RecvTimeoutError::Disconnected) => break "ended",
        }
    };
    let told = end(&mut child, &mut at, (ended, to), totals);
    let _ = reader.join();
    told.map(|()| at)
}

/// Kills a child that hangs, and waits for its end. Records a failure if the child had images left to try.
fn end(child: &mut Child, at: &mut u64, (ended, to): (&str, u64), totals: &Mutex<Totals>) -> Result<()> {
    if ended == "hang" {
        child.kill()?;
    }
    let status = child.wait()?;
    if *at >= to {
        return Ok(());
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
    }
    let said: String = said.chars().take(2000).collect();
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    totals.failures.push((*at, format!("{ended}: {status}: {said}")));
    totals.tried = totals.tried.saturating_add(1);
    *at = at.saturating_add(1);
    Ok(())
}

/// Records the child's report of an image; returns the number of the next.
fn note(line: &str, at: u64, totals: &Mutex<Totals>) -> Result<u64> {
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    let mut words = line.splitn(3, ' ');
    let (word, number) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let number: u64 = number.parse().with_context(|| format!("a child said {line:?}"))?;
    let rest = words.next().unwrap_or_default();
    ensure!(number == at, "image {number} came for {at}");
    totals.tried = totals.tried.saturating_add(1);
    if word == "failed" {
        totals.failures.push((number, rest.to_owned()));
        return Ok(number.saturating_add(1));
    }
    let mut numbers = rest.split(' ').map(|number| number.parse::<u64>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (logs, readable, writable, written, compared) = (next(), next(), next(), next(), next());
    totals.logs = totals.logs.saturating_add(logs);
    totals.readable = totals.readable.saturating_add(readable);
    totals.writable = totals.writable.saturating_add(writable);
    totals.written = totals.written.saturating_add(written);
    totals.compared = totals.compared.saturating_add(compared);
    Ok(number.saturating_add(1))
}

/// Runs in a child process: tries its images, and prints a line about each.
fn child(options: &Options) -> Result<ExitCode> {
    let limit = rustix::process::Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit)?;
    let mut images = bases()?;
    for path in &options.base {
        let file = FileOptions { read_only: true, ..FileOptions::default() };
        let device = Arc::new(FileDevice::open(path, &file)?);
        images.push(Base::new(&path.display().to_string(), device)?);
    }
    if let Some(number) = options.only {
        trial(&images, options.seed, number, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    std::panic::set_hook(Box::new(|info| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    for number in options.from..options.from.saturating_add(options.count) {
        let line = match catch_unwind(AssertUnwindSafe(|| trial(&images, options.seed, number, false))) {
            Ok(Ok(outcome)) => format!("done {number} {}", numbers(&outcome)),
            Ok(Err(lost)) => format!("failed {number} lost: {}", one_line(&format!("{lost:#}"))),
            Err(_) => {
                let told = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
                format!("failed {number} panic: {}", one_line(&told))
            }
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn numbers(outcome: &Outcome) -> String {
    format!(
        "{} {} {} {} {}",
        u8::from(outcome.has_log),
        u8::from(outcome.is_readable),
        u8::from(outcome.is_writable),
        u8::from(outcome.is_written),
        outcome.compared
    )
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}
