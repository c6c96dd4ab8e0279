//! Re-exports the operations that btrfs alone has: its volume with subvolumes, snapshots, send and receive; check,
//! repair and rescue; and the on-disk format. The commands in `cli/src/btrfs` use it, and programs.
//!
//! [`crate::Volume::btrfs`] gives the [`Volume`] of one that was opened by [`crate::open`].
//!
//! The modules are the parts that the format is made of, for programs that look below the volume: the devices as one
//! address space, the store of trees, the items on disk.

mod format;
pub mod images;
mod layers;
mod operations;
mod options;
mod places;
mod repair_plan;
mod salvage;

pub(crate) use format::Btrfs;
pub use format::{SHRINKS, check_options, checksum, default_metadata_profile, profile, report_of};
pub use layers::import_layers;
pub use operations::{
    Sending, back_up, balance, receive, restore, resume_balance, scrub, send, verify_repository, verify_restored,
};
pub use options::{compression, open_with, subvolume_id};
pub use places::{names_store, open_store};

pub use salvage::{RescueOptions, RescueReport, rescue};

#[cfg(feature = "ablation")]
pub use ::btrfs::ablation;
pub use ::btrfs::{
    BadSuperblock, BalanceEnd, BalanceProgress, BalanceSpec, BalanceStatus, CallerError, Change, ChangeKind, ChunkInfo,
    Compression, CompressionType, DeviceErrors, DeviceInfo, DeviceShare, DeviceState, DeviceUsage, Error, Fate,
    FileSharing, FsOptions, Generation, GroupUsage, HeldState, InodeFlags, InodeNo, LostRange, MakeOptions,
    MemberError, Named, NotBalance, NotQuotas, NotStatus, QgroupId, QgroupReport, QuotaChange, QuotaError, QuotaKind,
    QuotaPage, QuotaReport, RebuildReport, Received, RemovalProgress, ScrubFault, ScrubOptions, ScrubProgress,
    ScrubReport, ScrubbedKind, SendError, SendOptions, SharedExtent, SpaceReport, SpaceUsage, SubvolumeInfo, TreeId,
    TreeOptions, VerityAlgorithm, VerityDigest, Volume, VolumeInfo, VolumeOptions,
};

/// Backups of subvolumes as differences, and restores.
pub mod backup {
    pub use btrfs_backup::*;
}

/// Checks a volume without writing to it.
pub mod check {
    pub use btrfs_check::*;
}

/// Forks of subvolumes: what changed, three-way merges.
pub mod forks {
    pub use ::forks::*;
}

/// Devices as one logical address space.
pub mod pool {
    pub use btrfs_pool::*;
}

/// Send streams become subvolumes.
pub mod receive {
    pub use btrfs_receive::*;
}

/// Repairs findings of a check, and undoes a repair.
pub mod repair {
    pub use btrfs_repair::*;
}

/// Reads the remains of a damaged volume.
pub mod rescue {
    pub use btrfs_rescue::*;
}

/// The send stream: commands, encoder, decoder.
pub mod stream {
    pub use btrfs_stream::*;
}

/// The transactional store under the file system.
pub mod store {
    pub use btrfs_store::*;
}

/// The on-disk format as types.
pub mod disk {
    pub use btrfs_disk::*;
}

/// Every state that a power cut can leave of a workload.
#[cfg(feature = "crash-explorer")]
pub mod crash {
    pub use btrfs_crash::*;
    pub use crash_explorer as explorer;
}
