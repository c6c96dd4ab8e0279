//! Tests every [`vfs::FileSystem`] by a conformance suite of named cases, and has a file system in memory that passes
//! it. Called by the tests of the crates that implement a file system.
//!
//! [`run`] gives each case a file system of its own and reports expected and found results. [`MemoryFs`] is the
//! simplest complete implementation: the tests of a server run on it, and tests for all formats are developed on it.
//! [`paths`] tests a [`vfs::Volume`] over any of them; [`model`] and [`property`] compare one with plain maps after
//! random operations. None of it is ever part of a release binary.

pub mod format;
mod memory;
pub mod model;
mod number;
pub mod paths;
pub mod property;
mod suite;

pub use memory::{MemoryFs, MemoryOptions};
pub use suite::{Failure, Report, run};
