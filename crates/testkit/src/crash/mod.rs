//! Tests volumes after power cuts, and after device failures.
//!
//! `workload` makes an image and drives random operations over it, with syncs in between, and keeps a [`Journal`]: the
//! model after each operation, how many writes and flushes the device had seen by then, and the generation that the
//! volume had committed. `explore` makes images that a crash could have left and judges each: it opens, read-only and
//! for writing, everything in it can be read, it has the state of the last sync that returned or of a later commit,
//! and it can be changed. `inject` lets the n-th write or flush of the same workload fail. `damage` flips bytes.
//!
//! The expected contents of a state follow from its generation. The commit at the end of a sync has exactly the model's
//! tree. Any other commit happened within one operation: it has the names from before or from after it, and the
//! contents of files unchanged since the last sync.
//!
//! `fsync` syncs single files and directories, and checks their promises between two commits.
//!
//! Every state that a power cut can leave of short workloads is explored by another crate, `crash_explorer`.
//!
//! A failure names the seed and the crash point, which give the same image again. Called by the tests of this crate.

mod damage;
mod explore;
mod fsync;
mod inject;
mod judge;
mod workload;

pub use damage::{DamageReport, run_damage, run_read_errors};
pub use explore::{CrashReport, explore};
pub use fsync::{FsyncReport, explore_fsync};
pub use inject::{FaultReport, inject};
pub use workload::{Journal, Moment, Settings};
