//! Do the crash tests find mistakes? Each deliberate bug of `ablation::Mutation` is made in turn, and a workload that
//! meets it is explored: some state has to break a promise. Without a bug none does.
//!
//! `cargo test --release -p testkit --features ablation --test mutations -- --nocapture` prints for each mistake which
//! state of which workload shows it, and which promise it breaks. `SPINNEY_STATES` (default 3000) bounds the states
//! of a workload, `SPINNEY_MUTATION` names the only mistake that is made.

#![cfg(feature = "ablation")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use blockdev::backends::MemoryDevice;
use spinney::ablation::{Mutation, mutate};
use spinney::{FileOptions, MakeOptions, Volume};
use testkit::Random;
use testkit::crash::{Config, Failure, Step, explore_all, explore_steps, parse};
use testkit::faults::RecordingDevice;

/// A mistake has to be found within this time.
const FOUND_WITHIN: Duration = Duration::from_secs(20);

/// The mistake is one for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Where a mistake shows.
enum Workload {
    /// Operations, one a line.
    Steps(&'static str),
    /// Workloads of this name.
    Named(&'static str),
    /// A file that is overwritten in place and synced.
    InPlace,
}

use Workload::{InPlace, Named, Steps};

/// What meets a mistake.
fn workload(mutation: Mutation) -> Workload {
    Steps(match mutation {
        Mutation::NoFlushBeforeSuperblock | Mutation::NoFlushAfterSuperblock | Mutation::LeavesAfterSuperblock => {
            "creat a\nwrite a 0 9000\nfsync a\ncreat b\nwrite b 0 9000\nfsync b"
        }
        Mutation::StaleLogRoot => "creat a\nfsync a\ncreat b\nwrite b 0 5000\nfsync b\nwrite a 0 5000\nfsync a",
        Mutation::LogBlocksEditedInPlace => "creat a\nwrite a 0 9000\nfsync a\nwrite a 4096 9000\nfsync a",
        Mutation::LogBlocksFreedEarly => REUSING_COMMIT,
        Mutation::FreedDataReused => {
            // The only group for data, of 8 MiB, has no room for `b` but where `a` was.
            "creat f\nwrite f 0 6200000\ncreat a\ncreat b\nsync\nwrite a 0 1000000\nfsync a\ndwrite a 0 1000000\n\
             dwrite b 0 1000000"
        }
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
        Mutation::NoNewName => "creat a\nwrite a 0 5000\nfsync a\nlink a b\nfsync a",
        Mutation::NoCsums => "creat a\nwrite a 0 20000\nfsync a",
        Mutation::NoHoles => "creat a\nwrite a 0 65536\nsync\nfalloc a 8192 16384 punch\nfsync a",
        Mutation::SizeTooLarge => "creat a\nwrite a 0 5000\nfsync a",
        Mutation::SizeForgotten => "creat a\ntruncate a 1000000\nsync\ntruncate a 500000\nfdatasync a",
        Mutation::ExtentsForgotten => "creat a\nwrite a 0 20000\nsync\nwrite a 0 8192\nfdatasync a",
        Mutation::GroupNotAwaited => return Named("threads-"),
        other => return Steps(with_attributes(other)),
    })
}

/// What meets a mistake with attributes.
fn with_attributes(mutation: Mutation) -> &'static str {
    match mutation {
        Mutation::LoggedOwnerWrong => "creat a\nsync\nchown a 7 8\nfsync a",
        Mutation::LoggedTimesZero => "creat a\nsync\nutimes a 5 7\nfsync a",
        Mutation::LoggedFlagsZero => "creat a\nsync\nchattr a =d\nfsync a",
        Mutation::CommittedTimesZero => "creat a\nutimes a 5 7\nsync",
        Mutation::CommittedFlagsZero => "mkdir a\nchattr a =A\nsync",
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
    let config = Config { states: states(), failures_max: 1, ..Config::default() };
    let report = match workload {
        InPlace => return in_place(),
        Named(name) => explore_all(&Config { workload: Some((*name).to_owned()), ..config })?,
        Steps(text) => {
            // What follows makes states in which the last sync of the text has returned.
            let text = format!("{text}\ncreat zz\nwrite zz 0 5000\nfsync zz");
            let steps: Vec<Step> = parse(text.as_bytes())?.into_iter().map(|(_, step)| step).collect();
            explore_steps(&config, &[], &steps)?
        }
    };
    Ok((report.failures.into_iter().next(), report.states))
}

/// A file of a volume without copies on write is overwritten: no item changes, so the log has nothing to say, and what
/// makes the bytes durable is a flush.
fn in_place() -> Result<(Option<Failure>, u64)> {
    const LEN: usize = 16384;
    let device = MemoryDevice::new(128 << 20);
    let make = MakeOptions { size: Some(128 << 20), ..MakeOptions::default() };
    let device = Arc::new(device);
    Volume::options().make_device(Arc::<MemoryDevice>::clone(&device), &make)?.close()?;
    let device = Arc::new(RecordingDevice::new(device.duplicate()));
    let volume = Volume::options().nodatacow(true).open_device(Arc::<RecordingDevice>::clone(&device))?;
    let file = FileOptions::new().read(true).write(true).create(true).open(&volume, "a")?;
    file.write_at(&[1; LEN], 0)?;
    volume.sync()?;
    file.write_at(&[2; LEN], 0)?;
    file.sync_data()?;
    let (events, mut random) = (device.event_count(), Random::new(1));
    for state in 0..50 {
        let image = Arc::new(device.crash_after(events, &mut random)?);
        let volume = Volume::options().open_device(image)?;
        if volume.read("a")? != [2; LEN] {
            let reason = "a: its contents are not those of the fdatasync that returned".to_owned();
            let story = "write, sync, write in place, fdatasync".to_owned();
            return Ok((Some(Failure { state: format!("in-place/drawn-{state}"), reason, story, image: None }), state));
        }
    }
    Ok((None, 50))
}

/// Makes mistakes one after the other; returns what is wrong with the tests.
fn find(mutations: &[Mutation]) -> Vec<String> {
    let mut missed = Vec::new();
    let only = std::env::var("SPINNEY_MUTATION").ok();
    let is_chosen = |mutation: &&Mutation| only.as_ref().is_none_or(|only| format!("{mutation:?}") == *only);
    for mutation in mutations.iter().filter(is_chosen) {
        let workload = workload(*mutation);
        let start = Instant::now();
        mutate(Some(*mutation));
        let found = explore(&workload);
        mutate(None);
        let took = start.elapsed();
        match found {
            Ok((Some(failure), states)) if took < FOUND_WITHIN => {
                let Failure { state, reason, .. } = failure;
                eprintln!("{mutation:?}: found at {state} ({states} states, {took:.1?}): {reason}");
            }
            Ok((Some(_), _)) => missed.push(format!("{mutation:?}: found after {took:.1?} only")),
            Ok((None, states)) => missed.push(format!("{mutation:?}: not found in {states} states, {took:.1?}")),
            Err(error) => missed.push(format!("{mutation:?}: {error:#}")),
        }
    }
    missed
}

#[test]
fn every_mistake_is_found() {
    let _one = ONE_AT_A_TIME.lock();
    let missed = find(&Mutation::ALL);
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
    eprintln!("no mistake, no failure: {states} states");
    ensure!(states > 0, "nothing was explored");
    Ok(())
}
