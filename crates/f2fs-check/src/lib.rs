//! Checks the consistency of an f2fs file system without writing to it.
//!
//! ```text
//! device --supers--> superblock --packs--> checkpoint --tables--> NAT, SIT --files--> claims --space--> findings
//! ```
//!
//! [`check`] reads the state that the newest whole checkpoint describes: first the tables (which numbers of nodes are
//! in use, which blocks are), then every file from the root directory on, then the orphans and quota files. Each node
//! and each block of data is *claimed* when something leads to it. What has to agree is compared at the end: claims
//! with the tables, with the summaries of segments and with the counters of the checkpoint.
//!
//! Invariants:
//! - nothing is written to the device, and what was fsynced after the checkpoint is not replayed: the report says how
//!   much the next mount would;
//! - memory is bounded by what the verified superblock says of a device that is as large as that: two bits a block of
//!   the main area and two a node, a cache of 16 MiB, the names of one directory, and what is open of a walk;
//! - a node is entered once, however many others lead to it, so that every walk ends.
//!
//! How it fails: what is wrong with the file system is a [`Finding`], never an error. [`Error`] is left for what keeps
//! the check itself from being done: no superblock, no checkpoint, a feature that is not known.
//!
//! Callers: the command line, and tests as a judge of what was written.

mod bitmap;
mod code;
mod error;
mod files;
mod finding;
mod log;
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
