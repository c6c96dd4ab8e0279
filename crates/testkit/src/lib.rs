//! Simulated devices and checks of btrfs for the tests: never part of a release binary.
//!
//! [`property`] is btrfs for the property test of every format; [`hostile`] edits images and corrects their checksums;
//! [`lineage`] makes nested subvolumes, compared with a model; [`crash`] tests volumes after power cuts and device
//! failures; `reference` calls `btrfs check`. Called by the tests of the btrfs crates, and by `trials`.

pub mod crash;
pub mod hostile;
pub mod lineage;
mod number;
pub mod property;
pub mod reference;

pub use crash_explorer::{Random, faults};
