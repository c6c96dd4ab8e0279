//! Counts the files and failures of a copy: the observer that commands pass to a transfer. Called by `put`, `get` and
//! `cp`.

use std::sync::atomic::{AtomicU64, Ordering};

use spinney::transfer::{Error, Loss, Observer};

use crate::commands::failures::{Failures, ends};
use crate::commands::interrupt::Interrupt;
use crate::commands::output::warn;
use crate::commands::progress::Progress;

/// Counters of the losses of a copy, by kind.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// Files that kept the owner or group of this process.
    pub(crate) owners: AtomicU64,
    /// Attributes and flags that could not be set.
    pub(crate) xattrs: AtomicU64,
    /// Device nodes that could not be made.
    pub(crate) nodes: AtomicU64,
    /// Device nodes that the options left out.
    pub(crate) withheld_nodes: AtomicU64,
    /// Files without set-user and set-group bits or capabilities that the options left out.
    pub(crate) withheld_setid: AtomicU64,
    /// Files that became shorter while they were copied.
    pub(crate) shortened: AtomicU64,
    /// Files without these, because their owner or group changed.
    pub(crate) disowned: AtomicU64,
}

/// The names that the progress counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All attempts; failures are subtracted at the end.
    Tried,
    /// Successful copies.
    Done,
}

/// Observes a copy for a command.
pub(crate) struct Tally<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) counted: Counted,
    pub(crate) losses: Losses,
    /// Bytes of contents that are shared with their source.
    pub(crate) shared: AtomicU64,
    /// Files that an earlier, interrupted copy had completed.
    pub(crate) found: AtomicU64,
    /// Records failures, so that the others are copied; without it the first failure ends the copy.
    pub(crate) failures: Option<&'a Failures>,
    pub(crate) interrupt: Option<&'a Interrupt>,
}

impl<'a> Tally<'a> {
    /// A copy that ends with its first failure.
    pub(crate) fn new(progress: &'a Progress, counted: Counted) -> Self {
        let (shared, found) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { progress, counted, losses: Losses::default(), shared, found, failures: None, interrupt: None }
    }
}

impl Tally<'_> {
    /// Warns of files that became shorter while they were copied.
    pub(crate) fn tell_shortened(&self) {
        let shortened = count(&self.losses.shortened);
        if shortened > 0 {
            warn(&format!("{shortened} files became shorter while they were copied: the copies end where they ended"));
        }
    }
}

impl Observer for Tally<'_> {
    fn tried(&self) {
        if self.counted == Counted::Tried {
            self.progress.add_name();
        }
    }

    fn done(&self) {
        if self.counted == Counted::Done {
            self.progress.add_name();
        }
    }

    fn copied(&self, bytes: u64) {
        self.progress.add_bytes(bytes);
    }

    fn shared(&self, bytes: u64) {
        self.progress.add_bytes(bytes);
        self.shared.fetch_add(bytes, Ordering::Relaxed);
    }

    fn found(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    fn lost(&self, what: Loss) {
        let losses = &self.losses;
        let count = match what {
            Loss::Owner => &losses.owners,
            Loss::Device => &losses.nodes,
            Loss::WithheldDevice => &losses.withheld_nodes,
            Loss::WithheldPower => &losses.withheld_setid,
            Loss::Shortened => &losses.shortened,
            Loss::DisownedPower => &losses.disowned,
            _ => &losses.xattrs,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, error: Error) -> Result<(), Error> {
        match self.failures.filter(|_| !ends(&error)) {
            Some(failures) => {
                failures.add(error.into());
                Ok(())
            }
            None => Err(error),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.interrupt.is_some_and(Interrupt::is_asked)
    }
}

/// The value of a counter.
pub(crate) fn count(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}
