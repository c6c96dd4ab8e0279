//! Implements devices that fail or record, around any other device.
//!
//! [`FailingDevice`] answers chosen operations with an error, or does part of a write before it (a torn write).
//! [`RecordingDevice`] records every write and flush of a run, and makes from them the images that a crash at any
//! moment could have left: with all flushed writes, and any part of the others. [`FullDevice`] is a sparse file whose
//! host has limited space.
//!
//! All keep the promises of `blockdev::Device` except as planned. They fail only as planned, or by running out of
//! memory: the record holds all bytes ever written. Called by `fault_runs`, by `testkit::crash` and `log_replay` of
//! `trials`, and by tests of error paths and of crashes.

mod failing;
mod full;
mod recording;

pub use failing::{FailingDevice, Fault, FaultKind};
pub use full::FullDevice;
pub use recording::{Event, RecordingDevice, crash_onto};
