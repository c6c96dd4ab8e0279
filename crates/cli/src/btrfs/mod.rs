//! The commands that only btrfs has, one file (or folder) each: making a file system,
//! subvolumes and snapshots, and what its trees look like on disk.
//!
//! Failure and conventions are those of `common`. Caller: `args`.

pub(crate) mod dump;
pub(crate) mod features;
pub(crate) mod late_flush;
pub(crate) mod mkfs;
pub(crate) mod sizing;
pub(crate) mod subvolume;
