//! What every [`vfs::FileSystem`] has to do, as cases with names, and a file system in memory that does it.
//!
//! [`run`] gives each case a file system of its own and reports what it expected and what it found. [`MemoryFs`] is
//! the plainest complete implementation: the tests of a server run on it, and whatever is written for any format is
//! tried on it first. [`paths`] is what a [`vfs::Volume`] has to do over any of them; [`model`]
//! and [`property`] compare one with plain maps after random operations. None of it is
//! ever part of a release binary.

pub mod format;
mod memory;
pub mod model;
mod number;
pub mod paths;
pub mod property;
mod suite;

pub use memory::{MemoryFs, MemoryOptions};
pub use suite::{Failure, Report, run};
