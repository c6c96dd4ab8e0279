//! Describes the state and progress of a scrub, and formats them as JSON and text. `run` and `server_scrub` report it;
//! `progress_file` stores it.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use spinney::btrfs::ScrubProgress;
use spinney::vfs::file_system::Time;

use crate::commands::human;
use crate::commands::output::Output;

/// State of a scrub.
///
/// ```text
/// None --start--> Running ---end---> Finished | Failed
///                  |   ^ resume
///         pause    |   |
///                  '-> Paused (its program still knows of it) | Interrupted (only the file does)
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    #[default]
    None,
    Running,
    Paused,
    Interrupted,
    Finished,
    Failed,
}

/// State and progress of a scrub, or that there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScrubStatus {
    /// UUID of the file system.
    pub(super) uuid: String,
    pub(super) state: State,
    pub(super) read_only: bool,
    /// Seconds since 1970 at which its first part began.
    pub(super) began_at: i64,
    /// Milliseconds that all its parts took.
    pub(super) took_ms: u64,
    #[serde(with = "Progress")]
    pub(super) progress: ScrubProgress,
    /// Reason why it failed.
    pub(super) failure: Option<String>,
}

/// The fields of [`ScrubProgress`], for the file and the server's answer.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ScrubProgress")]
struct Progress {
    bytes: u64,
    bytes_total: u64,
    tree_bytes: u64,
    data_bytes: u64,
    unchecked_bytes: u64,
    place: u64,
    read_errors: u64,
    data_errors: u64,
    tree_errors: u64,
    generation_errors: u64,
    superblock_errors: u64,
    mended: u64,
    left: u64,
    lost: u64,
}

/// The counts of the earlier parts and this one together.
pub(super) fn sum(before: &ScrubProgress, now: &ScrubProgress) -> ScrubProgress {
    let add = u64::saturating_add;
    ScrubProgress {
        bytes: add(before.bytes, now.bytes),
        bytes_total: now.bytes_total,
        tree_bytes: add(before.tree_bytes, now.tree_bytes),
        data_bytes: add(before.data_bytes, now.data_bytes),
        unchecked_bytes: add(before.unchecked_bytes, now.unchecked_bytes),
        place: now.place,
        read_errors: add(before.read_errors, now.read_errors),
        data_errors: add(before.data_errors, now.data_errors),
        tree_errors: add(before.tree_errors, now.tree_errors),
        generation_errors: add(before.generation_errors, now.generation_errors),
        superblock_errors: add(before.superblock_errors, now.superblock_errors),
        mended: add(before.mended, now.mended),
        left: add(before.left, now.left),
        lost: add(before.lost, now.lost),
    }
}

/// The counts of a scrub, in JSON.
#[derive(Serialize)]
pub(super) struct Counts {
    place: u64,
    bytes: u64,
    tree_bytes: u64,
    data_bytes: u64,
    unchecked_bytes: u64,
    errors: u64,
    read_errors: u64,
    data_errors: u64,
    tree_errors: u64,
    generation_errors: u64,
    superblock_errors: u64,
    mended: u64,
    left: u64,
    lost_copies: u64,
}

impl From<&ScrubProgress> for Counts {
    fn from(progress: &ScrubProgress) -> Self {
        Self {
            place: progress.place,
            bytes: progress.bytes,
            tree_bytes: progress.tree_bytes,
            data_bytes: progress.data_bytes,
            unchecked_bytes: progress.unchecked_bytes,
            errors: progress.errors(),
            read_errors: progress.read_errors,
            data_errors: progress.data_errors,
            tree_errors: progress.tree_errors,
            generation_errors: progress.generation_errors,
            superblock_errors: progress.superblock_errors,
            mended: progress.mended,
            left: progress.left,
            lost_copies: progress.lost,
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    state: State,
    uuid: &'a str,
    read_only: bool,
    began_at: i64,
    seconds: u64,
    bytes_total: u64,
    /// Bytes a second.
    rate: u64,
    /// Null if it cannot be estimated.
    seconds_left: Option<u64>,
    #[serde(flatten)]
    counts: Counts,
    failure: Option<&'a str>,
}

impl ScrubStatus {
    /// True if the scrub can be resumed.
    pub(super) fn is_cut_short(&self) -> bool {
        matches!(self.state, State::Paused | State::Interrupted | State::Failed)
    }

    /// Number of bad copies that remain.
    pub(super) fn bad_copies(&self) -> u64 {
        self.progress.left.saturating_add(self.progress.lost)
    }

    fn rate(&self) -> u64 {
        let bytes = u128::from(self.progress.bytes).saturating_mul(1000);
        u64::try_from(bytes.checked_div(self.took_ms.into()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn seconds_left(&self) -> Option<u64> {
        let left = self.progress.bytes_total.saturating_sub(self.progress.bytes);
        (self.state == State::Running).then(|| left.checked_div(self.rate())).flatten()
    }

    /// Prints it.
    ///
    /// # Errors
    /// The output's.
    pub(super) fn tell(&self, json: bool, out: &mut Output) -> Result<()> {
        if json { out.json(&self.report()) } else { self.print(out) }
    }

    fn report(&self) -> Report<'_> {
        Report {
            state: self.state,
            uuid: &self.uuid,
            read_only: self.read_only,
            began_at: self.began_at,
            seconds: self.took_ms / 1000,
            bytes_total: self.progress.bytes_total,
            rate: self.rate(),
            seconds_left: self.seconds_left(),
            counts: Counts::from(&self.progress),
            failure: self.failure.as_deref(),
        }
    }

    fn print(&self, out: &mut Output) -> Result<()> {
        writeln!(out, "UUID:            {}", self.uuid)?;
        let state = match self.state {
            State::None => return Ok(writeln!(out, "Status:          no scrub is known")?),
            State::Running => "running",
            State::Paused => "paused: `scrub resume` goes on",
            State::Interrupted => "interrupted: `scrub resume` goes on",
            State::Finished => "finished",
            State::Failed => "failed",
        };
        let progress = &self.progress;
        let began = human::time_short(Time { sec: self.began_at, nsec: 0 });
        writeln!(out, "Scrub started:   {began} UTC{}", if self.read_only { ", read-only" } else { "" })?;
        writeln!(out, "Status:          {state}")?;
        writeln!(out, "Duration:        {}", human::clock(self.took_ms / 1000))?;
        if let Some(seconds) = self.seconds_left() {
            writeln!(out, "Time left:       {}", human::clock(seconds))?;
        }
        let (done, total) = (progress.bytes, progress.bytes_total);
        writeln!(out, "Total to scrub:  {}", human::bytes(total))?;
        writeln!(out, "Bytes scrubbed:  {} ({})", human::bytes(done), human::percent(done.min(total), total))?;
        writeln!(out, "Rate:            {}/s", human::bytes(self.rate()))?;
        match progress.errors() {
            0 => writeln!(out, "Error summary:   no errors found")?,
            _ => {
                let ScrubProgress { read_errors, data_errors, tree_errors, superblock_errors, .. } = progress;
                writeln!(
                    out,
                    "Error summary:   read={read_errors} csum={data_errors} verify={tree_errors} \
                     super={superblock_errors}"
                )?;
                writeln!(out, "  Mended:        {}", progress.mended)?;
                writeln!(out, "  Left as is:    {}", progress.left)?;
                writeln!(out, "  Lost:          {}", progress.lost)?;
            }
        }
        match &self.failure {
            Some(failure) => Ok(writeln!(out, "Failure:         {failure}")?),
            None => Ok(()),
        }
    }
}

/// Milliseconds that the earlier parts and this one took.
pub(super) fn took(before_ms: u64, now: Duration) -> u64 {
    before_ms.saturating_add(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
