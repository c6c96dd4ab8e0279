//! Makes random sequences of calls to the library for C, also under a sanitizer: `cargo xtask capi-fuzz`.
//!
//! The sequences are a test of `crates/capi` (`tests/interface/sequences`), of which each build runs a thousand. This
//! task runs as many as it is told, in several processes with other seeds. `--sanitizer address` finds accesses outside
//! buffers and of freed memory, and leaks; `thread` finds races. Both need a nightly compiler, `thread` also the
//! component `rust-src`, since the standard library is compiled with it; rustup installs both. Fails with the first
//! process that fails; its seed repeats it. Called by `main`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::system::{run, run_command, target_dir};

/// Options of the sequences.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Sequences in all, of some 15 calls each
    #[arg(long, default_value_t = 20_000)]
    sequences: u64,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sanitizer that the library is built with
    #[arg(long, value_enum)]
    sanitizer: Option<Sanitizer>,
    /// Processes at a time; one for each processor if not given
    #[arg(long)]
    jobs: Option<u64>,
    /// Threads that share a volume and its handles; one and three in turn if not given
    #[arg(long)]
    threads: Option<u64>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Sanitizer {
    Address,
    Thread,
}

/// Compiler with sanitizers.
const NIGHTLY: &str = "+nightly";
/// Distance between the seeds of two processes: more than the volumes that one makes.
const SEEDS_OF_A_JOB: u64 = 1 << 20;
/// The test that makes the sequences.
const TEST: &str = "sequences::random_sequences_are_answered";

/// Builds the test, and runs it.
///
/// # Errors
/// A missing compiler, or a process that failed, with its output.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let program = build(root, options.sanitizer)?;
    let begun = Instant::now();
    let jobs = options.jobs.unwrap_or_else(processors).max(1);
    let mut running = Vec::new();
    for job in 0..jobs {
        let seed = options.seed.saturating_add(job.saturating_mul(SEEDS_OF_A_JOB));
        running.push((seed, start(root, &program, options, seed, options.sequences.div_ceil(jobs))?));
    }
    let mut calls = 0;
    for (seed, child) in running {
        let output = child.wait_with_output()?;
        let (said, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "seed {seed}: {}\n{said}{told}", output.status);
        calls += count_calls(&said).with_context(|| format!("seed {seed}: no last line:\n{said}"))?;
    }
    let with =
        options.sanitizer.map_or_else(String::new, |sanitizer| format!(" with the {} sanitizer", sanitizer.name()));
    let sequences = options.sequences.div_ceil(jobs).saturating_mul(jobs);
    println!("capi-fuzz: {sequences} sequences, {calls} calls{with}: nothing found, {} s", begun.elapsed().as_secs());
    Ok(())
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1))
}

/// Builds the test program of the library; the result is its path.
fn build(root: &Path, sanitizer: Option<Sanitizer>) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root);
    if sanitizer.is_some() {
        let found = run("cargo", &[NIGHTLY, "--version"]);
        if found.is_err() {
            run("rustup", &["toolchain", "install", "nightly", "--profile", "minimal"])?;
        }
        cargo.arg(NIGHTLY);
    }
    cargo.args(["test", "--no-run", "--quiet", "--locked", "--profile", "checked", "--package", "spinney-capi"]);
    cargo.args(["--test", "interface", "--message-format", "json"]).env("CARGO_PROFILE_CHECKED_INCREMENTAL", "false");
    cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    if let Some(sanitizer) = sanitizer {
        let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let dir = target_dir(root).join(format!("capi-fuzz-{}", sanitizer.name()));
        cargo.args(["--target", &host, "--target-dir"]).arg(dir);
        // crossbeam synchronises by fences, which the sanitizer does not know; this has it do without them.
        let flags = format!("-Zsanitizer={} --cfg crossbeam_sanitize_thread", sanitizer.name());
        cargo.env("RUSTFLAGS", flags);
        // Lines are for reports.
        cargo.env("CARGO_PROFILE_CHECKED_DEBUG", "line-tables-only");
        if matches!(sanitizer, Sanitizer::Thread) {
            run("rustup", &["component", "add", "rust-src", "--toolchain", "nightly"])?;
            cargo.arg("-Zbuild-std");
        }
    }
    let built = run_command(&mut cargo)?;
    for line in built.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if let Some(program) = message.get("executable").and_then(serde_json::Value::as_str) {
            return Ok(PathBuf::from(program));
        }
    }
    bail!("cargo built no test program")
}

/// Starts a process with its share of the sequences.
fn start(root: &Path, program: &Path, options: &Options, seed: u64, sequences: u64) -> Result<Child> {
    let mut command = Command::new(program);
    command.current_dir(root.join("crates/capi")).args(["--exact", TEST, "--nocapture"]);
    command.env("CAPI_SEQUENCES", sequences.to_string()).env("CAPI_SEED", seed.to_string());
    if let Some(threads) = options.threads {
        command.env("CAPI_THREADS", threads.to_string());
    }
    // Reports of a sanitizer end the process, also those of leaks. Libraries in C, which are compiled with the
    // sanitizer too, have constants of one name in several files.
    let address = "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1:detect_odr_violation=0";
    command.env("ASAN_OPTIONS", address);
    command.env("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().with_context(|| program.display().to_string())
}

/// The number of calls in the last line of the test.
fn count_calls(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.contains(" sequences, ") && line.contains(" calls on "))?;
    let (before, _) = line.split_once(" calls on ")?;
    before.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_the_last_line() {
        let said = "40 sequences\nsend: 1 of 2 succeeded\n1000 sequences, 15042 calls on 4 volumes, seeds from 1\n\n";
        assert_eq!(count_calls(said), Some(15042));
        assert_eq!(count_calls("nothing"), None);
    }
}
