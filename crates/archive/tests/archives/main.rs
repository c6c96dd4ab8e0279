//! The tests of the crate in one program, which links faster than one for each: archives that every tool writes, and
//! hostile ones.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests fail by panicking")]

mod common;
mod cpio_reading;
#[path = "common/exercise.rs"]
mod exercise;
mod mutations;
mod tar_errors;
mod tar_reading;
mod tar_writing;
