//! The library for C: its header against the code, its recorded form, programs in C against the library, misuse,
//! damaged images and those that lie, random calls.

#![allow(unsafe_code, reason = "the tests call the functions for C")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    reason = "a test fails by panicking, and gives the pointers that the header demands"
)]

mod abi;
mod damaged;
mod go;
mod header;
mod installed;
mod lies;
mod misuse;
mod programs;
mod sequences;
