//! Simulated devices and checks of btrfs for the tests: never part of a release binary.
//!
//! [`property`] is btrfs as the property test of every format sees it; [`hostile`] changes what images say and mends
//! their checksums; [`lineage`] makes subvolumes of subvolumes, for a model to follow; [`crash`] asks what a power
//! cut or a failing device leaves of a volume; `reference` calls `btrfs check`.

pub mod crash;
pub mod hostile;
pub mod lineage;
mod number;
pub mod property;
pub mod reference;

pub use crash_explorer::{Random, faults};
