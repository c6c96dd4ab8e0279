//! Builds subvolumes from send streams.
//!
//! A [`Receiver`] applies the commands of a stream to an open volume in order. It does not trust the stream: checksums
//! do not prove where a stream comes from.
//!
//! ```text
//! subvol, snapshot -> being built: writable, no received UUID -> end -> received: read-only, with the sender's UUID
//!                     a failure leaves it there, or `Receiver::discard` deletes it
//! ```
//!
//! Invariants
//! * Only the subvolume being built changes. Paths resolve from its root name by name, never through a symbolic link or
//!   into another subvolume; `..`, `.`, empty names and absolute paths are refused.
//! * A subvolume becomes read-only and gets its received UUID in one commit, after all of its data and the end of its
//!   stream. So no incomplete subvolume looks complete.
//! * If a resumable receive is interrupted, it leaves a snapshot with a note of how far the stream was applied, and
//!   the snapshot has exactly that content (`leftovers`).
//! * Memory is bounded by one command plus one entry per immutable or append-only file, whose flags are set last.
//!
//! Failure: an [`Error`] names the command by the byte of the stream where it begins, and the path in it.
//!
//! Callers: `spinney`, which offers it to the command `spinney receive` and to other programs; `btrfs-backup`.

#![deny(clippy::indexing_slicing)]

mod error;
mod leftovers;
mod node_ref;
mod note;
mod options;
mod origins;
mod path;
mod receiver;
mod subvolume;

pub use error::{Cause, Error, Result};
pub use options::{Notices, Options};
pub use path::BadPath;
pub use receiver::{Left, ReceivedSubvolume, Receiver, Report};
