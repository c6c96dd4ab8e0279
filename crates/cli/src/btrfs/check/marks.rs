//! Saves the progress of a check of data in a file of the user: `$XDG_STATE_HOME/spinney/check.UUID`.
//!
//! It is valid only for the same state in the same file or device: a copy, or a file changed since, may hold other data
//! under the same superblock.
//!
//! Failure: an error of the file is reported once, and the check starts from the beginning. Caller: `check`, for
//! `check --data`.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::commands::human;
use crate::commands::output::warn;
use serde::{Deserialize, Serialize};
use spinney::btrfs::check::{BadRun, Mark, Marks, StateId};

use super::super::state_file::Kept;

/// Version of the file.
const VERSION: u32 = 2;
/// Longest file that is read, in bytes; more than the largest mark takes.
const BYTES_MAX: u64 = 4 << 20;

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    state: State,
    /// Files or disks that the state was read from; empty for a mount, whose server reports its writes.
    holders: Vec<Holder>,
    leaves: u64,
    bytes: u64,
    bad: Vec<Bad>,
}

/// A file or device that holds a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    device: u64,
    inode: u64,
    /// When the file was written last, in seconds and nanoseconds.
    written: (i64, i64),
}

impl Holder {
    pub(crate) fn of(found: &Metadata) -> Self {
        if found.file_type().is_block_device() {
            return Self { device: found.rdev(), inode: 0, written: (0, 0) };
        }
        Self { device: found.dev(), inode: found.ino(), written: (found.mtime(), found.mtime_nsec()) }
    }
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
    /// True if the check continues from its contents.
    resumes: bool,
    holders: Vec<Holder>,
    has_warned: AtomicBool,
}

impl MarkFile {
    pub(super) fn new(resumes: bool, holders: &[Holder]) -> Self {
        Self { resumes, holders: holders.to_vec(), has_warned: AtomicBool::new(false) }
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
        let found = found.filter(|found| found.holders == self.holders);
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
        if let Err(error) = file.write(&Contents::of(state, &self.holders, mark)) {
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
    fn of(state: &StateId, holders: &[Holder], mark: &Mark) -> Self {
        let bad = mark.bad.iter().map(|run| {
            let BadRun { at, len, mirror, is_read, has_other } = *run;
            Bad { at, len, mirror, is_read, has_other }
        });
        let (state, holders, bad) = (State::of(state), holders.to_vec(), bad.collect());
        Self { version: VERSION, state, holders, leaves: mark.leaves, bytes: mark.bytes, bad }
    }

    fn mark(self) -> Mark {
        let bad = self.bad.into_iter().map(|run| {
            let Bad { at, len, mirror, is_read, has_other } = run;
            BadRun { at, len, mirror, is_read, has_other }
        });
        Mark { leaves: self.leaves, bytes: self.bytes, bad: bad.collect() }
    }
}
