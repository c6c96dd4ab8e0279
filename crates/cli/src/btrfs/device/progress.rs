//! Notes how far a change of the devices of a mount is, in its server, and formats that as JSON and text. `served`
//! notes it, and clients ask for it while they wait, and for `device status`.
//!
//! The last change is reported until the mount ends. A change is stopped by orders of other clients.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::Result;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use spinney::btrfs::{RebuildReport, RemovalProgress};

use crate::commands::failure::{Failure, Status};
use crate::commands::human;
use crate::commands::names;
use crate::commands::output::Output;

/// State of a change.
///
/// ```text
/// None --begin--> Running --end--> Finished | Cancelled | Failed
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    #[default]
    None,
    Running,
    Finished,
    Cancelled,
    Failed,
}

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Change {
    Replace,
    Remove,
    Resync,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Remove => "remove",
            Self::Resync => "resync",
        }
    }
}

/// The running change, or the last one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ChangeStatus {
    pub(super) state: State,
    change: Option<Change>,
    /// Number of the device, if it is known already.
    id: Option<u64>,
    /// Name of the device that is written.
    target: Option<String>,
    pub(super) done_bytes: u64,
    /// 0 if unknown.
    pub(super) total_bytes: u64,
    /// Seconds since 1970.
    began_at: i64,
    took_ms: u64,
    /// Reason why it failed.
    failure: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    status: &'a ChangeStatus,
    /// Bytes a second.
    rate: u64,
    /// Null if it cannot be estimated.
    seconds_left: Option<u64>,
}

impl ChangeStatus {
    fn rate(&self) -> u64 {
        let bytes = u128::from(self.done_bytes).saturating_mul(1000);
        u64::try_from(bytes.checked_div(self.took_ms.into()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn seconds_left(&self) -> Option<u64> {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        (self.state == State::Running && self.total_bytes > 0).then(|| left.checked_div(self.rate())).flatten()
    }

    /// Prints it.
    ///
    /// # Errors
    /// The output's.
    pub(super) fn tell(&self, json: bool, out: &mut Output) -> Result<()> {
        match json {
            true => out.json(&Report { status: self, rate: self.rate(), seconds_left: self.seconds_left() }),
            false => self.print(out),
        }
    }

    fn print(&self, out: &mut Output) -> Result<()> {
        let Some(change) = self.change else {
            return Ok(writeln!(out, "no device was replaced, removed or brought up to date since it was mounted")?);
        };
        let device = self.id.map_or_else(String::new, |id| format!(" of device {id}"));
        let target = self.target.as_deref().map(names::escaped_text);
        let to = target.map_or_else(String::new, |target| format!(", writing {target}"));
        let state = match self.state {
            State::None | State::Running => "running",
            State::Finished => "finished",
            State::Cancelled => "cancelled",
            State::Failed => "failed",
        };
        writeln!(out, "{}{device}{to}: {state}", change.name())?;
        let (done, total) = (self.done_bytes, self.total_bytes);
        write!(out, "{} of {} ({})", human::bytes(done), human::bytes(total), human::percent(done.min(total), total))?;
        write!(out, ", {}/s", human::bytes(self.rate()))?;
        match self.seconds_left() {
            Some(seconds) => writeln!(out, ", {} left", human::clock(seconds))?,
            None => writeln!(out)?,
        }
        match &self.failure {
            Some(failure) => Ok(writeln!(out, "Failure: {}", names::escaped_text(failure))?),
            None => Ok(()),
        }
    }
}

/// The running or last change in a server.
#[derive(Debug, Default)]
pub(in crate::btrfs) struct Changing {
    status: Mutex<ChangeStatus>,
    /// True if the running change is to stop.
    stops: AtomicBool,
}

impl Changing {
    /// The present status.
    pub(super) fn status(&self) -> ChangeStatus {
        self.status.lock().clone()
    }

    /// Stops the running change.
    ///
    /// # Errors
    /// `Refused` if there is none.
    pub(super) fn cancel(&self) -> Result<()> {
        let status = self.status.lock();
        if status.state != State::Running {
            let text = "no device is being replaced, removed or brought up to date";
            return Err(Failure::refused(text).into());
        }
        self.stops.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Runs a change, and notes its progress.
    ///
    /// # Errors
    /// `Busy` if one is running; `Refused` if it was cancelled; those of `run`.
    pub(super) fn run<T>(
        &self,
        (change, id, target): (Change, Option<u64>, Option<&str>),
        run: impl FnOnce(&mut dyn FnMut(&Amount) -> ControlFlow<()>) -> Result<T>,
    ) -> Result<T> {
        self.begin(change, id, target)?;
        let begun = Instant::now();
        let took = || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let done = run(&mut |amount| {
            let mut status = self.status.lock();
            (status.done_bytes, status.total_bytes, status.took_ms) = (amount.done, amount.total, took());
            status.id = amount.id.or(status.id);
            if self.stops.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let mut status = self.status.lock();
        status.took_ms = took();
        let is_stopped = self.stops.load(Ordering::Relaxed);
        let (state, failure) = match &done {
            Ok(_) => (State::Finished, None),
            Err(_) if is_stopped => (State::Cancelled, None),
            Err(error) => (State::Failed, Some(crate::commands::failure::one_line(error))),
        };
        (status.state, status.failure) = (state, failure);
        match done {
            Err(_) if is_stopped => {
                let text = match change {
                    Change::Remove => "it was cancelled: the device stays, with less on it",
                    Change::Replace | Change::Resync => "it was cancelled: the devices are as before",
                };
                Err(Failure::refused(text).into())
            }
            done => done,
        }
    }

    fn begin(&self, change: Change, id: Option<u64>, target: Option<&str>) -> Result<()> {
        let mut status = self.status.lock();
        if status.state == State::Running {
            let text = "the devices are being changed already: `device status` tells how far that is";
            return Err(Failure::new(Status::Busy, text).into());
        }
        self.stops.store(false, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        *status = ChangeStatus {
            state: State::Running,
            change: Some(change),
            id,
            target: target.map(str::to_owned),
            began_at: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            ..ChangeStatus::default()
        };
        Ok(())
    }
}

/// An amount of work that is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Amount {
    id: Option<u64>,
    done: u64,
    total: u64,
}

impl From<&RebuildReport> for Amount {
    fn from(report: &RebuildReport) -> Self {
        Self { id: Some(report.id), done: report.done_bytes, total: report.total_bytes }
    }
}

impl From<&RemovalProgress> for Amount {
    fn from(progress: &RemovalProgress) -> Self {
        Self { id: None, done: progress.moved_bytes, total: progress.total_bytes }
    }
}
