//! Models, simulated devices and checks for the tests: never part of a release binary.
//!
//! [`model`] is a file system of plain maps; [`property`] drives it and a real volume with the same random
//! operations and compares them; [`faults`] holds devices that fail or remember; [`hostile`] changes
//! what images say and mends their checksums; [`crash`] asks what a power cut or a
//! failing device leaves of a volume; `reference` calls `btrfs check`.

pub mod crash;
pub mod faults;
pub mod hostile;
pub mod model;
mod number;
pub mod property;
pub mod random;
pub mod reference;

pub use random::Random;
