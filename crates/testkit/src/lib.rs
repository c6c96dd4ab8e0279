//! Models, simulated devices and checks for the tests: never part of a release binary.
//!
//! [`model`] is a file system of plain maps; [`property`] drives it and a real volume with the same random
//! operations and compares them; [`hostile`] changes
//! what images say and mends their checksums; [`crash`] asks what a power cut or a
//! failing device leaves of a volume; `reference` calls `btrfs check`.

pub mod crash;
pub mod hostile;
pub mod model;
mod number;
pub mod property;
pub mod reference;

pub use crash_explorer::{Random, faults};
