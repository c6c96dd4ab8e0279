//! The library for C and for languages that call C: `include/spinney.h` over the crate `spinney`.
//!
//! ```text
//!   spinney_*(..) -> pointer: arguments -> handle: on(..) -> spinney -> failure: -errno, message
//! ```
//!
//! Invariants
//! * `include/spinney.h` is the contract, written by hand; a test compares it with these functions and structs;
//! * a handle is a number of a table, never an address: one that is closed, foreign or of another type is told;
//! * no panic leaves a call: `handle::on` catches it, and the volume's handles refuse everything from then on;
//! * pointers of the caller are read and written in `pointer` alone, functions of the caller are called in `device`,
//!   `progress` and `streams`.
//!
//! Failure: every call returns a negative errno, with a message for the handle and the thread. Callers: programs in C,
//! `bindings/go`.

#![allow(unsafe_code, reason = "functions for C take pointers; this crate alone offers them")]
#![allow(missing_docs, reason = "include/spinney.h describes the fields and parameters")]
#![allow(clippy::missing_safety_doc, reason = "one contract for all functions: the head of include/spinney.h")]

mod changes;
mod checks;
mod copies;
mod device;
mod failure;
mod files;
mod handle;
mod list;
mod metadata;
mod names;
mod pointer;
mod progress;
mod streams;
mod subvolumes;
mod volume;

pub use changes::*;
pub use checks::*;
pub use copies::*;
pub use device::*;
pub use files::*;
pub use handle::{
    SpinneyChanges, SpinneyDevice, SpinneyDir, SpinneyFile, SpinneyReport, SpinneySubvolumes, SpinneyVolume,
    spinney_close, spinney_error_message,
};
pub use metadata::*;
pub use names::*;
pub use progress::{SpinneyProgress, SpinneyProgressFn};
pub use streams::*;
pub use subvolumes::*;
pub use volume::*;
