//! How far a check has read the data, in a file of the user who checks: `$XDG_STATE_HOME/spinney/check.UUID`.
//!
//! Failure: what cannot be kept or read is said once, and the check begins at the beginning. Caller: the check.

use std::sync::atomic::{AtomicBool, Ordering};

use btrfs_check::{BadRun, Mark, Marks, StateId};
use commands::human;
use commands::output::warn;
use serde::{Deserialize, Serialize};

use super::super::kept::Kept;

/// Version of the file.
const VERSION: u32 = 1;
/// Longest file that is read, in bytes: more than all runs take that a mark may have.
const BYTES_MAX: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    state: State,
    leaves: u64,
    bytes: u64,
    bad: Vec<Bad>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct State {
    fsid: String,
    generation: u64,
    csum: [u8; 32],
    leaves: u64,
}

#[derive(Serialize, Deserialize)]
struct Bad {
    at: u64,
    len: u64,
    mirror: u32,
    is_read: bool,
    has_other: bool,
}

/// The file.
#[derive(Debug)]
pub(super) struct MarkFile {
    /// The check goes on from what is in it.
    resumes: bool,
    has_warned: AtomicBool,
}

impl MarkFile {
    pub(super) fn new(resumes: bool) -> Self {
        Self { resumes, has_warned: AtomicBool::new(false) }
    }

    fn file(state: &StateId) -> Option<Kept> {
        Kept::of("check", &state.fsid.to_string(), "how far the check came")
    }

    fn warn(&self, text: &str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            warn(text);
        }
    }
}

impl Marks for MarkFile {
    fn load(&self, state: &StateId) -> Option<Mark> {
        let found = Self::file(state).map_or(Ok(None), |file| file.read::<Contents>(BYTES_MAX));
        let found = found.unwrap_or_else(|error| {
            warn(&format!("{error:#}"));
            None
        });
        let wanted = State::of(state);
        let found = found.filter(|found| found.version == VERSION && found.state == wanted);
        match (found, self.resumes) {
            (Some(found), true) => Some(found.mark()),
            (Some(found), false) => {
                let bytes = human::bytes(found.bytes);
                warn(&format!("a check of this state was ended after {bytes} of data: `--resume` goes on from there"));
                None
            }
            (None, true) => {
                warn("no check of this state was ended in its data: it begins at the beginning");
                None
            }
            (None, false) => None,
        }
    }

    fn save(&self, state: &StateId, mark: &Mark) {
        let Some(file) = Self::file(state) else {
            return self.warn("how far the check comes is not kept: neither XDG_STATE_HOME nor HOME is set");
        };
        if let Err(error) = file.write(&Contents::of(state, mark)) {
            self.warn(&format!("how far the check comes is not kept: {error:#}"));
        }
    }

    fn forget(&self, state: &StateId) {
        if let Some(Err(error)) = Self::file(state).map(|file| file.remove()) {
            self.warn(&format!("{error:#}"));
        }
    }
}

impl State {
    fn of(state: &StateId) -> Self {
        let StateId { fsid, generation, csum, leaves } = *state;
        Self { fsid: fsid.to_string(), generation, csum, leaves }
    }
}

impl Contents {
    fn of(state: &StateId, mark: &Mark) -> Self {
        let bad = mark.bad.iter().map(|run| {
            let BadRun { at, len, mirror, is_read, has_other } = *run;
            Bad { at, len, mirror, is_read, has_other }
        });
        let bad = bad.collect();
        Self { version: VERSION, state: State::of(state), leaves: mark.leaves, bytes: mark.bytes, bad }
    }

    fn mark(self) -> Mark {
        let bad = self.bad.into_iter().map(|run| {
            let Bad { at, len, mirror, is_read, has_other } = run;
            BadRun { at, len, mirror, is_read, has_other }
        });
        Mark { leaves: self.leaves, bytes: self.bytes, bad: bad.collect() }
    }
}
