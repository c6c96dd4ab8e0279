//! Random operations on a volume and on a model of it; `btrfs check` checks the results.
//!
//! `SPINNEY_SEEDS` (default 8), `SPINNEY_OPERATIONS` (2000), `SPINNEY_SEED` (first seed, 0) and `SPINNEY_IMAGES` (a
//! directory for the images, `/dev/shm` if it exists) set the length of a run. `SPINNEY_TRACE` prints operations.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use testkit::property::Btrfs;
use testkit::reference;
use vfs_conformance::property::{Report, Settings, run, run_threads};

/// After so many seeds that failed, the rest is not run.
const FAILURES_MAX: usize = 5;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn folder() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let parent = std::env::var_os("SPINNEY_IMAGES").map_or_else(
        || {
            if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() }
        },
        PathBuf::from,
    );
    tempfile::Builder::new().prefix("spinney-property-").tempdir_in(parent).expect("a folder for the images")
}

/// Runs each seed once, as many at a time as there are processors; prints the totals.
fn run_seeds(what: &str, seeds: u64, one: impl Fn(u64, &Path) -> anyhow::Result<Report> + Sync) {
    if !reference::is_installed() {
        eprintln!("{what}: SKIPPED, mkfs.btrfs and btrfs are not installed (Debian: apt-get install btrfs-progs)");
        return;
    }
    let folder = folder();
    let first = number("SPINNEY_SEED", 0);
    let next = AtomicU64::new(0);
    let totals = Mutex::new((0u64, Report::default(), 0u64));
    let failures = Mutex::new(Vec::new());
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= seeds || failures.lock().expect("no worker panics").len() >= FAILURES_MAX {
                return;
            }
            match one(first + index, folder.path()) {
                Ok(report) => {
                    let mut totals = totals.lock().expect("no worker panics");
                    totals.0 += 1;
                    totals.1.done += report.done;
                    totals.1.refused += report.refused;
                    totals.1.no_space += report.no_space;
                    totals.2 += u64::from(report.checked);
                }
                Err(error) => failures.lock().expect("no worker panics").push(error),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let (runs, report, checked) = totals.into_inner().expect("no worker panics");
    eprintln!(
        "{what}: {runs} seeds, {} operations done, {} refused alike, {} without space, {checked} images clean",
        report.done, report.refused, report.no_space
    );
    let failures = failures.into_inner().expect("no worker panics");
    for error in &failures {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        eprintln!("{what}: {}\n", causes.join("\n  "));
    }
    if !failures.is_empty() {
        panic!("{what}: {} seeds failed; images in {}", failures.len(), folder.keep().display());
    }
}

#[test]
fn random_operations_equal_the_model() {
    let settings = Settings { operations: number("SPINNEY_OPERATIONS", 2000), ..Settings::default() };
    run_seeds("one thread", number("SPINNEY_SEEDS", 8), |seed, folder| run(&Btrfs, seed, &settings, folder));
}

#[test]
fn four_threads_equal_their_models() {
    let operations = number("SPINNEY_OPERATIONS", 2000) / 2;
    let settings = Settings { operations, image_bytes: 512 << 20, ..Settings::default() };
    let seeds = number("SPINNEY_SEEDS", 8).div_ceil(8);
    run_seeds("four threads", seeds, |seed, folder| run_threads(&Btrfs, seed, 4, &settings, folder));
}
