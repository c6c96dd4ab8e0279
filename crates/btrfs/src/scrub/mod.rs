//! Scrubs a volume: all copies of the last committed state are read and checked; bad copies are rewritten from good
//! ones, and files without a good copy are named.
//!
//! `run` takes the steps ([`btrfs_store::Scrub`]) and counts; `report` has the results; `lost_files` finds files that
//! lost data belongs to, in snapshots too; `stats` keeps the device's error counters where the kernel has them.
//!
//! Invariants
//! * Only copies that are wrong are written, and only with bytes that passed the check.
//! * Concurrent writes continue: space that they free is held until it was scrubbed.
//!
//! Failure: damage is a result, and no failure, unless the extent or the checksum tree itself is damaged. Callers:
//! `volume::scrub`, for the command `scrub`.

mod lost_files;
mod report;
mod run;
mod stats;

pub use report::{LostRange, ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind};
pub use stats::DeviceErrors;

pub(crate) use lost_files::files_with;
pub(crate) use run::run;
pub(crate) use stats::{read as device_errors, reset as reset_device_errors};
