//! Defines the errors of the store; every variant blames one party. All modules return them; the crate `btrfs` turns
//! them into its own.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use btrfs_disk::{Corrupt, Key, Logical, QgroupId, TreeId};
use btrfs_pool::Error as PoolError;
use btrfs_pool::error::Causes;

pub use btrfs_pool::{BadCopy, Cause, MemberError};

/// The result of every operation of the store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the store failed.
///
/// Clones are cheap: a failure is kept as the reason why later writes fail.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system contradicts itself.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),

    /// A device failed.
    #[error(transparent)]
    Device(#[from] blockdev::Error),

    /// The file system is sound as far as we know, but needs a feature that this build lacks.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("unsupported: {what}")]
    Unsupported {
        /// Names of the features.
        what: Cow<'static, str>,
    },

    /// The devices cannot be used together.
    #[error(transparent)]
    Members(Box<MemberError>),

    /// One of our own invariants does not hold: the file system may be sound, this program is not.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("a bug in this program: {what}, in {place}")]
    Bug {
        /// The broken invariant.
        what: Cow<'static, str>,
        /// The operation that found it.
        place: &'static str,
    },

    /// Not enough room. Nothing was changed.
    ///
    /// To do: delete files or snapshots, or `spinney resize`; `spinney usage` shows what takes the space.
    #[error("no space for {kind}: {needed} bytes needed, {available} available")]
    NoSpace {
        /// The kind of space that ran out.
        kind: SpaceKind,
        /// Bytes asked for.
        needed: u64,
        /// Bytes available.
        available: u64,
    },

    /// An earlier write failed in a way that leaves the disk's state unknown: reads continue,
    /// writes do not, until the next open.
    ///
    /// To do: see the first failure in the log; open the volume again when its cause is gone.
    #[error("writing stopped after an earlier failure: {reason}")]
    Poisoned {
        /// The first failure.
        reason: Arc<Error>,
    },

    /// A subvolume may not take more. Nothing was changed.
    ///
    /// To do: raise the limit with `spinney qgroup limit`, or delete files of the subvolume.
    #[error("the limit of quota group {group} is reached")]
    QuotaExceeded {
        /// The group that reached its limit.
        group: QgroupId,
    },

    /// A request that contradicts the existing quota groups. Nothing was changed.
    #[error(transparent)]
    Quota(#[from] QuotaError),

    /// The store was opened read-only.
    ///
    /// To do: open it for writing.
    #[error("the store is open read-only")]
    ReadOnly,

    /// An insertion found its key taken.
    #[error("tree {tree} has an item {key} already")]
    Exists {
        /// Tree searched.
        tree: TreeId,
        /// Key of the item.
        key: Key,
    },

    /// An item that had to be there is not.
    #[error("tree {tree} has no item {key}")]
    NotFound {
        /// Tree searched.
        tree: TreeId,
        /// Key of the item.
        key: Key,
    },

    /// No tree has this number.
    #[error("no tree {0}")]
    NoSuchTree(TreeId),

    /// Every copy of a block is damaged or unreadable.
    #[error("no good copy of the {len} bytes at {at}:{}", Causes(causes))]
    NoGoodCopy {
        /// Where the block starts.
        at: Logical,
        /// Its length in bytes.
        len: u64,
        /// The failure of each copy, in the order they were tried.
        causes: Arc<[BadCopy]>,
    },
}

impl Error {
    /// The file system needs the feature `what`, which this build lacks.
    #[must_use]
    pub fn unsupported(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    /// One of our own invariants does not hold: `what` describes it, `place` names the operation that found it.
    #[must_use]
    pub fn bug(what: impl Into<Cow<'static, str>>, place: &'static str) -> Self {
        Self::Bug { what: what.into(), place }
    }

    /// True when a device refused a write because its host has no space, as for a sparse image: nothing was lost, and
    /// the write can be retried.
    #[must_use]
    pub fn is_device_full(&self) -> bool {
        matches!(self, Self::Device(error) if error.is_no_space())
    }
}

/// A request that contradicts the existing quota groups.
///
/// To do: see the groups with `spinney qgroup show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Nothing is counted.
    ///
    /// To do: turn them on with `spinney quota enable`.
    #[error("quotas are off")]
    Off,
    /// They were turned on before.
    ///
    /// To do: nothing.
    #[error("quotas are on already")]
    On,
    /// No such group.
    #[error("no quota group {0}")]
    NoGroup(QgroupId),
    /// There is such a group, or member.
    #[error("quota group {0} is there already")]
    Exists(QgroupId),
    /// A member has to be of a lower level.
    #[error("{0} cannot be a member of {1}: its level is not lower")]
    Level(QgroupId, QgroupId),
    /// The group has members, or a subvolume.
    #[error("quota group {0} is in use")]
    InUse(QgroupId),
    /// It is not a member.
    #[error("{0} is not a member of {1}")]
    NotRelated(QgroupId, QgroupId),
    /// Simple quotas count when extents are made, and cannot be counted anew.
    #[error("simple quotas cannot be counted anew")]
    Simple,
}

/// The purpose of space: the block group type it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceKind {
    /// File contents.
    Data,
    /// Tree blocks, except those of the chunk tree.
    Metadata,
    /// Blocks of the chunk tree.
    System,
}

impl fmt::Display for SpaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        })
    }
}

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Corrupt(corrupt) => Self::Corrupt(corrupt),
            PoolError::Device(error) => Self::Device(error),
            PoolError::Unsupported { what } => Self::Unsupported { what },
            PoolError::Members(error) => Self::Members(error),
            PoolError::ReadOnly => Self::ReadOnly,
            PoolError::NoGoodCopy { at, len, causes } => Self::NoGoodCopy { at, len, causes },
        }
    }
}
