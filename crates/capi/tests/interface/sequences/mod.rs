//! Random sequences of calls by one thread and by several: every call returns, with a number of its own and a message,
//! no closed or foreign handle is used, and the volume that the sequences share is without errors at the end.
//!
//! A sequence works on the shared volume, on a new one, or on an image with wrong contents and right checksums that a
//! device of the caller gives. Its calls take open and closed handles of any type, NULL, structs with other sizes, and
//! buffers without a byte to spare, so that sanitizers see each access beyond them (`cargo xtask capi-fuzz`).
//!
//! `CAPI_SEQUENCES` is the number of sequences (1000), `CAPI_SEED` the first seed, `CAPI_THREADS` the number of
//! threads, which else changes.

mod caller;
mod groups;
mod hostile;
mod input;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::mem::{size_of, zeroed};
use std::path::PathBuf;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use spinney_capi::*;
use testkit::hostile::{SmallBase, small_bases};

use super::misuse::{message, text};
use caller::Caller;
use input::Random;

/// Sequences with one shared volume, until it is closed and checked.
const SEQUENCES_PER_VOLUME: u64 = 250;
/// Name of the work around the calls of a sequence, in the tally.
const AROUND: &str = "around";
/// Longest wait for the workers of closed volumes.
const WORKERS_MAX: Duration = Duration::from_secs(5);
/// Size of the volumes.
const VOLUME_BYTES: u64 = 64 << 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The calls of one name.
#[derive(Default)]
struct Sum {
    made: u64,
    /// How many succeeded.
    good: u64,
    /// Time that they took, over all threads.
    time: Duration,
}

/// Calls of each name, and the parts of a sequence around them.
type Tally = BTreeMap<&'static str, Sum>;

/// The same for all volumes: images, and files of the host.
struct Surroundings {
    hostile: Vec<SmallBase>,
    /// A directory of the host: `site` has a few files, `good.img` is an image, `text` is none.
    dir: PathBuf,
}

/// Shared by the threads: all handles, of every type, and a stream.
struct Shared<'a> {
    around: &'a Surroundings,
    handles: Mutex<Vec<(usize, &'static str)>>,
    stream: Mutex<Vec<u8>>,
    paths: Vec<CString>,
    tally: Mutex<Tally>,
    seed: u64,
    /// Whether one thread makes all calls: then no other closes the handles that texts belong to.
    is_alone: bool,
    /// The handle of the shared volume.
    volume: usize,
}

fn paths() -> Vec<CString> {
    let long = "x".repeat(300);
    let names = ["/", "", ".", "a", "b", "c", "a/a", "a/b", "b/../c", "a/b/c", "s", "t", "s/f", "t/f", "c/", &long];
    // These are in the images with wrong contents.
    let hostile = ["dir", "dir/inline", "logged"];
    names.iter().chain(&hostile).map(|name| text(name)).collect()
}

fn surroundings(dir: PathBuf) -> Surroundings {
    std::fs::create_dir(dir.join("site")).unwrap();
    std::fs::write(dir.join("site/page"), "hello").unwrap();
    std::fs::write(dir.join("text"), "no image").unwrap();
    let image = spinney::make(dir.join("good.img"), "btrfs", &spinney::MakeOptions::new().size(VOLUME_BYTES)).unwrap();
    image.write("a", "1").unwrap();
    image.close().unwrap();
    Surroundings { hostile: small_bases().unwrap(), dir }
}

/// Random sequences on a new volume by several threads; the volume is checked at the end.
fn explore(around: &Surroundings, format: &str, seed: u64, (sequences, threads): (u64, u64)) -> Tally {
    let (mut device, mut volume) = (null_mut(), null_mut());
    unsafe {
        assert_eq!(spinney_device_memory(VOLUME_BYTES, &raw mut device), 0);
        let made = spinney_make_devices(&raw const device, 1, text(format).as_ptr(), null(), &raw mut volume);
        assert_eq!(made, 0, "{}", message::<u8>(null()));
    }
    let shared = Shared {
        around,
        handles: Mutex::default(),
        stream: Mutex::default(),
        paths: paths(),
        tally: Mutex::default(),
        seed,
        is_alone: threads == 1,
        volume: volume.addr(),
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let shared = &shared;
            scope.spawn(move || {
                let random = Random(seed.wrapping_mul(1_000_003).wrapping_add(thread));
                Caller::new(random, shared).run(sequences / threads);
            });
        }
    });
    for (handle, _) in shared.handles.into_inner().unwrap() {
        spinney_close(without_provenance_mut(handle));
    }
    let begun = Instant::now();
    unsafe {
        assert_eq!(spinney_close(volume.cast()), 0, "{format}, seed {seed}: {}", message::<u8>(null()));
        check(device, &format!("{format}, seed {seed}, {threads} threads"));
    }
    spinney_close(device.cast());
    let mut tally = shared.tally.into_inner().unwrap();
    tally.entry(AROUND).or_default().time += begun.elapsed();
    tally
}

/// Fails if the volume on a device has errors.
unsafe fn check(device: *mut SpinneyDevice, which: &str) {
    let mut report = null_mut();
    unsafe {
        let mut summary: SpinneySummary = zeroed();
        let mut finding: SpinneyFinding = zeroed();
        (summary.struct_size, finding.struct_size) = (size_of::<SpinneySummary>(), size_of::<SpinneyFinding>());
        assert_eq!(spinney_check_devices(&raw const device, 1, null(), None, null_mut(), &raw mut report), 0);
        assert_eq!(spinney_report_summary(report, &raw mut summary), 0);
        if spinney_report_next(report, &raw mut finding) > 0 {
            panic!("{which}: {} errors: {:?}", summary.errors, CStr::from_ptr(finding.about));
        }
    }
    spinney_close(report.cast());
}

/// Waits until the workers of closed volumes have ended, which nothing joins: a check for leaks at the end of the
/// process would take for lost what an ending thread holds.
fn wait_for_workers() {
    let begun = Instant::now();
    let is_worker = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        name.starts_with("worker-")
    };
    // Other tests of the process may have volumes open.
    while begun.elapsed() < WORKERS_MAX && std::fs::read_dir("/proc/self/task").unwrap().any(is_worker) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn random_sequences_are_answered() {
    let (sequences, seed) = (number("CAPI_SEQUENCES", 1_000), number("CAPI_SEED", 1));
    let rounds = sequences.div_ceil(SEQUENCES_PER_VOLUME).max(2);
    // Images of the host are flushed often, which says nothing about the calls.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let around = surroundings(dir.path().to_owned());
    let mut all = Tally::new();
    for round in 0..rounds {
        let format = if round % 4 == 1 { "f2fs" } else { "btrfs" };
        let threads = number("CAPI_THREADS", if round % 3 == 0 { 1 } else { 3 });
        for (name, part) in explore(&around, format, seed + round, (sequences / rounds, threads)) {
            let sum = all.entry(name).or_default();
            *sum = Sum { made: sum.made + part.made, good: sum.good + part.good, time: sum.time + part.time };
        }
        if round % 40 == 39 {
            println!("{} sequences", (round + 1) * (sequences / rounds));
        }
    }
    for (name, Sum { made, good, time }) in &all {
        println!("{name}: {good} of {made} succeeded, {} ms", time.as_millis());
        assert!(*good > 0 || *made < 500, "{name} never succeeds: {made} calls");
    }
    wait_for_workers();
    let calls: u64 = all.values().map(|sum| sum.made).sum();
    println!("{sequences} sequences, {calls} calls on {rounds} volumes, seeds from {seed}");
}
