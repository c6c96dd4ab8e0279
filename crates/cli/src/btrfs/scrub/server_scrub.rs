//! Scrubs a mounted file system in its server: one scrub at a time, stopped by orders of other clients.
//!
//! It runs on the thread of the client that asked for it, and continues when that client ends. Its result is reported
//! until the mount ends; clients save it in their files ([`super::progress_file`]), which a server cannot write.
//! Callers: `jobs`, and `run`.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::Result;
use parking_lot::Mutex;
use spinney::btrfs::{ScrubProgress, Volume};

use super::status::{ScrubStatus, State, sum, took};
use crate::commands::failure::{Failure, Status};
use crate::commands::names;

/// The running or last scrub of a server.
#[derive(Debug, Default)]
pub(in crate::btrfs) struct Scrubbing {
    status: Mutex<ScrubStatus>,
    /// True if the running scrub is to stop.
    stops: AtomicBool,
    /// True if its counts are to be discarded.
    forgets: AtomicBool,
}

impl Scrubbing {
    /// Names of the jobs that report, pause and cancel it.
    pub(in crate::btrfs) const STATUS: &str = "scrub-status";
    pub(in crate::btrfs) const PAUSE: &str = "scrub-pause";
    pub(in crate::btrfs) const CANCEL: &str = "scrub-cancel";

    /// Reports the progress.
    ///
    /// # Errors
    /// Damage, I/O.
    pub(in crate::btrfs) fn tell(&self, volume: &Volume) -> Result<String> {
        let mut status = self.status.lock().clone();
        status.uuid = names::uuid(&volume.info()?.uuid);
        Ok(serde_json::to_string(&status)?)
    }

    /// Stops the running scrub.
    ///
    /// # Errors
    /// `Refused` if there is none.
    pub(in crate::btrfs) fn pause(&self) -> Result<()> {
        let status = self.status.lock();
        if status.state != State::Running {
            return Err(Failure::refused("there is no scrub under way").into());
        }
        self.stops.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Stops the running scrub, and forgets it.
    pub(in crate::btrfs) fn cancel(&self) {
        let mut status = self.status.lock();
        if status.state == State::Running {
            self.forgets.store(true, Ordering::Relaxed);
            self.stops.store(true, Ordering::Relaxed);
        } else {
            *status = ScrubStatus::default();
        }
    }

    /// Notes that a scrub runs, until the returned guard is dropped.
    ///
    /// # Errors
    /// `Busy` if one is running.
    pub(super) fn begin(&self, before: &ScrubStatus, read_only: bool) -> Result<Part<'_>> {
        let mut status = self.status.lock();
        if status.state == State::Running {
            let text = "a scrub is under way: `scrub status` tells how far it is";
            return Err(Failure::new(Status::Busy, text).into());
        }
        self.stops.store(false, Ordering::Relaxed);
        self.forgets.store(false, Ordering::Relaxed);
        *status = begun(before, read_only);
        Ok(Part { of: self, before: before.clone(), begun: Instant::now() })
    }
}

/// One part of a scrub, from its start or resumption to its end.
pub(super) struct Part<'a> {
    of: &'a Scrubbing,
    before: ScrubStatus,
    begun: Instant,
}

impl Part<'_> {
    /// Notes the progress; breaks if the scrub is to stop.
    pub(super) fn watch(&self, progress: &ScrubProgress) -> ControlFlow<()> {
        let mut status = self.of.status.lock();
        status.progress = sum(&self.before.progress, progress);
        status.took_ms = took(self.before.took_ms, self.begun.elapsed());
        if self.of.stops.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Notes how the scrub ended.
    pub(super) fn end(&self, progress: Option<&ScrubProgress>, state: State, failure: Option<String>) {
        let mut status = self.of.status.lock();
        if let Some(progress) = progress {
            status.progress = sum(&self.before.progress, progress);
        }
        status.took_ms = took(self.before.took_ms, self.begun.elapsed());
        (status.state, status.failure) = (state, failure);
        if self.of.forgets.load(Ordering::Relaxed) {
            *status = ScrubStatus::default();
        }
    }
}

/// The state of a scrub that starts or resumes.
pub(super) fn begun(before: &ScrubStatus, read_only: bool) -> ScrubStatus {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began_at = match before.began_at {
        0 => i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        known => known,
    };
    ScrubStatus { state: State::Running, read_only, began_at, failure: None, ..before.clone() }
}
