//! Implements btrfs volumes on the trees of `btrfs-store`: files, directories, subvolumes and snapshots.
//!
//! - `volume`: opening and making a volume, and the operations that only btrfs has
//! - `vfs_impl`: a volume as a [`vfs::FileSystem`], for servers and for paths; below it `dir`, `file` and `subvol`
//! - `inode`, `extents`, `writeback`, `log`: inodes in memory, their data on the way to disk, and fsync
//! - `balance`, `scrub`, `send`: long operations
//!
//! Callers: the library `spinney`, and through it the command line; `btrfs-receive` and `btrfs-backup`.

// An index outside its array is a panic, which no bytes of a disk and no caller may cause (STYLE 30).
#![deny(clippy::indexing_slicing)]

mod balance;
mod dir;
mod error;
mod extents;
mod file;
mod inode;
mod locks;
mod log;
mod notes;
mod open_volume;
mod scrub;
mod send;
mod subvol;
mod vfs_impl;
mod volume;
mod writeback;

pub use balance::{BalanceEnd, BalanceProgress, BalanceSpec, BalanceStatus, NotBalance, NotStatus, RemovalProgress};
pub use blockdev::backends::MemoryDevice;
pub use btrfs_disk::flags::InodeFlags;
pub use btrfs_disk::{Generation, InodeNo, QgroupId, TreeId};
#[cfg(feature = "ablation")]
pub use btrfs_store::ablation;
pub use btrfs_store::{
    BadSuperblock, DeviceState, Env, Fate, HeldState, MakeOptions, QgroupReport, QuotaChange, QuotaError, QuotaKind,
    QuotaReport, SpaceReport,
};
pub use codec::CompressionType;
pub use codec::verity::{Algorithm as VerityAlgorithm, TreeOptions};
pub use error::{CallerError, Error, MemberError, Result};
pub use file::SharedExtent;
pub use inode::Compression;
pub use open_volume::{DeviceShare, DeviceUsage, FileSharing, GroupUsage, NotQuotas, QuotaPage, SpaceUsage};
pub use scrub::{DeviceErrors, LostRange, ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind};
pub use send::{Change, ChangeKind, Named, SendError, SendOptions};
pub use subvol::{Received, SubvolumeInfo};
pub use vfs_impl::{FsOptions, node_flags};
pub use volume::{ChunkInfo, DeviceInfo, RebuildReport, VerityDigest, Volume, VolumeInfo, VolumeOptions};
