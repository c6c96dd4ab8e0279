//! Builds subvolumes from send streams.
//!
//! A [`Receiver`] applies the commands of a stream to an open volume, one after the other. A stream is hostile input:
//! its checksums prove nothing about who wrote it.
//!
//! ```text
//! subvol, snapshot -> being built: writable, no received UUID -> end -> received: read-only, with the sender's UUID
//!                     a failure leaves it there, or `Receiver::discard` deletes it
//! ```
//!
//! Invariants
//! * Nothing outside of the subvolume that is being built changes. Paths go down from its root name by name, never
//!   along a symbolic link, never into another subvolume; `..`, `.`, empty names and absolute paths are refused.
//! * A subvolume becomes read-only and gets its received UUID in one commit, after the end of its stream and after all
//!   of its data. What looks whole is whole.
//! * What a resumable receipt leaves after a break says how far the stream was applied, and has exactly that in it
//!   (`unfinished`).
//! * Memory is bounded by one command, and by one entry for each file that cannot be changed later on (immutable,
//!   append-only), whose flags are set last.
//!
//! Failure: an [`Error`] names the command by the byte of the stream where it begins, and the path in it.
//!
//! Callers: the command `spinney receive`, programs.

#![deny(clippy::indexing_slicing)]

mod error;
mod held;
mod note;
mod origins;
mod path;
mod receiver;
mod subvolume;
mod unfinished;
mod watch;

pub use error::{Cause, Error, Result};
pub use path::BadPath;
pub use receiver::{Left, ReceivedSubvolume, Receiver, Report};
pub use watch::{Options, Silent, Watch};
