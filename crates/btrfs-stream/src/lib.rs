//! The btrfs send stream as types, with an encoder and a decoder.
//!
//! A stream is a header (magic and version) and commands that build one subvolume, or the difference between two.
//! Several streams may follow each other; each ends with [`Command::End`].
//!
//! - [`Command`]: what a command says, borrowed from the decoder or the caller
//! - [`Encoder`]: writes streams byte for byte in the kernel's order of attributes
//! - [`Decoder`]: reads streams of versions 1 and 2, which are hostile input: it ends in commands or an [`Error`], and
//!   its memory is bounded by [`Version::command_size_max`]
//! - [`ResumePoint`]: a place in a stream that was cut short, from which its rest can be sent
//! - [`dump`]: one line a command, as `btrfs receive --dump` prints them
//!
//! The decoder checks what can be checked without a file system: lengths, checksums, that each attribute is there once
//! and has its type, that strings hold no NUL. What paths mean is for the receiver to decide.
//!
//! The facts are from btrfs-progs' `Documentation/dev/dev-send-stream.rst` and from streams that the kernel wrote.

// What reads a stream decides with every length and index whether it can be right (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod attribute;
mod command;
mod decoder;
pub mod dump;
mod encoder;
mod error;
mod fields;
mod point;
mod value;
mod version;

pub use attribute::Attribute;
pub use command::{CloneRange, Command, EncodedWrite, Special};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::{Error, Problem, Result};
pub use point::{NotAToken, Prefix, ResumePoint};
pub use value::{Compression, Time, Uuid};
pub use version::Version;

#[cfg(test)]
mod tests;
