//! Runs workloads, makes the states that a power cut can leave of each, and judges them. Called by `plan` and
//! `fault_runs`.

use super::compare::broken;
use super::cuts::{Chosen, Cut, choose, moments, named, systematic};
use super::image::{Image, ImageDevice};
use super::oracle::Oracle;
use super::recording::Recording;
use super::script::Script;
use super::state::Found;
use super::tape::TapeDevice;
use super::workload::{Workload, story};
use super::{Access, Config, Failure, Form, Judgement, Report};
use crate::Random;
use crate::number::{to_u64, to_usize};
use anyhow::{Context, Result};
use blockdev::Device;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of one replay in so many the power is cut as well, in so many ways.
const CUT_REPLAY_EVERY: u64 = 16;
const REPLAY_CUTS: u64 = 10;
/// One state in so many is also changed, to see that it can be, and checked before and after that.
const CHANGE_EVERY: u64 = 8;
/// Of ten states of a workload, how many at least are drawn ones.
const DRAWN_TENTHS: u64 = 2;
/// File that is made where a state is changed.
const PROBE: &str = "/after-the-crash";
const PROBE_BYTES: usize = 20_000;

thread_local! {
    /// The state or workload that this thread works on.
    static CURRENT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The state or workload that the calling thread works on: for a panic's message, where a panic ends the program.
#[must_use]
pub fn current_state() -> Option<String> {
    let current = CURRENT.try_with(|current| current.borrow().clone()).ok()?;
    Some(current).filter(|current| !current.is_empty())
}

fn set_current(name: &str) {
    CURRENT.with(|current| name.clone_into(&mut current.borrow_mut()));
}

/// State shared by the exploring threads.
pub(super) struct Explorer<'a> {
    pub(super) config: &'a Config,
    bases: Mutex<BTreeMap<Form, Arc<dyn Device>>>,
    /// Hashes of the images that were judged, each with how much was promised when: the same image
    /// may be legal before a sync returns, and a loss after it.
    seen: Mutex<HashSet<(u64, usize)>>,
    counts: Counts,
    failures: Mutex<Vec<Failure>>,
}

#[derive(Default)]
struct Counts {
    workloads: AtomicU64,
    states: AtomicU64,
    again: AtomicU64,
    replayed: AtomicU64,
    changed: AtomicU64,
    replays_cut: AtomicU64,
    judged: AtomicU64,
    skipped: AtomicU64,
    failures: AtomicU64,
}

/// A recording whose states are explored.
struct Subject<'a> {
    name: &'a str,
    form: Form,
    recording: &'a Recording,
    /// Judges the states instead of the oracle.
    script: Option<&'a dyn Script>,
}

impl<'a> Explorer<'a> {
    pub(super) fn new(config: &'a Config) -> Self {
        Self {
            config,
            bases: Mutex::default(),
            seen: Mutex::default(),
            counts: Counts::default(),
            failures: Mutex::default(),
        }
    }

    pub(super) fn report(self) -> Report {
        let counts = &self.counts;
        Report {
            workloads: counts.workloads.load(Relaxed),
            states: counts.states.load(Relaxed),
            again: counts.again.load(Relaxed),
            replayed: counts.replayed.load(Relaxed),
            changed: counts.changed.load(Relaxed),
            replays_cut: counts.replays_cut.load(Relaxed),
            judged: counts.judged.load(Relaxed),
            skipped: counts.skipped.load(Relaxed),
            failure_count: counts.failures.load(Relaxed),
            failures: self.failures.into_inner(),
        }
    }

    /// States so far, each counted once.
    pub(super) fn states(&self) -> u64 {
        self.counts.states.load(Relaxed)
    }

    pub(super) fn is_to_stop(&self) -> bool {
        self.counts.failures.load(Relaxed) >= self.config.failures_max
    }

    pub(super) fn base(&self, form: Form) -> Result<Arc<dyn Device>> {
        let form = self.config.format.base(form);
        let mut bases = self.bases.lock();
        if let Some(base) = bases.get(&form) {
            return Ok(Arc::clone(base));
        }
        let base = self.config.format.make(form)?;
        bases.insert(form, Arc::clone(&base));
        Ok(base)
    }

    /// Runs a workload and judges about `budget` of its states. A workload that cannot be run is a failure as well.
    pub(super) fn workload(&self, workload: &Workload, budget: u64) {
        self.counts.workloads.fetch_add(1, Relaxed);
        set_current(&workload.name);
        let record = || -> Result<Recording> { workload.record(&*self.config.format, &self.base(workload.form)?) };
        match catch_unwind(AssertUnwindSafe(record)).unwrap_or_else(|_| anyhow::bail!("panicked")) {
            Ok(recording) => {
                self.recording(&workload.name, workload.form, &recording, budget, 1);
            }
            Err(error) => {
                let steps = workload.threads.iter().flatten().map(|step| format!("  {step}")).collect::<Vec<_>>();
                self.fail(&workload.name, &error, steps.join("\n"), None);
            }
        }
        if let Some(progress) = &self.config.progress {
            progress.workloads.fetch_add(1, Relaxed);
        }
    }

    /// Judges about `budget` states of a recording, with so many threads.
    pub(super) fn recording(&self, name: &str, form: Form, recording: &Recording, budget: u64, threads: usize) {
        self.subject(&Subject { name, form, recording, script: None }, budget, threads);
    }

    /// Judges about `budget` states that a script leaves.
    pub(super) fn script(&self, script: &dyn Script, recording: &Recording, budget: u64) {
        let subject = Subject { name: script.name(), form: script.form(), recording, script: Some(script) };
        self.subject(&subject, budget, self.config.thread_count());
    }

    fn subject(&self, subject: &Subject<'_>, budget: u64, threads: usize) {
        let (name, recording) = (subject.name, subject.recording);
        let own_seed = name.bytes().fold(self.config.seed, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
        if let Some(state) = &self.config.state {
            match named(&recording.tape, &recording.epochs, recording.first, state) {
                Some(cut) => drop(self.state(subject, cut, own_seed)),
                None => self.fail(name, &anyhow::anyhow!("has no state {state}"), String::new(), None),
            }
            return;
        }
        let cuts = plan(recording, budget, own_seed);
        let next = AtomicU64::new(0);
        let mut own = to_u64(cuts.len());
        let drawn_end = own.saturating_add(budget.saturating_mul(2)).saturating_add(8);
        own = own.min(budget.max(1) * 4);
        let fresh = AtomicU64::new(0);
        let worker = || {
            loop {
                let index = next.fetch_add(1, Relaxed);
                let cut = match cuts.get(to_usize(index)) {
                    Some(cut) => *cut,
                    None if index < drawn_end && fresh.load(Relaxed) < budget => Cut::Drawn(index - own.min(index)),
                    None => return,
                };
                if self.is_to_stop() {
                    return;
                }
                fresh.fetch_add(u64::from(self.state(subject, cut, own_seed)), Relaxed);
            }
        };
        if threads <= 1 {
            return worker();
        }
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker))));
    }

    /// Judges one state; true when it is one that was not seen before.
    fn state(&self, subject: &Subject<'_>, cut: Cut, seed: u64) -> bool {
        let recording = subject.recording;
        let chosen = choose(&recording.tape, &recording.epochs, recording.first, cut, seed);
        let Some(chosen) = chosen else { return false };
        let Some((_, latest)) = moments(&recording.tape, &recording.epochs, &chosen) else { return false };
        let promises = recording.oracle.promise_count(latest.max(recording.first));
        let is_new = self.seen.lock().insert((recording.hash(&chosen), promises));
        if !is_new && self.config.state.is_none() {
            self.counts.again.fetch_add(1, Relaxed);
            return false;
        }
        let number = self.counts.states.fetch_add(1, Relaxed);
        if let Some(progress) = &self.config.progress {
            progress.states.fetch_add(1, Relaxed);
        }
        let id = format!("{}/{cut}", subject.name);
        set_current(&id);
        let judge = || self.judge(subject, &chosen, number, &id);
        let judged = catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|_| anyhow::bail!("panicked"));
        if let Err(error) = judged {
            self.fail(&id, &error, story(recording, &chosen), recording.image(&chosen).ok());
        }
        true
    }

    fn judge(&self, subject: &Subject<'_>, chosen: &Chosen, number: u64, id: &str) -> Result<()> {
        match subject.script {
            Some(script) => self.judge_by(script, subject, chosen)?,
            None => self.judge_by_oracle(subject, chosen, number)?,
        }
        match &self.config.witness {
            Some(witness) if number.is_multiple_of(self.config.judge_every.max(1)) => {
                let image = Arc::new(ImageDevice::new(subject.recording.image(chosen)?));
                match witness.judge(id, image)? {
                    Judgement::Agrees => self.counts.judged.fetch_add(1, Relaxed),
                    Judgement::CannotSay => self.counts.skipped.fetch_add(1, Relaxed),
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A script's state, for the earliest and for the latest moment that leaves it.
    fn judge_by(&self, script: &dyn Script, subject: &Subject<'_>, chosen: &Chosen) -> Result<()> {
        let recording = subject.recording;
        let (earliest, latest) = moments(&recording.tape, &recording.epochs, chosen).context("no such epoch")?;
        let mut promised =
            [earliest, latest].map(|now| recording.oracle.promise_count(now.max(recording.first))).to_vec();
        promised.dedup();
        for promised in promised {
            let device: Arc<dyn Device> = Arc::new(ImageDevice::new(recording.image(chosen)?));
            script.judge(device, promised).with_context(|| format!("after promise {promised}"))?;
        }
        Ok(())
    }

    fn judge_by_oracle(&self, subject: &Subject<'_>, chosen: &Chosen, number: u64) -> Result<()> {
        let recording = subject.recording;
        let image = recording.image(chosen)?;
        let device = Arc::new(ImageDevice::new(image));
        let open = |access| self.config.format.open_state(subject.form, Arc::<ImageDevice>::clone(&device), access);
        let had_log = self.config.format.has_log(&*device);
        let mut volume = open(Access::ReadWrite).context("cannot be opened")?;
        if had_log {
            self.counts.replayed.fetch_add(1, Relaxed);
            // Reads the data written by the replay, not the volume's memory.
            volume.close().context("cannot be closed after the replay")?;
            volume = open(Access::ReadOnly).context("cannot be opened again")?;
        }
        let found = Found::read(&volume, &recording.oracle).context("cannot be read")?;
        if had_log {
            self.no_inode_is_lost(&*device, &found)?;
        }
        let (earliest, latest) = moments(&recording.tape, &recording.epochs, chosen).context("no such epoch")?;
        let mut times = vec![earliest.max(recording.first), latest.max(recording.first)];
        times.dedup();
        for now in times {
            let floors = recording.promised(chosen, now);
            if let Some(reason) = broken(&recording.oracle, &found, &floors, now) {
                anyhow::bail!("{reason}");
            }
        }
        drop(volume);
        if had_log && number.is_multiple_of(CUT_REPLAY_EVERY) {
            self.cut_replay(recording.image(chosen)?, subject.form, &recording.oracle, &found)?;
        }
        if number.is_multiple_of(CHANGE_EVERY) {
            self.counts.changed.fetch_add(1, Relaxed);
            let as_it_was = ImageDevice::new(recording.image(chosen)?);
            self.config.format.check(&as_it_was).context("as it was found")?;
            change(&open).context("cannot be changed")?;
            self.config.format.check(&*device).context("after it was changed")?;
        }
        Ok(())
    }

    /// Cuts the power while a log is replayed: the next replay must give the same result.
    fn cut_replay(&self, image: Image, form: Form, oracle: &Oracle, expected: &Found) -> Result<()> {
        let format = &self.config.format;
        let device = Arc::new(TapeDevice::new(image.clone()));
        format.open_state(form, Arc::<TapeDevice>::clone(&device), Access::ReadWrite)?.close()?;
        let replay = Recording::new(image, device.tape(), Oracle::default(), Vec::new(), 0, 0)?;
        for cut in plan(&replay, REPLAY_CUTS, self.config.seed) {
            let Some(chosen) = choose(&replay.tape, &replay.epochs, 0, cut, self.config.seed) else { continue };
            let context = || format!("after a cut in the replay ({cut})");
            let device = Arc::new(ImageDevice::new(replay.image(&chosen)?));
            let open = |access| format.open_state(form, Arc::<ImageDevice>::clone(&device), access);
            open(Access::ReadWrite).and_then(|volume| Ok(volume.close()?)).with_context(context)?;
            let volume = open(Access::ReadOnly).with_context(context)?;
            let found = Found::read(&volume, oracle).with_context(context)?;
            anyhow::ensure!(found == *expected, "{}: differs from the result of the whole replay", context());
            self.no_inode_is_lost(&*device, &found).with_context(context)?;
            self.counts.replays_cut.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Inodes without names are removed once a volume was opened and closed.
    fn no_inode_is_lost(&self, device: &dyn Device, found: &Found) -> Result<()> {
        let Some(counted) = self.config.format.inode_count(device)? else { return Ok(()) };
        let named = found.inode_count();
        anyhow::ensure!(counted == named, "{counted} inodes are counted, and names lead to {named}");
        Ok(())
    }

    pub(super) fn fail(&self, id: &str, error: &anyhow::Error, story: String, image: Option<Image>) {
        let number = self.counts.failures.fetch_add(1, Relaxed);
        if let Some(progress) = &self.config.progress {
            progress.failures.fetch_add(1, Relaxed);
        }
        if number >= self.config.failures_max {
            return;
        }
        let reason = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let mut failure = Failure { state: id.to_owned(), reason, story, image: None };
        match self.keep(&failure, image) {
            Ok(path) => failure.image = path,
            Err(error) => failure.reason.push_str(&format!(" (the image could not be kept: {error:#})")),
        }
        self.failures.lock().push(failure);
    }

    /// Saves the image of a failure, and its text beside it.
    fn keep(&self, failure: &Failure, image: Option<Image>) -> Result<Option<PathBuf>> {
        let (Some(folder), Some(image)) = (&self.config.keep, image) else { return Ok(None) };
        std::fs::create_dir_all(folder)?;
        let plain = |c: char| if c.is_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = failure.state.chars().map(plain).collect();
        let path = folder.join(format!("{name}.img"));
        crate::store_device(&ImageDevice::new(image), &path)?;
        let text = format!("{} (seed {})\n{}\n\n{}\n", failure.state, self.config.seed, failure.reason, failure.story);
        std::fs::write(path.with_extension("txt"), text)?;
        Ok(Some(path))
    }
}

/// The states that are named, as many as the budget allows, those of epochs' ends always.
fn plan(recording: &Recording, budget: u64, seed: u64) -> Vec<Cut> {
    let (mut cuts, mut others) = systematic(&recording.tape, &recording.epochs, recording.first);
    let named = to_usize(budget - budget * DRAWN_TENTHS / 10);
    if others.len() > named {
        let mut random = Random::new(seed);
        for index in (1..others.len()).rev() {
            others.swap(index, random.index(index + 1));
        }
        others.truncate(named.saturating_sub(cuts.len()));
    }
    cuts.append(&mut others);
    cuts
}

/// A state that was opened can be worked with.
fn change(open: &dyn Fn(Access) -> Result<vfs::Volume>) -> Result<()> {
    let volume = open(Access::ReadWrite)?;
    let data = vec![0x5a; PROBE_BYTES];
    volume.write(PROBE, &data)?;
    volume.close()?;
    anyhow::ensure!(open(Access::ReadOnly)?.read(PROBE)? == data, "the written data differs");
    Ok(())
}
