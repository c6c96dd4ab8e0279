//! Saves the progress of a scrub in a file of the user: `$XDG_STATE_HOME/spinney/scrub.UUID`.
//!
//! Invariants
//! * The scrubbing process holds a lock on `scrub.UUID.lock`, which ends with the process. A file in state `running`
//!   without this lock belongs to an interrupted scrub.
//! * The contents count only if version and file system match.
//!
//! Failure: without a home directory nothing is saved, which is reported once; malformed contents are refused with the
//! path. Caller: `run`.

use std::fs::File;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::super::state_file::Kept;
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

/// The file with the state of a scrub.
#[derive(Debug)]
pub(super) struct Saved {
    kept: Kept,
    /// Held while this program scrubs.
    claim: Option<File>,
}

impl Saved {
    /// The file for a file system; `None` if the user has no directory for such files.
    pub(super) fn of(uuid: &str) -> Option<Self> {
        Some(Self { kept: Kept::of("scrub", uuid, "how far the scrub came")?, claim: None })
    }

    /// The same, locked for a process that scrubs: there is one at a time.
    ///
    /// # Errors
    /// `Busy` if another program of this user scrubs the file system.
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

    /// The saved state; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` for malformed contents; the host's.
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

    /// Saves the progress.
    ///
    /// # Errors
    /// The host's.
    pub(super) fn save(&self, scrub: &ScrubStatus) -> Result<()> {
        self.kept.write(&Contents { version: VERSION, scrub: scrub.clone() })
    }

    /// Removes the file.
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
