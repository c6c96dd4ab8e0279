//! f2fs images as a [`vfs::FileSystem`].
//!
//! - `blocks`: the device, and a cache of blocks of metadata; `in_flight`, `batch`: writes that go on while others
//!   change the volume
//! - `start`: which superblock and checkpoint count; `recovery` and `overlay`: what was fsynced after it
//! - `read_volume`: a volume as readers see it, with nodes and inodes by their numbers; `dirty`: those that changed
//! - `map`: where blocks of files are; `cluster`: compressed ones
//! - `file`, `dir`, `xattrs`: contents, names and attributes; `verity`: contents that were sealed
//! - `policy`: what mount options say of writing
//! - `write_volume`: a volume that is open for writing, and its parts: `space` over `segments`, `numbers`, `counters`,
//!   `progress`
//! - `quotas`: the files of quotas, read; `charges`: what changed that they count
//! - `chain`: what an fsync can say without a checkpoint
//! - `change`: changes, checkpoints, the cleaner, and the replay of what was fsynced
//! - `make`: new volumes
//! - `vfs_impl`: the only place that knows node numbers of servers, and errno
//!
//! An image may be made to do harm: nothing in it leads to a panic, to an endless loop or to more memory than a fixed
//! part of the image's own size. A node carries its place in its inode, so that trees of nodes cannot loop.
//!
//! What the last fsyncs wrote after the checkpoint is shown as if it had been recovered, and nothing is written for
//! that unless the volume is opened for writing ([`OpenOptions::skip_recovery`] leaves it out).
//!
//! Durability: a sync makes a checkpoint. An fsync writes nodes behind the last one, which the next opening finds, or
//! makes a checkpoint where nodes cannot say what it promises (`change`). A block is never overwritten that the last
//! checkpoint, or what was fsynced since, needs: a power cut leaves that state or the next.
//!
//! How it fails: [`Error`]. Who calls it: programs by paths (`vfs::Volume`), and servers.

// What reads the disk decides with every length and index whether it can be right (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

#[cfg(feature = "ablation")]
pub mod ablation;
#[cfg(not(feature = "ablation"))]
mod ablation;
mod batch;
mod blocks;
mod chain;
mod change;
mod charges;
mod cluster;
mod counters;
mod dir;
mod dirty;
mod error;
mod file;
mod in_flight;
mod info;
mod locks;
mod make;
mod map;
mod numbers;
mod overlay;
mod policy;
mod progress;
mod quotas;
mod read_volume;
mod recovery;
mod segments;
mod space;
mod start;
mod verity;
mod vfs_impl;
mod write_volume;
mod xattrs;

pub use error::{CallerError, Error, Result, Unsupported};
pub use f2fs_disk::quota::{QuotaEntry, QuotaKind};
pub use info::Info;
pub use make::{CAN_HAVE, Features, MakeError, MakeOptions, make};
pub use policy::{ActiveLogs, BackgroundGc, FsyncMode, Mode};
pub use quotas::Quotas;
pub use start::OpenOptions;
pub use vfs_impl::F2fs;
