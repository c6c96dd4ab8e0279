//! Records failures of single files while a command continues with the other files, and reports them at the end. `rm`,
//! `ls`, `tally` (for `put`, `get` and `cp`) and others use it.

use std::error::Error as StdError;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Chain, Error, Result};
use rustix::io::Errno;

use crate::commands::failure::{Failure, Status, one_line, status_of, status_of_cause};
use crate::commands::interrupt::is_interruption;
use crate::commands::output::warn;

/// Most failures that are reported; further ones are counted.
const TOLD_MAX: usize = 1000;

/// Failures of single files and directories.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: AtomicU64,
    told: Mutex<Vec<Error>>,
}

impl Failures {
    /// Records a failure, so that the command can continue.
    ///
    /// # Errors
    /// The failure itself, if the command `fails_fast`, there is no room, or a signal interrupted it.
    pub(crate) fn note<T>(&self, result: Result<T>, fails_fast: bool) -> Result<Option<T>> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        if fails_fast || ends(&*error) {
            return Err(error);
        }
        self.add(error);
        Ok(None)
    }

    /// Records a failure.
    pub(crate) fn add(&self, error: Error) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX {
            told.push(error);
        }
    }

    /// Number of failures.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Reports every recorded failure. `count_done` names were `done`: "copied", "removed".
    ///
    /// # Errors
    /// The only failure; or their number, with the status of the first.
    pub(crate) fn tell(&self, count_done: u64, done: &str) -> Result<()> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.count.load(Ordering::Relaxed);
        if (count, count_done) == (1, 0) {
            // A single failure needs no summary.
            return told.pop().map_or(Ok(()), Err);
        }
        for error in &*told {
            warn(&one_line(error));
        }
        let Some(first) = told.first() else {
            return Ok(());
        };
        let text = match count {
            1 => format!("one entry could not be {done}; the others were"),
            count => format!("{count} entries could not be {done}; the others were"),
        };
        Err(Failure::new(status_of(first), text).into())
    }
}

/// True for a failure after which a command cannot continue: there is no room, or a signal interrupted it.
pub(crate) fn ends(error: &(dyn StdError + 'static)) -> bool {
    let has_no_room = status_of_cause(error) == Status::NoSpace && !is_of_one_file(error);
    has_no_room || is_interruption(error)
}

/// True if a file exceeds the largest size on the host: other files may fit.
fn is_of_one_file(error: &(dyn StdError + 'static)) -> bool {
    Chain::new(error).any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let kind = kind.or_else(|| cause.downcast_ref::<Errno>().map(|errno| errno.kind()));
        kind == Some(io::ErrorKind::FileTooLarge)
    })
}
