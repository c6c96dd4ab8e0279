//! Reads and writes f2fs images, as a [`vfs::FileSystem`].
//!
//! - `blocks`: the device, and a cache of blocks of metadata; `in_flight`, `batch`: writes without the volume's lock
//! - `open_volume`: chooses superblock and checkpoint; `recovery` and `overlay`: fsyncs after it
//! - `read_volume`: a readable volume, with nodes and inodes by their numbers; `dirty_blocks`: changed ones
//! - `map`: positions of blocks of files; `cluster`: compressed ones
//! - `file`, `dir`, `xattrs`: contents, names and attributes; `verity`: contents protected by fs-verity
//! - `policy`: mount options of writing
//! - `write_volume`: a volume open for writing, and its parts: `space` over `segments`, `node_numbers`, `counters`,
//!   `progress`
//! - `quotas`: quota files, read; `charges`: changes that they have to count
//! - `fsync_chain`: whether an fsync needs a checkpoint
//! - `change`: changes, checkpoints, the cleaner, and the replay of fsyncs
//! - `make`: new volumes
//! - `vfs_impl`: the only module that uses node numbers of servers, and errno
//!
//! Images are untrusted: none leads to a panic, to an endless loop or to more memory than a fixed part of its own size.
//! A node records its position in its inode, so that trees of nodes cannot loop.
//!
//! Files fsynced after the checkpoint are shown as if they had been recovered, and nothing is written for that unless
//! the volume is opened for writing ([`OpenOptions::skip_recovery`] ignores them).
//!
//! Durability: a sync makes a checkpoint. An fsync writes nodes behind the last one, which the next opening finds, or
//! makes a checkpoint if nodes cannot record its promise (`change`). A block that the last checkpoint or a later fsync
//! needs is never overwritten: a power cut leaves that state or the next.
//!
//! Failure: [`Error`]. Callers: the `spinney` library, which opens volumes for programs and servers, and `f2fs-crash`.

// Lengths and indexes on disk are untrusted (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(feature = "ablation")]
pub mod ablation;
#[cfg(not(feature = "ablation"))]
mod ablation;
mod batch;
mod blocks;
mod change;
mod charges;
mod cluster;
mod counters;
mod dir;
mod dirty_blocks;
mod error;
mod file;
mod fsync_chain;
mod in_flight;
mod info;
mod locks;
mod make;
mod map;
mod node_numbers;
mod open_volume;
mod overlay;
mod policy;
mod progress;
mod quotas;
mod read_volume;
mod recovery;
mod segments;
mod space;
mod verity;
mod vfs_impl;
mod write_volume;
mod xattrs;

pub use error::{CallerError, Error, Result, Unsupported};
pub use f2fs_disk::quota::{QuotaEntry, QuotaKind};
pub use info::Info;
pub use make::{CAN_HAVE, Features, MakeError, MakeOptions, make};
pub use open_volume::OpenOptions;
pub use policy::{ActiveLogs, BackgroundGc, FsyncMode, Mode};
pub use quotas::Quotas;
pub use vfs_impl::F2fs;
