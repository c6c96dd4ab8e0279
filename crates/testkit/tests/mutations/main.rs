//! Do the crash tests find mistakes? Each deliberate bug is made in turn, in the engine (`ablation::Mutation`) or by
//! the device below it (`planted`), and a workload that meets it is explored: some state has to break a promise.
//! Without a bug none does.
//!
//! `cargo test --release -p testkit --features ablation --test mutations -- --nocapture` prints for each mistake which
//! state of which workload shows it, and which promise it breaks. `SPINNEY_STATES` (default 3000) bounds the states
//! of a workload, `SPINNEY_MUTATION` names the only mistake that is made.

#![cfg(feature = "ablation")]

mod planted;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::ablation::{Mutation, mutate};
use btrfs::{MakeOptions, Volume};
use crash_explorer::{Config, Failure, Format, Step, explore_steps, parse};
use parking_lot::Condvar;
use planted::{Planted, PlantedBtrfs};
use testkit::Random;
use testkit::faults::RecordingDevice;
use vfs::FileOptions;

/// A mistake has to be found within this time.
const FOUND_WITHIN: Duration = Duration::from_secs(20);

/// A sync that does not return within this time waits for the one before it.
const WAITS_AFTER: Duration = Duration::from_secs(2);

/// The mistake is one for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where a mistake shows.
enum Workload {
    /// Operations, one a line.
    Steps(&'static str),
    /// A file is synced while the device still flushes for another one.
    Overlapping,
    /// A file that is overwritten in place and synced.
    InPlace,
}

use Workload::{InPlace, Overlapping, Steps};

/// A workload that exposes a mistake.
fn workload(mutation: Mutation) -> Workload {
    Steps(match mutation {
        Mutation::LeavesAfterSuperblock => Planted::NoFlushBeforeSuperblock.steps(),
        Mutation::StaleLogRoot => "creat a\nfsync a\ncreat b\nwrite b 0 5000\nfsync b\nwrite a 0 5000\nfsync a",
        Mutation::LogBlocksEditedInPlace => "creat a\nwrite a 0 9000\nfsync a\nwrite a 4096 9000\nfsync a",
        Mutation::LogBlocksFreedEarly => REUSING_COMMIT,
        Mutation::FreedDataReused => {
            // The only group for data, of 8 MiB, has no room for `b` but where `a` was.
            "creat f\nwrite f 0 6200000\ncreat a\ncreat b\nsync\nwrite a 0 1000000\nfsync a\ndwrite a 0 1000000\n\
             dwrite b 0 1000000"
        }
        Mutation::DiscardedEarly => "creat a\nwrite a 0 100000\nsync\nunlink a\nsync",
        Mutation::MirrorsWithoutLog => "creat a\nwrite a 0 9000\nfsync a\ncreat b\nsync",
        Mutation::NoFlushWithoutNews => return InPlace,
        Mutation::NoDirRanges => "mkdir d\ncreat d/a\ncreat d/b\nsync\nunlink d/a\nfsync d",
        Mutation::FallbackLeftOut => "mkdir d\ncreat d/a\nsync\nrename d e\nfsync e",
        Mutation::NoCommitAfterChunk => "creat a\nwrite a 0 16000000\nfsync a",
        Mutation::LostNamesKept => "mkdir d\nmkdir e\ncreat d/a\nsync\nrename d/a e/a\nfsync e/a",
        Mutation::FormerOwnerForgotten => "creat a\ncreat b\nsync\nrename a c\nrename b a\nfsync a",
        Mutation::GoneInodesKept => "creat a\ncreat b\nfsync b\nfsync a\nunlink b\nrename a b\nfsync b",
        Mutation::NoAncestors => "mkdir d\nmkdir d/e\ncreat d/e/a\nwrite d/e/a 0 5000\nfsync d/e/a",
        Mutation::NoTargets => "mkdir d\nsync\ncreat d/a\nsymlink a d/b\nfsync d",
        Mutation::NoEntriesBelow => "mkdir d\nmkdir d/e\nmkdir d/e/f\ncreat d/e/f/a\nfsync d",
        Mutation::NoNewName => "creat a\nwrite a 0 5000\nfsync a\nlink a b\nfsync a",
        Mutation::NoCsums => "creat a\nwrite a 0 20000\nfsync a",
        Mutation::NoHoles => "creat a\nwrite a 0 65536\nsync\nfalloc a 8192 16384 punch\nfsync a",
        Mutation::SizeForgotten => "creat a\ntruncate a 1000000\nsync\ntruncate a 500000\nfdatasync a",
        Mutation::ExtentsForgotten => "creat a\nwrite a 0 20000\nsync\nwrite a 0 8192\nfdatasync a",
        Mutation::GroupNotAwaited => return Overlapping,
        other => return Steps(with_attributes(other)),
    })
}

/// A workload that exposes a mistake with attributes.
fn with_attributes(mutation: Mutation) -> &'static str {
    match mutation {
        Mutation::OwnerIgnored => "creat a\nchown a 7 8\nfsync a",
        Mutation::TimesIgnored => "creat a\nutimes a 5 7\nfsync a",
        Mutation::AttributesForgotten => "creat a\nfsync a\nchmod a 600\nfsync a",
        _ => "creat a\nsync\nchmod a 600\nfsync a",
    }
}

/// A log of many blocks, and a commit that needs about as many.
const REUSING_COMMIT: &str = "mkdir d\nsync\ncreat d/a\nwrite d/a 0 30000\nfsync d/a\n\
    creat d/b\nwrite d/b 0 30000\nfsync d/b\n\
    creat d/c\nwrite d/c 0 30000\nfsync d/c\ncreat d/e\nwrite d/e 0 30000\nfsync d/e\nsync\ncreat d/f\nfsync d/f\nsync";

fn states() -> u64 {
    let number = std::env::var("SPINNEY_STATES").ok().and_then(|value| value.parse().ok());
    number.unwrap_or(3000)
}

/// The first state that breaks a promise, and how many were judged.
fn explore(workload: &Workload) -> Result<(Option<Failure>, u64)> {
    match workload {
        InPlace => in_place(),
        Overlapping => overlapping(),
        Steps(text) => explore_text(Arc::new(btrfs_crash::Btrfs), text),
    }
}

fn explore_text(format: Arc<dyn Format>, text: &str) -> Result<(Option<Failure>, u64)> {
    let config = Config { states: states(), failures_max: 1, ..Config::new(format) };
    // The steps that follow make states in which the last sync of the text has returned.
    let text = format!("{text}\ncreat zz\nwrite zz 0 5000\nfsync zz");
    let steps: Vec<Step> = parse(text.as_bytes())?.into_iter().map(|(_, step)| step).collect();
    let report = explore_steps(&config, &[], &steps)?;
    Ok((report.failures.into_iter().next(), report.states))
}

/// Overwrites a file on a volume without copy on write: no item changes, so the log has nothing to record, and only a
/// flush makes the bytes durable.
fn in_place() -> Result<(Option<Failure>, u64)> {
    let device = Arc::new(RecordingDevice::new(made()?));
    let volume = Volume::options().nodatacow(true).open_device(Arc::<RecordingDevice>::clone(&device))?;
    let file = FileOptions::new().read(true).write(true).create(true).open(&volume, "a")?;
    file.write_at(&[1; LEN], 0)?;
    volume.sync()?;
    file.write_at(&[2; LEN], 0)?;
    file.sync_data()?;
    judge(&device, device.event_count(), "a", "in-place", "write, sync, write in place, fdatasync")
}

/// Syncs two files at once. The second sync begins while the device flushes for the first one; it must not return
/// before its own data is durable, too.
fn overlapping() -> Result<(Option<Failure>, u64)> {
    let device = Arc::new(RecordingDevice::new(made()?));
    let held = Arc::new(HeldDevice::new(Arc::clone(&device)));
    let volume = Volume::options().open_device(Arc::<HeldDevice>::clone(&held))?;
    let open = |path: &str| FileOptions::new().read(true).write(true).create(true).open(&volume, path);
    let (first, second) = (open("a")?, open("b")?);
    volume.sync()?;
    first.write_at(&[1; LEN], 0)?;
    second.write_at(&[2; LEN], 0)?;
    held.hold();
    let (sender, returned) = channel();
    let events = thread::scope(|scope| {
        let leads = scope.spawn(|| first.sync_all());
        held.await_flush();
        scope.spawn(move || sender.send(second.sync_all()));
        let early = returned.recv_timeout(WAITS_AFTER);
        let events_then = device.event_count();
        held.release();
        leads.join().map_err(|_| anyhow!("the first sync panicked"))??;
        let Ok(result) = early else {
            returned.recv()??;
            return Ok(device.event_count());
        };
        result?;
        anyhow::Ok(events_then)
    })?;
    judge(&device, events, "b", "overlapping", "write a, write b, fsync a; while it flushes: fsync b")
}

const LEN: usize = 16384;

/// A volume without files.
fn made() -> Result<MemoryDevice> {
    let make = MakeOptions { size: Some(128 << 20), ..MakeOptions::default() };
    let device = Arc::new(MemoryDevice::new(128 << 20));
    Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?.close()?;
    Ok(device.duplicate())
}

/// Whether the data synced to `path`, all of it the byte 2, is there after a crash.
fn judge(
    device: &RecordingDevice,
    events: usize,
    path: &str,
    name: &str,
    story: &str,
) -> Result<(Option<Failure>, u64)> {
    let mut random = Random::new(1);
    for state in 0..50 {
        let image = Arc::new(device.crash_after(events, &mut random)?);
        let volume = Volume::options().open_device(image)?;
        if volume.read(path)? != [2; LEN] {
            let reason = format!("{path}: its contents are not those of the sync that returned");
            let state_name = format!("{name}/drawn-{state}");
            return Ok((Some(Failure { state: state_name, reason, story: story.to_owned(), image: None }), state));
        }
    }
    Ok((None, 50))
}

/// A device whose flushes can be delayed.
#[derive(Debug)]
struct HeldDevice {
    inner: Arc<RecordingDevice>,
    state: parking_lot::Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    /// Whether flushes wait.
    holds: bool,
    /// Whether one does.
    is_reached: bool,
}

impl HeldDevice {
    fn new(inner: Arc<RecordingDevice>) -> Self {
        Self { inner, state: parking_lot::Mutex::default(), changed: Condvar::new() }
    }

    fn hold(&self) {
        self.state.lock().holds = true;
    }

    fn await_flush(&self) {
        self.changed.wait_while_for(&mut self.state.lock(), |state| !state.is_reached, WAITS_AFTER);
    }

    fn release(&self) {
        self.state.lock().holds = false;
        self.changed.notify_all();
    }
}

impl Device for HeldDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.inner.write_at(offset, parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        let mut state = self.state.lock();
        state.is_reached |= state.holds;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.holds);
        drop(state);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.inner.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.inner.grow(size_bytes)
    }
}

/// Makes mistakes one after the other; returns those that the tests do not find.
fn find<M: Copy + std::fmt::Debug>(
    mistakes: &[M],
    explore: impl Fn(M) -> Result<(Option<Failure>, u64)>,
) -> Vec<String> {
    let mut missed = Vec::new();
    let only = std::env::var("SPINNEY_MUTATION").ok();
    let is_chosen = |mistake: &&M| only.as_ref().is_none_or(|only| format!("{mistake:?}") == *only);
    for mistake in mistakes.iter().filter(is_chosen) {
        let start = Instant::now();
        let found = explore(*mistake);
        let took = start.elapsed();
        match found {
            Ok((Some(failure), states)) if took < FOUND_WITHIN => {
                let Failure { state, reason, .. } = failure;
                eprintln!("{mistake:?}: found at {state} ({states} states, {took:.1?}): {reason}");
            }
            Ok((Some(_), _)) => missed.push(format!("{mistake:?}: found after {took:.1?} only")),
            Ok((None, states)) => missed.push(format!("{mistake:?}: not found in {states} states, {took:.1?}")),
            Err(error) => missed.push(format!("{mistake:?}: {error:#}")),
        }
    }
    missed
}

#[test]
fn every_mistake_is_found() {
    let _one = ONE_AT_A_TIME.lock();
    let missed = find(&Mutation::ALL, |mutation| {
        mutate(Some(mutation));
        let found = explore(&workload(mutation));
        mutate(None);
        found
    });
    if !missed.is_empty() {
        panic!("{}", missed.join("\n"));
    }
}

#[test]
fn every_mistake_below_the_engine_is_found() {
    let _one = ONE_AT_A_TIME.lock();
    let missed = find(&Planted::ALL, |planted| explore_text(Arc::new(PlantedBtrfs(planted)), planted.steps()));
    if !missed.is_empty() {
        panic!("{}", missed.join("\n"));
    }
}

#[test]
fn without_a_mistake_nothing_is_found() -> Result<()> {
    let _one = ONE_AT_A_TIME.lock();
    let mut states = 0;
    for mutation in Mutation::ALL {
        let (failure, judged) = explore(&workload(mutation)).with_context(|| format!("{mutation:?}"))?;
        if let Some(failure) = failure {
            let Failure { state, reason, story, .. } = failure;
            panic!("{mutation:?}: without it, {state} breaks a promise: {reason}\n{story}");
        }
        states += judged;
    }
    for planted in Planted::ALL {
        let (failure, judged) = explore_text(Arc::new(btrfs_crash::Btrfs), planted.steps())?;
        assert!(failure.is_none(), "{planted:?}: {failure:?}");
        states += judged;
    }
    eprintln!("no mistake, no failure: {states} states");
    ensure!(states > 0, "nothing was explored");
    Ok(())
}
