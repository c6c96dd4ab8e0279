//! Checks the consistency of an f2fs file system without writing to it.
//!
//! ```text
//! device --supers--> superblock --packs--> checkpoint --tables--> NAT, SIT --files--> claims --space--> findings
//! ```
//!
//! [`check`] reads the state of the newest valid checkpoint: first the tables (used node numbers and blocks), then
//! every file from the root directory on, then the orphans and quota files. Each node and each block of data is
//! *claimed* when a reference to it is met. At the end claims are compared with the tables, with the summaries of
//! segments and with the counters of the checkpoint.
//!
//! Invariants:
//! - nothing is written to the device, and fsyncs after the checkpoint are not replayed: the report says how many nodes
//!   the next mount would replay;
//! - memory is bounded by the verified superblock of a device that is at least as large: two bits per block of the main
//!   area and two per node, a cache of 16 MiB, the names of one directory, and the open nodes of a walk;
//! - a node is entered once, however many references it has, so that every walk ends.
//!
//! Failure: faults of the file system are [`Finding`]s, never errors. [`Error`] means that the check cannot be done: no
//! superblock, no checkpoint, an unknown feature.
//!
//! Callers: the command line, and tests that check written volumes.

mod bitmap;
mod code;
mod error;
mod files;
mod finding;
mod fsync_chain;
mod names;
mod packs;
mod pass;
mod run;
mod space;
mod summaries;
mod supers;
mod tables;
mod volume;

pub use checking::{CodeTable, PassTable, Watch};
pub use code::Code;
pub use error::Error;
pub use finding::{Finding, Place, Report};
pub use pass::Pass;
pub use run::{Options, check};
