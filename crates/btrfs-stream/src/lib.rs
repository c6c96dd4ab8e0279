//! Encodes and decodes btrfs send streams: the commands as types.
//!
//! A stream is a header (magic and version) and commands that build one subvolume, or the difference between two.
//! Several streams may follow each other; each ends with [`Command::End`].
//!
//! - [`Command`]: a command, borrowed from the decoder or the caller
//! - [`Encoder`]: writes streams byte for byte in the kernel's order of attributes
//! - [`Decoder`]: reads streams of versions 1 and 2 as hostile input: it returns commands or an [`Error`], and
//!   [`Version::command_size_max`] bounds its memory
//! - [`ResumePoint`]: a position in a stream from which the rest of it can be sent
//! - [`dump`]: prints one line for each command, as `btrfs receive --dump` does
//!
//! The decoder checks lengths, checksums, the number and type of attributes, and that strings contain no NUL. Checks
//! that need a file system, such as those of paths, are left to the receiver. Callers: `btrfs` encodes streams,
//! `btrfs-receive` and `btrfs-backup` decode them, and `spinney receive --dump` prints them.
//!
//! The facts are from btrfs-progs' `Documentation/dev/dev-send-stream.rst` and from streams that the kernel wrote.

// Streams are untrusted: code that reads one must check every length and index (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod attribute;
mod command;
mod decoder;
pub mod dump;
mod encoder;
mod error;
mod fields;
mod resume_point;
mod value;
mod version;

pub use attribute::Attribute;
pub use command::{CloneRange, Command, EncodedWrite, Special};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::{Error, Problem, Result};
pub use resume_point::{NotAToken, Prefix, ResumePoint};
pub use value::{Compression, Time, Uuid};
pub use version::Version;

#[cfg(test)]
mod tests;
