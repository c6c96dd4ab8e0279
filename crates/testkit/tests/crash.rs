//! Power cuts, failing devices and rot: nothing that a sync promised is lost, and `btrfs check` agrees.
//!
//! The crash explorer tries `SPINNEY_POWER_CUTS` states (default 3000); `cargo trials crash-explore` tries more.
//!
//! `SPINNEY_SEEDS` (default 6), `SPINNEY_SEED` (first seed, 0), `SPINNEY_STATES` (states per seed, 60) and
//! `SPINNEY_STRIDE` (of the writes, one in so many fails, 17), `SPINNEY_IMAGES` (a folder for the images,
//! `/dev/shm` where there is one) choose how much is run.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use btrfs_disk::flags::BlockGroupFlags;
use crash_explorer::{Config, Report, explore_all, explore_faults, explore_steps, parse};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use testkit::crash::{Settings, explore, explore_fsync, inject, run_damage, run_read_errors};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn folder() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let usual = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
    let parent = std::env::var_os("SPINNEY_IMAGES").map_or(usual, PathBuf::from);
    tempfile::Builder::new().prefix("spinney-crash-").tempdir_in(parent).expect("a folder for the images")
}

/// Runs `one` for each seed, as many at a time as there are processors; prints their results.
fn run_seeds<R: std::fmt::Debug + Send>(what: &str, seeds: u64, one: impl Fn(u64, &Path) -> anyhow::Result<R> + Sync) {
    let folder = folder();
    let first = number("SPINNEY_SEED", 0);
    let next = AtomicU64::new(0);
    let failures = Mutex::new(0);
    let worker = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= seeds {
            return;
        }
        match one(first + index, folder.path()) {
            Ok(report) => eprintln!("{what}: seed {}: {report:?}", first + index),
            Err(error) => {
                let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
                eprintln!("{what}: {}\n", causes.join("\n  "));
                *failures.lock().expect("no worker panics") += 1;
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let failures = failures.into_inner().expect("no worker panics");
    if failures > 0 {
        panic!("{what}: {failures} seeds failed; images in {}", folder.keep().display());
    }
}

fn settings() -> Settings {
    Settings { states: number("SPINNEY_STATES", Settings::default().states), ..Settings::default() }
}

#[test]
fn a_crash_loses_nothing_that_was_synced() {
    run_seeds("crashes", number("SPINNEY_SEEDS", 6), |seed, folder| explore(seed, &settings(), folder));
}

#[test]
fn a_crash_loses_nothing_that_an_fsync_promised() {
    let keep = std::env::var_os("SPINNEY_KEEP_LOGS").map(PathBuf::from);
    run_seeds("fsync", number("SPINNEY_SEEDS", 6), |seed, folder| {
        explore_fsync(seed, &settings(), folder, keep.as_deref())
    });
}

#[test]
fn a_failed_write_or_flush_is_told_and_stops_the_volume() {
    let settings = Settings { operations: 60, ..settings() };
    run_seeds("faults", number("SPINNEY_SEEDS", 6), |seed, folder| {
        inject(seed, &settings, number("SPINNEY_STRIDE", 17), folder)
    });
}

#[test]
fn rot_is_mended_or_told_and_does_not_spread() {
    let settings = Settings { states: settings().states / 6, ..settings() };
    run_seeds("rot", number("SPINNEY_SEEDS", 6), |seed, folder| run_damage(seed, &settings, folder));
}

#[test]
fn a_failed_read_fails_one_operation_whole() {
    let settings = Settings { states: settings().states / 6, ..settings() };
    run_seeds("reads", number("SPINNEY_SEEDS", 6), |seed, folder| run_read_errors(seed, &settings, folder));
}

/// Fails with the first wrong states, whose images it keeps.
fn assert_no_failure(what: &str, report: &Report) {
    for failure in &report.failures {
        eprintln!("{what}: {}: {}\n{}\nimage: {:?}", failure.state, failure.reason, failure.story, failure.image);
    }
    assert_eq!(report.failure_count, 0, "{what}");
}

fn power_cuts() -> (Config, tempfile::TempDir) {
    let folder = folder();
    let config = Config {
        states: number("SPINNEY_POWER_CUTS", 3000),
        seed: number("SPINNEY_SEED", 0),
        keep: Some(folder.path().to_path_buf()),
        ..Config::new(Arc::new(btrfs_crash::Btrfs))
    };
    (config, folder)
}

#[test]
fn no_state_of_a_power_cut_breaks_a_promise() {
    let (config, folder) = power_cuts();
    let report = explore_all(&config).expect("there are workloads");
    eprintln!("power cuts: {} workloads, {} states, {} with a log", report.workloads, report.states, report.replayed);
    if report.failure_count > 0 {
        eprintln!("images in {}", folder.keep().display());
    }
    assert_no_failure("power cuts", &report);
    assert!(report.states >= config.states && report.replayed > config.states / 10, "{report:?}");
}

/// Copies, snapshots, several subvolumes and handles, attributes: programs drawn from all kinds of operations.
#[test]
fn no_state_of_a_random_program_breaks_a_promise() {
    const STATES_EACH: u64 = 50;
    let (config, folder) = power_cuts();
    let one = |workload: String, states| {
        let config = Config { workload: Some(workload.clone()), states, ..config.clone() };
        let report = explore_all(&config).expect("there are workloads");
        if report.failure_count > 0 {
            eprintln!("{workload}: images in {}", folder.path().display());
        }
        report
    };
    let mut reports = vec![one("more1-".to_owned(), config.states / 2)];
    let programs = config.states / 2 / STATES_EACH;
    let numbers = number("SPINNEY_PROGRAM", 0)..programs;
    reports.extend(numbers.map(|number| one(format!("program-{number}"), STATES_EACH)));
    let states: u64 = reports.iter().map(|report| report.states).sum();
    eprintln!("{programs} programs, {states} states of them and of single operations");
    let failures: u64 = reports.iter().map(|report| report.failure_count).sum();
    if failures > 0 {
        let _ = folder.keep();
    }
    reports.iter().for_each(|report| assert_no_failure("random programs", report));
}

#[test]
fn an_fsync_whose_device_fails_is_told_and_leaves_what_a_crash_leaves() {
    let (config, _folder) = power_cuts();
    let total = explore_faults(&config, config.states.div_ceil(150)).expect("every fault is told");
    eprintln!("faults: {} happened, {} told to a sync", total.faults, total.told_to_sync);
    assert_no_failure("faults", &total.report);
    assert!(total.faults > 100 && total.told_to_sync > total.faults / 2, "{total:?}");
}

/// Workloads that once left a wrong state, and the fault. Steps before `reopen` are done before the volume is opened.
const FOUND_BEFORE: &[(&str, &str)] = &[
    (
        "a name got the position of one that was removed before, and the log could not be replayed",
        "mkdir d; creat d/e; reopen; unlink d/e; creat d/b; write d/b 0 9000; fsync d/b",
    ),
    (
        "the same where the name was moved away",
        "mkdir e; mkdir d; creat d/e; reopen; rename d/e e/e; creat d/b; fsync d/b",
    ),
    (
        "a file got the number of a symbolic link that was removed before, and the log could not be replayed",
        "symlink x old; reopen; unlink old; creat new; write new 0 5000; fsync new",
    ),
    ("the same of a directory", "mkdir old; reopen; rmdir old; creat new; write new 0 5000; fsync new"),
    (
        "a rename over an inode of the log left neither, where the log took that one's name back",
        "creat foo; mkdir A; rename foo A/bar; fsync A; creat foo; creat A/foo; rename A/foo A/bar; fsync foo",
    ),
    (
        "the same where that inode lives on under another name",
        "mkdir T; mkdir A; creat T/foo; rename T/foo T/bar; fsync T; link T/bar A/of; fsync A/of; creat T/foo; \
         rename T/foo A/of; fsync T",
    ),
    (
        "an inode that was gone lost its synced contents to a name that it did not lose",
        "mkdir A; creat A/foo; creat foo; sync; write A/foo 0 9000; link A/foo A/bar; fsync A/bar; unlink A/foo; \
         rename foo A/bar; creat foo; fsync foo",
    ),
    (
        "attributes that an fsync had seen removed were there again, after the name went to another file",
        "creat foo; setxattr foo user.a b; sync; removexattr foo user.a; fsync foo; unlink foo; creat foo; creat bar; \
         fsync bar",
    ),
    (
        "a new directory was synced, and the names in its new directories were gone, which the kernel keeps",
        "mkdir d; mkdir d/s; mkdir d/s/t; creat d/s/a; symlink a d/s/t/l; chmod d/s 711; fsync d",
    ),
    (
        "the same in a directory that was there before, and with names that move between the new ones",
        "mkdir d; creat d/old; reopen; mkdir d/s; mkdir d/t; creat d/s/a; creat d/s/b; fsync d; rename d/s/a d/t/a; \
         unlink d/s/b; creat d/c; fsync d; mkdir d/t/u; creat d/t/u/x; rename d/t/u d/s/u; fsync d/s",
    ),
];

#[test]
fn what_was_wrong_once_is_right() {
    let (config, _folder) = power_cuts();
    for (what, workload) in FOUND_BEFORE {
        let steps = |text: &str| -> Vec<_> {
            let lines = text.replace(';', "\n");
            let steps = parse(lines.as_bytes()).expect("a workload");
            steps.into_iter().map(|(_, step)| step).collect()
        };
        let (before, after) = workload.split_once("reopen;").unwrap_or(("", workload));
        let config = Config { states: 600, ..config.clone() };
        let report = explore_steps(&config, &steps(before), &steps(after)).expect("a workload");
        assert_no_failure(what, &report);
        assert!(report.states > 20, "{what}: {report:?}");
    }
}

/// Several devices, each with its own part of the writes of a power cut, and then one of them lost.
#[test]
fn no_state_of_several_devices_breaks_a_promise_without_one_of_them() {
    let states = number("SPINNEY_POWER_CUTS", 3000) / 15;
    for (profile, count) in [(BlockGroupFlags::RAID1, 2), (BlockGroupFlags::RAID1C3, 3), (BlockGroupFlags::RAID10, 4)] {
        for lost in [None, Some(0), Some(count - 1)] {
            let (config, folder) = power_cuts();
            let format = Arc::new(btrfs_crash::Several { count, profile, lost });
            let report = explore_all(&Config { format, states, ..config }).expect("there are workloads");
            let what = format!("{profile:?} on {count} devices without {lost:?}");
            eprintln!("{what}: {} states, {} with a log", report.states, report.replayed);
            if report.failure_count > 0 {
                eprintln!("images in {}", folder.keep().display());
            }
            assert_no_failure(&what, &report);
        }
    }
}
