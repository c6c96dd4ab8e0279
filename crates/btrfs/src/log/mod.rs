//! Makes an fsync durable before the next commit by a log, and replays the log after a crash. `vfs_impl` calls `record`
//! for each fsync, `volume::open` calls [`replay`].
//!
//! A log tree holds copies of a subvolume's items, in the state of the fsync that made them durable. Without a crash it
//! is never read: the next commit has the same changes, and frees it. After a crash [`replay`] brings them into the
//! subvolume, when the volume is opened.
//!
//! Invariants
//! * The format and its meaning are the kernel's: each side replays logs of the other.
//! * A replayed log is committed as a whole, together with the superblock that forgets it.
//!
//! Failure: a log that contradicts itself or its subvolume is `Corrupt`, and keeps the volume from
//! being opened for writing.

mod record;
pub(crate) mod replay;

pub(crate) use record::{begin_sync, end_sync, sync_inode, sync_marked};
