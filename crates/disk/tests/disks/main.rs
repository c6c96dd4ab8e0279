//! The tests of the crate in one program, which links faster than one for each: forms of images, partition tables and
//! descriptions, beside the tools of others.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests fail by panicking")]

mod common;
mod containers;
mod gpt;
mod spec;
