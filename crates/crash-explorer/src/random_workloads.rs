//! Generates random workloads, those of eight threads that sync at the same time, and those of open files without
//! names. Called by `plan` and `fault_runs`.

use super::ace::{POPULATIONS, Population, form_of, more_variants, syncs, variants};
use super::sketch::Sketch;
use super::step::{Reserve, Step, WriteHow};
use super::workload::Workload;
use crate::Random;

const FILES: &[&str] = &["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar", "A/C/foo"];
const FILE_BYTES_MAX: u64 = 96 << 10;
/// Threads that sync on one volume.
const THREADS: u64 = 8;
const THREAD_STEPS: u64 = 10;

/// A workload of some dozens of operations.
pub(super) fn wander(seed: u64, number: u64) -> Workload {
    let mut random = Random::new(seed ^ 0x77 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let population = random.pick(&POPULATIONS).copied().unwrap_or(POPULATIONS[0]);
    let mut sketch = population.sketch();
    let mut variants = variants();
    variants.extend(more_variants());
    let mut steps = Vec::new();
    for _ in 0..random.between(6, 30) {
        let step = match random.pick(&variants) {
            Some(step) if random.one_in(2) => step.clone(),
            _ => contents(&mut random),
        };
        let own = sketch.complete(&step);
        if own.is_empty() {
            continue;
        }
        steps.extend(own);
        if random.one_in(2) {
            let syncs = syncs(&step, &sketch);
            let is_full = random.one_in(12);
            let sync = syncs.get(1..).and_then(|syncs| random.pick(syncs)).filter(|_| !is_full);
            steps.push(sync.cloned().unwrap_or(Step::Sync));
        }
    }
    let form = form_of(random.number());
    Workload { name: format!("random-{number}"), form, setup: population.steps(), threads: vec![steps] }
}

fn contents(random: &mut Random) -> Step {
    let path = random.pick(FILES).copied().unwrap_or("foo").to_owned();
    let offset = random.skewed(FILE_BYTES_MAX);
    let len = random.skewed(FILE_BYTES_MAX / 2).max(1);
    match random.below(8) {
        0 => Step::Truncate { path, len: offset },
        1 => Step::Allocate { reserve: Reserve::Grow, path, offset, len },
        2 => Step::Allocate { reserve: Reserve::Punch, path, offset, len },
        3 => Step::Allocate { reserve: Reserve::Zero, path, offset, len },
        4 => Step::Write { how: WriteHow::Direct, path, offset: offset & !4095, len: len.next_multiple_of(4096) },
        _ => Step::Write { how: WriteHow::Buffered, path, offset, len },
    }
}

/// Eight threads, each in a directory of its own, and with names in a common one.
pub(super) fn crowd(seed: u64, number: u64) -> Workload {
    let mut random = Random::new(seed ^ 0x88 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut setup = vec![Step::CreateDir { path: "A".to_owned() }];
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let folder = format!("T{thread}");
        let steps = vec![Step::CreateDir { path: folder.clone() }];
        let mut sketch = Sketch::default();
        setup.iter().chain(&steps).for_each(|step| sketch.take(step));
        let mut own = Vec::new();
        for _ in 0..THREAD_STEPS {
            own.extend(one_of_crowd(&mut random, &mut sketch, &folder, thread));
        }
        if random.one_in(2) {
            setup.extend(steps);
            threads.push(own);
        } else {
            threads.push(steps.into_iter().chain(own).collect());
        }
    }
    Workload { name: format!("threads-{number}"), form: form_of(number), setup, threads }
}

fn one_of_crowd(random: &mut Random, sketch: &mut Sketch, folder: &str, thread: u64) -> Vec<Step> {
    let file = format!("{folder}/{}", random.pick(&["foo", "bar"]).copied().unwrap_or("foo"));
    let common = format!("A/of-{thread}");
    let (offset, len) = (random.below(5) * 4096, random.between(1, 3) * 4000);
    let step = match random.below(10) {
        8 => Step::Remove { path: file.clone() },
        9 => Step::Exchange { from: format!("{folder}/foo"), to: common.clone() },
        0 => Step::Create { path: common.clone() },
        1 => Step::Rename { from: file.clone(), to: common.clone() },
        2 => Step::Rename { from: format!("{folder}/foo"), to: format!("{folder}/bar") },
        3 => Step::Link { original: file.clone(), path: common.clone() },
        4 => Step::Remove { path: common.clone() },
        _ => Step::Write { how: WriteHow::Buffered, path: file.clone(), offset, len },
    };
    let mut steps = sketch.complete(&step);
    if random.one_in(6) {
        // While the others write and remove: a commit sees each change of names whole.
        steps.push(Step::Sync);
        return steps;
    }
    let synced = match random.below(5) {
        0 => folder.to_owned(),
        1 => common,
        _ => file,
    };
    steps.extend(sketch.complete(&Step::Fsync { path: synced }));
    steps
}

/// Files that are open while their last names go, across commits and syncs of other files: nothing but an open handle
/// keeps such an inode, and each commit has to say so until the handle is closed.
pub(super) fn nameless(seed: u64, number: u64) -> Workload {
    let mut random = Random::new(seed ^ 0xaa ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut sketch = Population::All.sketch();
    let mut steps = Vec::new();
    let mut others: Vec<&str> = FILES.to_vec();
    let mut add = |step: Step, sketch: &mut Sketch| steps.extend(sketch.complete(&step));
    for _ in 0..random.between(1, 3) {
        let victim = others.swap_remove(random.index(others.len()));
        add(Step::Hold { path: victim.to_owned() }, &mut sketch);
        if random.one_in(2) {
            add(write(&mut random, victim), &mut sketch);
        }
        let step = match others.last().filter(|_| random.one_in(4)) {
            Some(over) => Step::Rename { from: (*over).to_owned(), to: victim.to_owned() },
            None => Step::Remove { path: victim.to_owned() },
        };
        add(step, &mut sketch);
        if !random.one_in(4) {
            add(Step::Sync, &mut sketch);
        }
        fsyncs(&mut random, &mut sketch, &others, &mut add);
    }
    // Of the inodes that go with their handles some commits know, and some do not.
    for _ in 0..random.between(1, 2) {
        add(Step::Release, &mut sketch);
        fsyncs(&mut random, &mut sketch, &others, &mut add);
        if random.one_in(2) {
            add(Step::Sync, &mut sketch);
            fsyncs(&mut random, &mut sketch, &others, &mut add);
        }
    }
    let form = form_of(random.number());
    Workload { name: format!("nameless-{number}"), form, setup: Population::All.steps(), threads: vec![steps] }
}

/// A few writes to other files, new ones among them, each of which is synced.
fn fsyncs(random: &mut Random, sketch: &mut Sketch, others: &[&str], add: &mut impl FnMut(Step, &mut Sketch)) {
    const NEW: &[&str] = &["new1", "A/new2", "B/new3", "new4"];
    for _ in 0..random.between(1, 3) {
        let list = if random.one_in(3) { NEW } else { others };
        let path = random.pick(list).copied().unwrap_or("new1");
        add(write(random, path), sketch);
        add(Step::Fsync { path: path.to_owned() }, sketch);
    }
}

fn write(random: &mut Random, path: &str) -> Step {
    let (offset, len) = (random.below(5) * 4096, random.between(1, 3) * 4000);
    Step::Write { how: WriteHow::Buffered, path: path.to_owned(), offset, len }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::*;

    #[test]
    fn numbers_repeat() {
        for number in 0..20 {
            assert_eq!(wander(1, number), wander(1, number));
            assert_eq!(crowd(1, number).threads.len(), 8);
            let steps = nameless(1, number).threads.concat();
            assert!(steps.contains(&Step::Release) && steps.iter().any(|step| matches!(step, Step::Hold { .. })));
        }
        assert_ne!(wander(1, 0).threads, wander(1, 1).threads);
        assert_eq!(crowd(2, 0).form, Form::Small);
    }
}
