//! Runs the property test once: a fresh image, random operations, commits, re-opens, a full volume, and the reference
//! check at the end. Called by the tests of each format.

use super::compare::{compare_one, compare_trees};
use super::drive::drive;
use super::generate::Generator;
use super::subject::Subject;
use super::{is_full, is_refusal};
use crate::model::{Content, Model, Operation};
use crate::number::to_u64;
use anyhow::{Context, Result, bail, ensure};
use crash_explorer::Random;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use vfs::{FileOptions, Volume};

/// Length of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Operations of a run.
    pub operations: u64,
    /// Size of the image.
    pub image_bytes: u64,
    /// Whole trees are compared once in this many operations.
    pub compare_every: u64,
    /// Once in this many operations the volume is closed and opened again.
    pub reopen_every: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { operations: 2000, image_bytes: 256 << 20, compare_every: 250, reopen_every: 400 }
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Operations that succeeded on both sides.
    pub done: u64,
    /// Operations that failed alike on both sides.
    pub refused: u64,
    /// Operations that the volume had no space for.
    pub no_space: u64,
    /// Whether the reference tool looked at the image.
    pub checked: bool,
}

/// The last operations, for the message of a failure.
const HISTORY_LEN: usize = 12;

/// A volume, its model, and the operations so far.
pub(super) struct Pair<'a, S: Subject> {
    pub(super) subject: &'a S,
    opened: S::Opened,
    pub(super) model: Model,
    pub(super) report: Report,
    history: VecDeque<Operation>,
    /// How the image was made.
    form: String,
    /// Every operation is printed: the environment has SPINNEY_TRACE.
    is_traced: bool,
}

/// Runs one seed on a fresh image in `folder`.
///
/// # Errors
/// The first difference, or the findings of the reference tool; the image is kept then and named.
pub fn run<S: Subject>(subject: &S, seed: u64, settings: &Settings, folder: &Path) -> Result<Report> {
    let image = folder.join(format!("property-{seed}.img"));
    let report = run_on(subject, seed, settings, &image).with_context(|| {
        format!("seed {seed} ({} operations), image kept: {}", settings.operations, image.display())
    })?;
    std::fs::remove_file(&image)?;
    Ok(report)
}

fn run_on<S: Subject>(subject: &S, seed: u64, settings: &Settings, image_path: &Path) -> Result<Report> {
    let mut random = Random::new(seed ^ 0x5eed);
    let (opened, form) = subject.make(image_path, settings.image_bytes, &mut random)?;
    let mut pair = Pair::new(subject, opened, Model::new(), form);
    let mut generator = Generator::new(seed, "/");
    for number in 1..=settings.operations {
        let operation = generator.next_of(&pair.model, |operation| subject.can(operation));
        pair.step(&operation).with_context(|| pair.story(number))?;
        if random.one_in(100) {
            pair.volume().sync().with_context(|| pair.story(number))?;
        }
        if random.one_in(settings.reopen_every) {
            pair = pair.reopen(image_path, &mut random).with_context(|| format!("re-open after operation {number}"))?;
        }
        if number % settings.compare_every == 0 {
            compare_trees(pair.volume(), &pair.model, Path::new("/")).with_context(|| pair.story(number))?;
        }
        if number == settings.operations / 2 && seed.is_multiple_of(8) {
            pair.fill(&mut random).with_context(|| pair.story(number)).context("filling the volume")?;
        }
    }
    let pair = pair.reopen(image_path, &mut random).context("the last re-open")?;
    compare_trees(pair.volume(), &pair.model, Path::new("/")).context("after the last re-open")?;
    let mut report = pair.report;
    pair.close()?;
    report.checked = subject.check(image_path)?;
    Ok(report)
}

/// The rest of a pair when its thread ends.
pub(super) struct Finished {
    pub(super) model: Model,
    pub(super) report: Report,
}

impl<'a, S: Subject> Pair<'a, S> {
    pub(super) fn new(subject: &'a S, opened: S::Opened, model: Model, form: String) -> Self {
        Self {
            subject,
            opened,
            model,
            report: Report::default(),
            history: VecDeque::new(),
            form,
            is_traced: std::env::var_os("SPINNEY_TRACE").is_some(),
        }
    }

    pub(super) fn volume(&self) -> &Volume {
        self.opened.as_ref()
    }

    pub(super) fn finished(self) -> Finished {
        Finished { model: self.model, report: self.report }
    }

    /// Syncs, and lets go of the volume.
    fn close(self) -> Result<()> {
        Ok(self.volume().sync()?)
    }

    /// Does one operation on both and compares the outcomes.
    pub(super) fn step(&mut self, operation: &Operation) -> Result<()> {
        if self.history.len() == HISTORY_LEN {
            self.history.pop_front();
        }
        if self.is_traced {
            eprintln!("{operation:?}");
        }
        self.history.push_back(operation.clone());
        let found = drive(self.volume(), operation);
        if found.as_ref().is_err_and(is_full) {
            return self.accept_no_space(operation);
        }
        match (found, self.model.apply(operation)) {
            (Ok(()), Ok(())) => self.report.done = self.report.done.saturating_add(1),
            (Err(error), Err(expected)) => {
                let found = error.errno();
                let is_right =
                    is_refusal(&error) && (found == expected || self.model.reasons(operation).contains(&found));
                ensure!(is_right, "fails with {found:?} ({error}), not {expected:?}");
                self.report.refused = self.report.refused.saturating_add(1);
                return Ok(());
            }
            (Ok(()), Err(expected)) => bail!("succeeds, but should fail with {expected:?}"),
            (Err(error), Ok(())) => return Err(error).context("fails, but should succeed"),
        }
        for path in operation.paths() {
            compare_one(self.volume(), &self.model, path)?;
        }
        Ok(())
    }

    /// ENOSPC is a legal answer of a nearly full volume, if nothing happened.
    fn accept_no_space(&mut self, operation: &Operation) -> Result<()> {
        self.report.no_space = self.report.no_space.saturating_add(1);
        self.check_full(operation)?;
        if let Operation::Write { path, offset, .. } = operation {
            return self.accept_part(path, *offset, &operation.data());
        }
        if matches!(operation, Operation::RemoveAll { .. }) {
            bail!("ENOSPC while removing");
        }
        for path in operation.paths() {
            compare_one(self.volume(), &self.model, path).context("ENOSPC, but something changed")?;
        }
        Ok(())
    }

    /// A write that ended early: a beginning of the data is there, the rest is as it was.
    fn accept_part(&mut self, path: &Path, offset: u64, data: &[u8]) -> Result<()> {
        let Some(old) = self.model.lookup(path).and_then(|node| node.content()).cloned() else {
            return Ok(());
        };
        let file = FileOptions::new().read(true).open(self.volume(), path)?;
        let mut found = vec![0; data.len()];
        let count = file.read_at(&mut found, offset)?;
        found.truncate(count);
        let written = found.iter().zip(data).take_while(|(found, new)| found == new).count();
        let len = offset.saturating_add(to_u64(written));
        let mut content: Content = old;
        if written > 0 {
            content.write(offset, data.get(..written).unwrap_or_default());
        }
        let len = file.metadata()?.size.max(len);
        ensure!(len <= content.len().max(offset.saturating_add(to_u64(data.len()))), "grew to {len} without space");
        content.set_len(content.len().max(len));
        self.model.replace_content(path, content).map_err(|error| anyhow::anyhow!("{error}"))?;
        compare_one(self.volume(), &self.model, path).context("ENOSPC in a write")
    }

    /// Writes until there is no space, then removes it all: everything has to be usable again.
    fn fill(&mut self, random: &mut Random) -> Result<()> {
        const FILE_BYTES: u64 = 2 << 20;
        let status = self.volume().status()?;
        let total_bytes = status.blocks.saturating_mul(u64::from(status.block_bytes));
        let limit = total_bytes / FILE_BYTES;
        let mut paths: Vec<PathBuf> = Vec::new();
        let before = self.report.no_space;
        for number in 0..=limit {
            let path = PathBuf::from(format!("/fill-{number}"));
            self.step(&Operation::Create { path: path.clone() })?;
            if self.model.lookup(&path).is_some() {
                paths.push(path.clone());
                let len = FILE_BYTES - random.below(5000);
                self.step(&Operation::Write { path, offset: 0, len, seed: noise_seed(random) })?;
            }
            if self.report.no_space > before {
                break;
            }
        }
        ensure!(self.report.no_space > before, "{limit} files of {FILE_BYTES} bytes fit");
        self.volume().sync().context("sync of a full volume")?;
        compare_trees(self.volume(), &self.model, Path::new("/")).context("a full volume")?;
        for path in paths {
            drive(self.volume(), &Operation::Remove { path: path.clone() }).context("removing from a full volume")?;
            let removed = self.model.apply(&Operation::Remove { path });
            ensure!(removed.is_ok(), "the model cannot remove: {removed:?}");
        }
        self.volume().sync().context("sync after the removal")
    }

    fn reopen(self, image_path: &Path, random: &mut Random) -> Result<Self> {
        if self.is_traced {
            eprintln!("re-open");
        }
        let Self { subject, opened, .. } = self;
        opened.as_ref().sync().context("close")?;
        drop(opened);
        let opened = subject.open(image_path, random)?;
        Ok(Self {
            subject,
            opened,
            model: self.model,
            report: self.report,
            history: self.history,
            form: self.form,
            is_traced: self.is_traced,
        })
    }

    /// Whether ENOSPC is a right answer to an operation.
    pub(super) fn check_full(&self, operation: &Operation) -> Result<()> {
        self.subject.check_full(&self.opened, operation)
    }

    pub(super) fn story(&self, number: u64) -> String {
        let mut story = format!("image by {}, operation {number}; the last ones:", self.form);
        for operation in &self.history {
            story.push_str(&format!("\n    {operation:?}"));
        }
        story
    }
}

/// A number from which [`Random::content`] makes bytes that no volume can store in less space.
fn noise_seed(random: &mut Random) -> u64 {
    loop {
        let seed = random.number();
        if Random::new(seed).one_in(2) {
            return seed;
        }
    }
}
