//! The interface of a file system format.
//!
//! ```text
//!   program, library, bindings
//!        | recognise (magic numbers), then one of
//!        v
//!   Format: open | make | check | repair one static value for each format
//!        |
//!        v
//!   Engine: volume by paths | file system for a server | info
//! ```
//!
//! A format implements [`Format`] and is added to one list; nothing else has to name it. Operations that only one
//! format has (snapshots, send streams) are reached through its own type ([`Engine::own`]).
//!
//! Invariants
//! * an option that a format does not know is refused by its name ([`OptionError`]), before the image is touched;
//! * [`Format::check`] and [`Format::plan_repair`] write nothing to the devices.
//!
//! Failure: [`vfs::Error`]. Callers: the library `spinney`, which has the list of formats.

mod check;
mod engine;
pub mod magic;
pub mod options;
mod repair;
pub mod size;

pub use check::{CheckOptions, CheckReport, Finding, Meaning, PassRow, PlacePart, codes, passes};
pub use engine::{Devices, Engine, Format, Info, single};
pub use options::{MakeOptions, OptionError, VolumeOptions};
pub use repair::{RepairOptions, RepairPlan};
