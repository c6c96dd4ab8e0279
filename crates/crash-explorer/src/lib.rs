//! The crash explorer: tests every state that a power cut can leave.
//!
//! A workload runs on a device that records all writes and flushes (`tape`). Every state that `docs/media.md` allows is
//! made from the record (`cuts`): after each flush, with any part of the later writes, in units of 512 bytes and in any
//! order. Each state is opened, which replays its log, read whole, and compared with the promises (`oracle`,
//! `compare`); some are changed, and some are shown to a [`Witness`].
//!
//! Workloads are those of CrashMonkey's ACE (`ace`), random ones and eight threads (`random_workloads`), random
//! programs with copies, snapshots, subvolumes and handles (`programs`), a text (`language`), or a function (`script`).
//! The result of `stat` is checked after each step (`observe`), and in each state. A state has a name,
//! `WORKLOAD/EPOCH:CHOICE` or `WORKLOAD/drawn-N`, which with the seed reproduces it; threads run differently each time,
//! and their failures are kept as images.
//!
//! Invariants
//! * The clock of the volumes stands still, and their random numbers have a seed: one workload, one sequence of bytes.
//! * A state is counted once, however many workloads and names lead to it: states are told apart by a 64-bit hash of
//!   all that differs from the image they began with.
//! * A state is judged for the earliest and for the latest moment of the crash that leaves it.
//!
//! [`faults`] holds the devices that fail or remember, also for other tests; [`Random`] the numbers with a seed.
//!
//! A failure names the state, the promise that was broken, and the operations around it. Called by tests,
//! `cargo trials crash-explore` and `spinney verify-crash`.

mod ace;
mod compare;
mod cuts;
mod drive;
mod explore;
mod fault_runs;
pub mod faults;
mod format;
mod history;
mod image;
mod image_files;
mod language;
mod number;
mod observe;
mod oracle;
mod plan;
mod programs;
mod progress_bar;
pub mod random;
mod random_workloads;
mod recording;
mod script;
mod sketch;
mod state;
mod step;
mod tape;
mod workload;

pub use explore::current_state;
pub use fault_runs::{FaultsReport, explore_faults};
pub use format::{Access, CLOCK, Form, Format};
pub use image::ImageDevice;
pub use image_files::store_device;
pub use language::{SyntaxError, parse};
pub use plan::{explore_all, explore_given, explore_script, explore_steps, shrink};
pub use progress_bar::watched;
pub use random::Random;
pub use script::{Promises, Script};
pub use step::{CloneHow, Reserve, Step, WriteHow};

use anyhow::Result;
use blockdev::Device;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Options of an exploration.
#[derive(Clone)]
pub struct Config {
    /// Of which format the volumes are.
    pub format: Arc<dyn Format>,
    /// About so many states, each counted once.
    pub states: u64,
    /// Of all that is drawn.
    pub seed: u64,
    /// Threads that explore; 0 for one a processor.
    pub threads: usize,
    /// Only workloads with this prefix: `ace1`, `ace2-4-`, `random-17`, `threads`.
    pub workload: Option<String>,
    /// Only the state of this name.
    pub state: Option<String>,
    /// Another judge, which is shown every n-th state.
    pub witness: Option<Arc<dyn Witness>>,
    /// One state in so many is shown to the witness.
    pub judge_every: u64,
    /// After so many failures it ends.
    pub failures_max: u64,
    /// Where the images of failures are kept.
    pub keep: Option<PathBuf>,
    /// Counters for a progress display.
    pub progress: Option<Arc<Progress>>,
}

impl Config {
    /// Two thousand states of volumes of this format.
    #[must_use]
    pub fn new(format: Arc<dyn Format>) -> Self {
        Self {
            format,
            states: 2000,
            seed: 1,
            threads: 0,
            workload: None,
            state: None,
            witness: None,
            judge_every: u64::MAX,
            failures_max: 10,
            keep: None,
            progress: None,
        }
    }

    /// How many threads explore.
    fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        }
    }
}

/// Counters that go up while states are explored.
#[derive(Debug, Default)]
pub struct Progress {
    /// Workloads done.
    pub workloads: AtomicU64,
    /// States judged.
    pub states: AtomicU64,
    /// Failures so far.
    pub failures: AtomicU64,
}

/// Another judge of a state: another implementation of the format, for example.
pub trait Witness: Send + Sync {
    /// Judges a state; `image` can be changed.
    ///
    /// # Errors
    /// The first fault.
    fn judge(&self, state: &str, image: Arc<dyn Device>) -> Result<Judgement>;
}

/// The judgement of a state that is not wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It sees the same.
    Agrees,
    /// This state is none that it can look at.
    CannotSay,
}

/// A state that breaks a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its name.
    pub state: String,
    /// Which promise.
    pub reason: String,
    /// The operations, and the surviving writes.
    pub story: String,
    /// The image, where it was kept.
    pub image: Option<PathBuf>,
}

/// Counts of an exploration.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Workloads that were run.
    pub workloads: u64,
    /// States that were judged, each counted once.
    pub states: u64,
    /// States that another name had led to before.
    pub again: u64,
    /// States with a log to replay.
    pub replayed: u64,
    /// States that were changed and read again.
    pub changed: u64,
    /// Crashes in the replay of a state's log, after which it was replayed again.
    pub replays_cut: u64,
    /// States that the witness saw as we do.
    pub judged: u64,
    /// States that the witness could not look at.
    pub skipped: u64,
    /// Failures, also those that are not listed.
    pub failure_count: u64,
    /// The first failures.
    pub failures: Vec<Failure>,
}
