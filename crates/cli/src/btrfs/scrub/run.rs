//! Starts, resumes, pauses, cancels and reports a scrub of an image, or asks the server of a mount to do so. Called by
//! `scrub`, and by `jobs` in the server.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use spinney::blockdev::{self, Access, Locator};
use spinney::btrfs::disk::superblock::SUPERBLOCK_OFFSET;
use spinney::btrfs::{ScrubOptions, ScrubProgress, ScrubReport, Volume};

use super::progress_file::Saved;
use super::report::{Report, print};
use super::server_scrub::{Scrubbing, begun};
use super::status::{ScrubStatus, State, sum, took};
use super::{How, Start, format};
use crate::commands::failure::{Failure, Status};
use crate::commands::image::{ImageArgs, explain};
use crate::commands::interrupt::Interrupt;
use crate::commands::names;
use crate::commands::on_mount::OnMount;
use crate::commands::output::{Output, warn};
use crate::commands::polling::Polling;
use crate::commands::progress::{Bar, Progress};

/// Interval at which the progress is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);

impl Start {
    /// The name of the job on a mount.
    pub(in crate::btrfs) const JOB: &str = "scrub-start";

    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        scrub(&self.image, self.readonly, self.at_the_beginning(), self.how, out)
    }

    /// Nothing has been read yet.
    fn at_the_beginning(&self) -> ScrubStatus {
        let progress = ScrubProgress { place: self.from, ..ScrubProgress::default() };
        ScrubStatus { progress, ..ScrubStatus::default() }
    }

    /// Scrubs a served volume, and prints the report.
    ///
    /// # Errors
    /// `Busy` if another scrub is running; `Corrupt` if bad copies remain; the scrub's.
    pub(in crate::btrfs) fn run_on(&self, volume: &Volume, scrubbing: &Scrubbing, out: &mut Output) -> Result<()> {
        let before = match &self.after {
            Some(text) => serde_json::from_str(text).map_err(|error| Failure::usage(format!("--after: {error}")))?,
            None => self.at_the_beginning(),
        };
        let part = scrubbing.begin(&before, self.readonly)?;
        let begun = Instant::now();
        let options = ScrubOptions { read_only: self.readonly, from: before.progress.place };
        let scrubbed = volume.scrub(options, &mut |progress| {
            rest(self.how.limit, progress, begun);
            part.watch(progress)
        });
        match &scrubbed {
            Ok(report) => {
                let state = if report.is_whole { State::Finished } else { State::Paused };
                part.end(Some(&report.progress), state, None);
            }
            Err(error) => part.end(None, State::Failed, Some(error.to_string())),
        }
        let report = with_earlier(scrubbed?, &before);
        tell_report(&report, took(before.took_ms, begun.elapsed()), self.how, out)?;
        tell_left(&self.image, &report)
    }
}

/// Starts or resumes a scrub.
fn scrub(image: &ImageArgs, read_only: bool, before: ScrubStatus, how: How, out: &mut Output) -> Result<()> {
    match image.mounted_dir()? {
        Some(dir) => scrub_mount(&dir, read_only, before, how, out),
        None => scrub_image(image, read_only, before, how, out),
    }
}

fn scrub_image(image: &ImageArgs, read_only: bool, before: ScrubStatus, how: How, out: &mut Output) -> Result<()> {
    if how.background {
        return Err(Failure::usage(format!("{}: only a mount goes on in the background", name(image))).into());
    }
    let volume = if read_only { format::open_image_as(image, true)? } else { format::open_writable(image)? };
    let uuid = names::uuid(&volume.info()?.uuid);
    let saved = Saved::claim(&uuid).with_context(|| name(image))?;
    let mut keeper = Keeper { saved, status: ScrubStatus { uuid, ..begun(&before, read_only) }, kept: None };
    let interrupt = Interrupt::catch()?;
    let shown = Arc::new(Progress::default());
    let bar = Bar::new(&shown, !how.quiet && !how.json);
    let begun = Instant::now();
    let options = ScrubOptions { read_only, from: before.progress.place };
    let scrubbed = volume.scrub(options, &mut |progress| {
        keeper.status.progress = sum(&before.progress, progress);
        keeper.status.took_ms = took(before.took_ms, begun.elapsed());
        shown.show(&(&keeper.status.progress).into());
        keeper.keep_sometimes();
        rest(how.limit, progress, begun);
        if interrupt.check().is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(bar);
    let report = match scrubbed {
        Ok(report) => with_earlier(report, &before),
        Err(error) => {
            keeper.status.failure = Some(error.to_string());
            keeper.end(State::Failed);
            return Err(error.into());
        }
    };
    keeper.status.progress = report.progress;
    keeper.status.took_ms = took(before.took_ms, begun.elapsed());
    keeper.end(if report.is_whole { State::Finished } else { State::Interrupted });
    tell_report(&report, keeper.status.took_ms, how, out)?;
    interrupt.end_by_it();
    tell_left(image, &report)
}

/// Saves the progress of a scrub.
struct Keeper {
    saved: Option<Saved>,
    status: ScrubStatus,
    kept: Option<Instant>,
}

impl Keeper {
    fn keep_sometimes(&mut self) {
        if self.kept.is_none_or(|kept| kept.elapsed() >= SAVE_INTERVAL) {
            self.keep();
        }
    }

    fn keep(&mut self) {
        self.kept = Some(Instant::now());
        let Some(saved) = &self.saved else { return };
        if let Err(error) = saved.save(&self.status) {
            warn(&format!("how far the scrub comes is not kept: {error:#}"));
            // Reported once.
            self.saved = None;
        }
    }

    fn end(&mut self, state: State) {
        self.status.state = state;
        self.keep();
    }
}

/// Asks the server of a mount to scrub, and shows the progress.
fn scrub_mount(dir: &Path, read_only: bool, before: ScrubStatus, how: How, out: &mut Output) -> Result<()> {
    let now = of_mount(dir)?;
    if now.state == State::Running {
        let text = format!("{}: a scrub is under way: `scrub status` tells how far it is", dir.display());
        return Err(Failure::new(Status::Busy, text).into());
    }
    let saved = Saved::claim(&now.uuid).with_context(|| dir.display().to_string())?;
    let words = words_for(dir, read_only, &before, how)?;
    if how.background {
        drop(saved);
        return in_background(dir, words, out);
    }
    let mut keeper = Keeper { saved, status: now, kept: None };
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let keeping = scope.spawn(|| watch_mount(dir, how, &mut keeper, &has_ended));
        let done = OnMount::connect(dir).and_then(|mount| mount.run(Start::JOB, words, out));
        has_ended.store(true, Ordering::Release);
        keeping.thread().unpark();
        let watched = keeping.join().map_err(|_| Failure::new(Status::Io, "the scrub's progress"))?;
        done.and(watched)
    })
}

fn words_for(dir: &Path, read_only: bool, before: &ScrubStatus, how: How) -> Result<Vec<String>> {
    let mut words = vec![dir.display().to_string(), format!("--after={}", serde_json::to_string(before)?)];
    words.extend(how.limit.map(|limit| format!("--limit={limit}")));
    words.extend(read_only.then(|| "--readonly".to_owned()));
    words.extend(how.json.then(|| "--json".to_owned()));
    Ok(words)
}

/// Asks the server of a mount to scrub, and returns once it has begun.
fn in_background(dir: &Path, words: Vec<String>, out: &mut Output) -> Result<()> {
    let mount = OnMount::connect(dir)?;
    let asked = thread::spawn(move || mount.run(Start::JOB, words, &mut Output::to(std::io::sink(), false)));
    let mut polling = Polling::default();
    while !asked.is_finished() && of_mount(dir)?.state != State::Running {
        polling.wait();
    }
    if asked.is_finished() {
        return asked.join().map_err(|_| Failure::new(Status::Io, "the scrub"))?;
    }
    Ok(writeln!(out, "{}: the scrub goes on in the background", dir.display())?)
}

/// Shows and saves the progress of the server, until the scrub has ended.
fn watch_mount(dir: &Path, how: How, keeper: &mut Keeper, has_ended: &AtomicBool) -> Result<()> {
    let shown = Arc::new(Progress::default());
    let _bar = Bar::new(&shown, !how.quiet && !how.json);
    let mut polling = Polling::default();
    loop {
        let is_last = has_ended.load(Ordering::Acquire);
        keeper.status = of_mount(dir)?;
        shown.show(&(&keeper.status.progress).into());
        if is_last {
            match (&keeper.saved, keeper.status.state) {
                // It was cancelled.
                (Some(saved), State::None) => saved.forget()?,
                _ => keeper.keep(),
            }
            return Ok(());
        }
        if keeper.status.state == State::Running {
            keeper.keep_sometimes();
        }
        thread::park_timeout(polling.interval());
    }
}

/// Resumes a paused or interrupted scrub.
///
/// # Errors
/// `Refused` if there is none; as [`scrub`].
pub(super) fn resume(image: &ImageArgs, how: How, out: &mut Output) -> Result<()> {
    let before = known(image)?;
    if !before.is_cut_short() {
        let text = match before.state {
            State::Running => "a scrub is under way: `scrub status` tells how far it is",
            _ => "there is no scrub that was cut short; `scrub start` begins one",
        };
        return Err(Failure::refused(format!("{}: {text}", name(image))).into());
    }
    scrub(image, before.read_only, before, how, out)
}

/// Reports the progress of a scrub.
///
/// # Errors
/// `Corrupt` if it found faults that it did not repair; as [`known`].
pub(super) fn tell(image: &ImageArgs, json: bool, out: &mut Output) -> Result<()> {
    let status = known(image)?;
    status.tell(json, out)?;
    out.flush()?;
    match status.bad_copies() {
        0 => Ok(()),
        left => Err(left_over(image, left)),
    }
}

/// Asks the server of a mount to pause its scrub.
///
/// # Errors
/// The server's; `Usage` for an image.
pub(super) fn pause(image: &ImageArgs, json: bool, out: &mut Output) -> Result<()> {
    let dir = image.mounted_dir()?.ok_or_else(|| {
        let text = "no mount; to pause is to stop the program that scrubs it (Ctrl-C)";
        Failure::usage(format!("{}: {text}", name(image)))
    })?;
    let paused = order(&dir, Scrubbing::PAUSE)?;
    if let Some(saved) = Saved::of(&paused.uuid).filter(|_| paused.state == State::Paused) {
        // The client that watches the scrub saves it too.
        let _ = saved.save(&paused);
    }
    paused.tell(json, out)
}

/// Stops a scrub, and forgets its progress.
///
/// # Errors
/// The server's; `Busy` if a program scrubs the image.
pub(super) fn cancel(image: &ImageArgs, json: bool, out: &mut Output) -> Result<()> {
    let status = match image.mounted_dir()? {
        Some(dir) => {
            let status = order(&dir, Scrubbing::CANCEL)?;
            if let Some(saved) = Saved::of(&status.uuid) {
                let _ = saved.forget();
            }
            status
        }
        None => {
            let uuid = uuid_of(&image.image)?;
            if let Some(saved) = Saved::of(&uuid) {
                saved.forget().with_context(|| name(image))?;
            }
            ScrubStatus { uuid, ..ScrubStatus::default() }
        }
    };
    status.tell(json, out)
}

/// Sends an order to a server, and waits until the scrub has stopped.
fn order(dir: &Path, job: &str) -> Result<ScrubStatus> {
    OnMount::connect(dir)?.take(vec![job.to_owned()], std::io::sink()).with_context(|| dir.display().to_string())?;
    let mut polling = Polling::default();
    loop {
        let status = of_mount(dir)?;
        if status.state != State::Running {
            return Ok(status);
        }
        polling.wait();
    }
}

/// The known state of a scrub. A server that knows of none may have been started since, so the saved file counts then.
fn known(image: &ImageArgs) -> Result<ScrubStatus> {
    let status = match image.mounted_dir()? {
        Some(dir) => of_mount(&dir)?,
        None => ScrubStatus { uuid: uuid_of(&image.image)?, ..ScrubStatus::default() },
    };
    if status.state != State::None {
        return Ok(status);
    }
    let saved = Saved::of(&status.uuid).map(|saved| saved.load()).transpose()?.flatten();
    Ok(saved.unwrap_or(status))
}

/// The state that the server of a mount reports.
fn of_mount(dir: &Path) -> Result<ScrubStatus> {
    let mut text = Vec::new();
    OnMount::connect(dir)?.take(vec![Scrubbing::STATUS.to_owned()], &mut text)?;
    serde_json::from_slice(&text).with_context(|| format!("{}: unexpected report of the server", dir.display()))
}

/// The UUID of an image, which may be in use.
fn uuid_of(image: &Path) -> Result<String> {
    let read = || -> Result<String> {
        let list = Locator::parse_list(image)?;
        let first = list.first().context("no device is named")?;
        let device = blockdev::open(first, Access { unlocked: true, ..Access::READ })?;
        let superblock = format::first_superblock(&*device)?.verify(SUPERBLOCK_OFFSET)?;
        Ok(names::uuid(&superblock.fields().fsid.0))
    };
    read().map_err(|error| explain(image, error))
}

/// Sleeps so that at most `limit` bytes a second are read.
fn rest(limit: Option<u64>, progress: &ScrubProgress, begun: Instant) {
    let ahead = |limit: u64| {
        let wanted = u128::from(progress.bytes).checked_mul(1_000_000)?.checked_div(u128::from(limit))?;
        let wanted = Duration::from_micros(u64::try_from(wanted).ok()?);
        wanted.checked_sub(begun.elapsed())
    };
    if let Some(wait) = limit.and_then(ahead) {
        thread::sleep(wait);
    }
}

/// The report of all parts of a scrub; its faults and files are those of the last part.
fn with_earlier(report: ScrubReport, before: &ScrubStatus) -> ScrubReport {
    ScrubReport { progress: sum(&before.progress, &report.progress), ..report }
}

fn tell_report(report: &ScrubReport, took_ms: u64, how: How, out: &mut Output) -> Result<()> {
    match how.json {
        true => out.json(&Report::from(report))?,
        false => print(report, Duration::from_millis(took_ms), out)?,
    }
    Ok(out.flush()?)
}

fn tell_left(image: &ImageArgs, report: &ScrubReport) -> Result<()> {
    match report.progress.left.saturating_add(report.progress.lost) {
        0 => Ok(()),
        left => Err(left_over(image, left)),
    }
}

fn left_over(image: &ImageArgs, left: u64) -> anyhow::Error {
    Failure::new(Status::Corrupt, format!("{}: {left} bad copies are left", name(image))).into()
}

fn name(image: &ImageArgs) -> String {
    names::escaped(image.image.as_os_str().as_bytes()).to_string()
}
