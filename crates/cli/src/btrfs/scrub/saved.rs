//! How far a scrub came, in a file of the user who scrubs: `$XDG_STATE_HOME/spinney/scrub.UUID`.
//!
//! Invariants
//! * A lock on `scrub.UUID.lock` says that the program which scrubs is there: it goes with that program, however that
//!   ends. A file that says `running` and has no such lock tells of a scrub that was interrupted.
//! * What is read counts only where it is of this version and of this file system.
//!
//! Failure: without a place for the file (no home directory) nothing is kept, which is said once; a file that makes no
//! sense is refused by name. Callers: the commands of `scrub`.

use std::fs::File;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::super::kept::Kept;
use super::status::{ScrubStatus, State};
use crate::commands::failure::{Failure, Status};
use crate::commands::output::warn;

/// Version of the file.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    scrub: ScrubStatus,
}

/// Where the state of a file system's scrub is kept.
#[derive(Debug)]
pub(super) struct Saved {
    kept: Kept,
    /// Held while this program scrubs.
    claim: Option<File>,
}

impl Saved {
    /// The place for a file system; none where the user has no directory for such files.
    pub(super) fn of(uuid: &str) -> Option<Self> {
        Some(Self { kept: Kept::of("scrub", uuid, "how far the scrub came")?, claim: None })
    }

    /// The same, for who scrubs: there is one at a time.
    ///
    /// # Errors
    /// `Busy` where another program of this user scrubs it.
    pub(super) fn claim(uuid: &str) -> Result<Option<Self>> {
        let Some(saved) = Self::of(uuid) else {
            warn("how far the scrub comes is not kept: neither XDG_STATE_HOME nor HOME is set");
            return Ok(None);
        };
        match saved.kept.lock() {
            Ok(Some(lock)) => Ok(Some(Self { claim: Some(lock), ..saved })),
            Ok(None) => Err(Failure::new(Status::Busy, "it is being scrubbed: `scrub status` tells how far").into()),
            Err(error) => {
                warn(&format!("how far the scrub comes is not kept: {error:#}"));
                Ok(None)
            }
        }
    }

    /// What was kept; none where there is nothing.
    ///
    /// # Errors
    /// `Corrupt` for a file that makes no sense; the host's.
    pub(super) fn load(&self) -> Result<Option<ScrubStatus>> {
        let Some(Contents { version, mut scrub }) = self.kept.read(BYTES_MAX)? else { return Ok(None) };
        ensure!(version == VERSION, self.kept.no_sense("of another version"));
        ensure!(scrub.uuid == self.kept.uuid(), self.kept.no_sense("of another file system"));
        let is_there = self.claim.is_none() && self.kept.lock().is_ok_and(|lock| lock.is_none());
        if scrub.state == State::Running && !is_there {
            scrub.state = State::Interrupted;
        }
        Ok(Some(scrub))
    }

    /// Keeps how far it is.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn save(&self, scrub: &ScrubStatus) -> Result<()> {
        self.kept.write(&Contents { version: VERSION, scrub: scrub.clone() })
    }

    /// Forgets it.
    ///
    /// # Errors
    /// `Busy` while a program scrubs; the host's.
    pub(super) fn forget(&self) -> Result<()> {
        if self.kept.exists() && self.claim.is_none() && self.kept.lock()?.is_none() {
            return Err(Failure::new(Status::Busy, "it is being scrubbed: stop that program first").into());
        }
        self.kept.remove()
    }
}
