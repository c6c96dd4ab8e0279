//! Scrub: everything that the last commit has is read, all copies of it, and checked; bad copies are written anew from
//! good ones, and the files named of which no copy is good.
//!
//! `run` takes the steps ([`btrfs_store::Scrub`]) and counts; `report` is what there is to tell; `named` finds files
//! that lost data belongs to, in snapshots too; `stats` keeps the device's error counters where the kernel has them.
//!
//! Invariants
//! * Only copies that are wrong are written, and only with bytes that passed the check.
//! * Others may write meanwhile: what they free stays out of use until it was read.
//!
//! Failure: what is damaged is told, and no failure, unless it is the extent or the checksum tree itself. Callers: the
//! volume, for its commands.

mod named;
mod report;
mod run;
mod stats;

pub use report::{LostRange, ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind};
pub use stats::DeviceErrors;

pub(crate) use run::run;
pub(crate) use stats::{read as device_errors, reset as reset_device_errors};
