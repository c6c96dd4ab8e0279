//! Runs the property test with several threads on one volume: each has a directory and a model of its own, and they
//! commit into each other's work. Called by the tests of each format.

use super::compare::compare_trees;
use super::generate::Generator;
use super::is_full;
use super::run::{Finished, Pair, Report, Settings};
use super::subject::Subject;
use crate::model::{Model, Operation};
use crate::number::to_u64;
use anyhow::{Context, Result, bail, ensure};
use crash_explorer::Random;
use std::path::{Path, PathBuf};
use vfs::{FileOptions, Volume};

/// Directory in which all threads make and remove names at once.
const SHARED: &str = "shared";

/// Runs `thread_count` threads for one seed on one fresh image in `folder`.
///
/// # Errors
/// The first difference, or the findings of the reference tool; the image is kept then and named.
pub fn run_threads<S: Subject>(
    subject: &S,
    seed: u64,
    thread_count: u64,
    settings: &Settings,
    folder: &Path,
) -> Result<Report> {
    let image = folder.join(format!("threads-{seed}.img"));
    let report = run_on(subject, seed, thread_count, settings, &image)
        .with_context(|| format!("seed {seed}, {thread_count} threads, image kept: {}", image.display()))?;
    std::fs::remove_file(&image)?;
    Ok(report)
}

fn run_on<S: Subject>(subject: &S, seed: u64, thread_count: u64, settings: &Settings, image: &Path) -> Result<Report> {
    let (opened, form) = subject.make(image, settings.image_bytes, &mut Random::new(seed ^ 0x5eed))?;
    let volume = opened.as_ref();
    volume.create_dir(SHARED)?;
    for thread in 0..thread_count {
        if !is_in_subvolume(volume, thread) {
            volume.create_dir(base(thread))?;
        } else {
            volume.create_subvolume(base(thread))?;
        }
    }
    let results: Vec<Result<Finished>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..thread_count)
            .map(|thread| {
                let (opened, form) = (opened.clone(), form.clone());
                scope.spawn(move || one_thread(subject, opened, form, seed, thread, settings))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let mut total = Report::default();
    let mut models = Vec::new();
    for result in results {
        let pair = result?;
        total.done = total.done.saturating_add(pair.report.done);
        total.refused = total.refused.saturating_add(pair.report.refused);
        total.no_space = total.no_space.saturating_add(pair.report.no_space);
        models.push(pair.model);
    }
    volume.sync()?;
    drop(opened);
    let opened = subject.open(image, &mut Random::new(seed))?;
    let volume = opened.as_ref();
    ensure!(volume.read_dir(SHARED)?.next().is_none(), "the shared directory should be empty");
    for (thread, model) in (0..).zip(&models) {
        compare_trees(volume, model, &base(thread)).with_context(|| format!("thread {thread} after the re-open"))?;
    }
    volume.sync()?;
    drop(opened);
    total.checked = subject.check(image)?;
    Ok(total)
}

fn base(thread: u64) -> PathBuf {
    PathBuf::from(format!("thread-{thread}"))
}

/// Every second thread works in a subvolume of its own, where there are any.
fn is_in_subvolume(volume: &Volume, thread: u64) -> bool {
    !thread.is_multiple_of(2) && volume.has_subvolumes()
}

fn one_thread<S: Subject>(
    subject: &S,
    opened: S::Opened,
    form: String,
    seed: u64,
    thread: u64,
    settings: &Settings,
) -> Result<Finished> {
    let own_seed = seed.wrapping_mul(31).wrapping_add(thread);
    let mut random = Random::new(own_seed ^ 0xfeed);
    let mut generator = Generator::new(own_seed, base(thread));
    let mut model = Model::new();
    let path = base(thread);
    let made = if !is_in_subvolume(opened.as_ref(), thread) {
        model.apply(&Operation::CreateDir { path })
    } else {
        model.apply(&Operation::CreateSubvolume { path })
    };
    ensure!(made.is_ok(), "the model cannot make the base: {made:?}");
    let mut pair = Pair::new(subject, opened, model, form);
    for number in 1..=settings.operations {
        let operation = generator.next_of(&pair.model, |operation| subject.can(operation));
        let where_ = |pair: &Pair<'_, S>| format!("thread {thread}, {}", pair.story(number));
        pair.step(&operation).with_context(|| where_(&pair))?;
        if random.one_in(20) {
            meet(&pair, thread, number).with_context(|| where_(&pair)).context("shared directory")?;
        }
        if random.one_in(150) {
            pair.volume().sync().with_context(|| where_(&pair))?;
        }
        if number % settings.compare_every == 0 {
            compare_trees(pair.volume(), &pair.model, &base(thread)).with_context(|| where_(&pair))?;
        }
    }
    Ok(pair.finished())
}

/// Makes, writes, renames, reads and removes a file where the other threads do the same.
fn meet<S: Subject>(pair: &Pair<'_, S>, thread: u64, number: u64) -> Result<()> {
    let volume = pair.volume();
    let first = Path::new(SHARED).join(format!("{thread}-{number}"));
    let second = Path::new(SHARED).join(format!("{thread}-{number}-renamed"));
    let outcome = || -> vfs::Result<Vec<u8>> {
        let file = FileOptions::new().write(true).create_new(true).open(volume, &first)?;
        file.write_at(first.as_os_str().as_encoded_bytes(), 0)?;
        volume.rename(&first, &second)?;
        volume.read(&second)
    };
    match outcome() {
        Ok(content) => ensure!(content == first.as_os_str().as_encoded_bytes(), "read {content:?}"),
        Err(error) if is_full(&error) => {
            let (path, len) = (second.clone(), to_u64(second.as_os_str().len()));
            pair.check_full(&Operation::Write { path, offset: 0, len, seed: 0 })?;
        }
        Err(error) => return Err(error.into()),
    }
    for path in [first, second] {
        match volume.remove_file(path) {
            Err(error) if !error.is_not_found() => {
                return Err(error.into());
            }
            _ => {}
        }
    }
    Ok(())
}
