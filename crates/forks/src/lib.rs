//! Forks of subvolumes: made in two snapshots, compared with their base, merged back, dropped.
//!
//! A fork is a writable snapshot of its *ancestor*, and the ancestor is a read-only snapshot of the base at the moment
//! of the fork. Nothing new is on the disk: both are subvolumes of btrfs, and the kernel reads them. The ancestor lies
//! in `.spinney/forks/ID/ancestor` below the root of the volume, in a directory that only its owner may search, whose
//! extended attribute `user.spinney.fork` is the [`record::Record`]: base, expiry, limit.
//!
//! ```text
//! base --snapshot--> ancestor (read-only) --snapshot--> fork
//!   ^                                                     |
//!   +------ merge: exchanged with a snapshot that has the changes of the fork since its ancestor
//! ```
//!
//! Invariants
//! * A fork is there or not: its name appears with the last step, after its ancestor and its record. The next
//!   [`Forks::merge`] or [`Forks::drop_fork`] removes the leftovers of an interrupted call below `.spinney/forks`.
//! * A fork has every write that reached the volume before the call, also of files that are open. It has no files
//!   without names. Stores through a mapping of a mounted file are in it after msync(2).
//! * A merge is all or nothing: it changes a snapshot of the target, syncs it, and exchanges the two names in one
//!   transaction. Files that are open in the target stay those of the old one, which is deleted.
//! * The record and the ancestor decide what a fork is a fork of; nothing in the fork itself is trusted for that.
//! * Merging never follows a symbolic link, and never leaves the subvolume.
//!
//! Failure: an [`Error`]; after it the fork and the target are as they were.
//!
//! Callers: `spinney`, which offers it to the commands `fork` and `run` and to other programs.

mod error;
mod fork;
mod hidden;
mod merge;
mod node;
mod patch;
mod place;
pub mod record;
mod rules;
mod text;
mod touched;
mod tree;

pub use error::{Error, Result};
pub use fork::{Fork, ForkOptions, Forks};
pub use merge::{Conflict, ConflictKind, Merge, Merged, Strategy};
pub use patch::{PatchError, write_patch};
pub use text::{merge_lines, unified};
