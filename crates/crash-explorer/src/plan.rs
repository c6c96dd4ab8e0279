//! Decides which workloads are run, and how many states of each are looked at, and runs them with `explore`. Called
//! through the functions of the crate: by `spinney verify-crash`, `cargo trials crash-explore` and tests.

use super::ace::{ones, threes, twos};
use super::explore::Explorer;
use super::image::Image;
use super::programs::program;
use super::random_workloads::{crowd, nameless, wander};
use super::recording::Recording;
use super::script::{Promises, Script};
use super::step::Step;
use super::tape::TapeDevice;
use super::workload::{Workload, record_given, salt};
use super::{Config, Form, Report};
use crate::Random;
use crate::number::to_u64;
use anyhow::{Context as _, Result};
use blockdev::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A class of workloads: its share of the states in hundredths, and how many of a workload at least.
struct Share {
    hundredths: u64,
    states_min: u64,
}

const ONES: Share = Share { hundredths: 20, states_min: 4 };
const TWOS: Share = Share { hundredths: 30, states_min: 12 };
const THREES: Share = Share { hundredths: 8, states_min: 20 };
const WANDERING: Share = Share { hundredths: 10, states_min: 60 };
const PROGRAMS: Share = Share { hundredths: 20, states_min: 60 };
const NAMELESS: Share = Share { hundredths: 6, states_min: 40 };
const CROWDS: Share = Share { hundredths: 6, states_min: 100 };
/// More states of one workload bring little new.
const STATES_MAX: u64 = 1000;
/// Workloads that are drawn without end, where those that are planned have too few states.
const EXTRA_FROM: u64 = 1_000_000;
/// A format that can do none of so many has none.
const EXTRA_END: u64 = 3_000_000;

/// Explores the workloads that [`Config`] asks for.
///
/// # Errors
/// When there is no such workload. States that are wrong are in the report.
pub fn explore_all(config: &Config) -> Result<Report> {
    let plan = plan(config);
    anyhow::ensure!(!plan.is_empty(), "no workload has the name {}", config.workload.as_deref().unwrap_or(""));
    let explorer = Explorer::new(config);
    let next = AtomicUsize::new(0);
    let worker = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let extra = EXTRA_FROM + to_u64(index);
            let is_open = config.workload.is_none() && explorer.states() < config.states;
            match plan.get(index) {
                _ if explorer.is_to_stop() => return,
                Some((workload, budget)) => explorer.workload(workload, *budget),
                None if is_open && extra < EXTRA_END => {
                    let draw = if extra.is_multiple_of(2) { program } else { wander };
                    let workload = draw(config.seed, extra);
                    if workload.is_for(&*config.format) {
                        explorer.workload(&workload, STATES_MAX / 4);
                    }
                }
                None => return,
            }
        }
    };
    let threads = config.thread_count();
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(worker))));
    Ok(explorer.report())
}

/// Explores a workload on a copy of a volume that exists, which is never written to.
///
/// # Errors
/// When the workload cannot be run there. States that are wrong are in the report.
pub fn explore_given(config: &Config, device: &Arc<dyn Device>, steps: &[(usize, Step)]) -> Result<Report> {
    let recording = record_given(&*config.format, device, steps)?;
    let explorer = Explorer::new(config);
    explorer.recording("workload", Form::Small, &recording, config.states, config.thread_count());
    let mut report = explorer.report();
    report.workloads = 1;
    Ok(report)
}

/// Explores a script: about [`Config::states`] of its states.
///
/// # Errors
/// Where its volume cannot be made or prepared, or it cannot be run. States that are wrong are in the report.
pub fn explore_script(config: &Config, script: &dyn Script) -> Result<Report> {
    let start = Image::new(config.format.make(script.form())?);
    let device = Arc::new(TapeDevice::new(start.clone()));
    script.prepare(Arc::<TapeDevice>::clone(&device)).with_context(|| format!("{}: preparing", script.name()))?;
    let first = device.now();
    let promises = Promises::new(&device);
    script.run(Arc::<TapeDevice>::clone(&device), &promises).with_context(|| script.name().to_owned())?;
    let oracle = promises.into_oracle();
    anyhow::ensure!(oracle.promise_count(u64::MAX) > 0, "{} promises nothing", script.name());
    let recording =
        Recording::new(start, device.tape(), oracle, Vec::new(), salt(&*config.format, script.form()), first)?;
    let explorer = Explorer::new(config);
    explorer.script(script, &recording, config.states);
    let mut report = explorer.report();
    report.workloads = 1;
    Ok(report)
}

/// Explores one sequence of operations on an empty volume; with `before`, on one where that was done before it was
/// opened.
///
/// # Errors
/// None so far: a sequence that cannot be run is a failure in the report.
pub fn explore_steps(config: &Config, before: &[Step], steps: &[Step]) -> Result<Report> {
    let (setup, threads) = (before.to_vec(), vec![steps.to_vec()]);
    let workload = Workload { name: "given".to_owned(), form: Form::Small, setup, threads };
    let explorer = Explorer::new(config);
    explorer.workload(&workload, config.states);
    Ok(explorer.report())
}

/// The shortest sequence that is found by leaving out operations while a state is still wrong for the same reason;
/// inode numbers may differ.
///
/// # Errors
/// None so far.
pub fn shrink(config: &Config, steps: &[Step]) -> Result<Vec<Step>> {
    let one = Config { failures_max: 1, keep: None, witness: None, progress: None, ..config.clone() };
    let kind_of = |steps: &[Step]| -> Result<Option<String>> {
        let report = explore_steps(&one, &[], steps)?;
        let reason = report.failures.into_iter().next().filter(|failure| failure.state.contains('/'));
        Ok(reason.map(|failure| failure.reason.replace(|c: char| c.is_ascii_digit(), "")))
    };
    let mut kept = steps.to_vec();
    let kind = kind_of(&kept)?;
    let mut is_shorter = kind.is_some();
    while is_shorter {
        is_shorter = false;
        for index in (0..kept.len()).rev() {
            let mut fewer = kept.clone();
            fewer.remove(index);
            if kind_of(&fewer)? == kind {
                (kept, is_shorter) = (fewer, true);
            }
        }
    }
    Ok(kept)
}

/// Workloads, and states of each.
fn plan(config: &Config) -> Vec<(Workload, u64)> {
    let seed = config.seed;
    let drawn = |share: &Share| (config.states * share.hundredths / 100).div_ceil(share.states_min * 3).max(1);
    let classes = [
        (ONES, ones()),
        (TWOS, twos(seed)),
        (THREES, threes(seed, drawn(&THREES))),
        (WANDERING, (0..drawn(&WANDERING)).map(|number| wander(seed, number)).collect()),
        (PROGRAMS, (0..drawn(&PROGRAMS)).map(|number| program(seed, number)).collect()),
        (NAMELESS, (0..drawn(&NAMELESS)).map(|number| nameless(seed, number)).collect()),
        (CROWDS, (0..drawn(&CROWDS)).map(|number| crowd(seed, number)).collect()),
    ];
    if let Some(prefix) = &config.workload {
        return chosen(config, classes, prefix);
    }
    let mut all = Vec::new();
    for (share, mut workloads) in classes {
        workloads.retain(|workload| workload.is_for(&*config.format));
        let states = config.states * share.hundredths / 100;
        let count = states / share.states_min;
        shuffle(&mut workloads, seed);
        workloads.truncate(usize::try_from(count.max(1)).unwrap_or(usize::MAX));
        let budget = (states / to_u64(workloads.len()).max(1)).clamp(share.states_min, STATES_MAX);
        all.extend(workloads.into_iter().map(|workload| (workload, budget)));
    }
    // Long ones are mixed with short ones, so that all processors end together.
    shuffle(&mut all, seed);
    all
}

fn chosen(config: &Config, classes: [(Share, Vec<Workload>); 7], prefix: &str) -> Vec<(Workload, u64)> {
    let is_one = |name: &str| name == prefix || name.starts_with(prefix) && !prefix.ends_with(char::is_numeric);
    let mut all: Vec<Workload> = classes.into_iter().flat_map(|(_, workloads)| workloads).collect();
    all.retain(|workload| is_one(&workload.name));
    if all.is_empty() {
        let number = |kind: &str| prefix.strip_prefix(kind).and_then(|number| number.parse().ok());
        all.extend(number("random-").map(|number| wander(config.seed, number)));
        all.extend(number("program-").map(|number| program(config.seed, number)));
        all.extend(number("nameless-").map(|number| nameless(config.seed, number)));
        all.extend(number("threads-").map(|number| crowd(config.seed, number)));
        all.extend(number("ace3-").and_then(|number: u64| threes(config.seed, number + 1).pop()));
    }
    let budget = (config.states / to_u64(all.len()).max(1)).max(1);
    all.into_iter().map(|workload| (workload, budget)).collect()
}

fn shuffle<T>(list: &mut [T], seed: u64) {
    let mut random = Random::new(seed);
    for index in (1..list.len()).rev() {
        list.swap(index, random.index(index + 1));
    }
}
