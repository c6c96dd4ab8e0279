//! The log: what an fsync makes durable before the next commit, and what becomes of it after a
//! crash.
//!
//! A log tree holds copies of a subvolume's items, as they were when a caller asked for them to
//! be durable. As long as nothing crashes nobody reads it: the next commit has all that it says,
//! and frees it. After a crash [`replay`] brings what it says into the subvolume, when the volume
//! is opened.
//!
//! Invariants
//! * The format and its meaning are the kernel's: either side replays what the other one wrote.
//! * A replayed log is committed as a whole, together with the superblock that forgets it.
//!
//! Failure: a log that contradicts itself or its subvolume is `Corrupt`, and keeps the volume from
//! being opened for writing.
//!
//! Callers: `volume`.

mod record;
pub(crate) mod replay;

pub(crate) use record::{begin_sync, end_sync, sync_inode, sync_marked};
