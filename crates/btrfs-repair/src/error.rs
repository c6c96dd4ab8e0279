//! Why a repair or an undo does not go on.

use std::io;

use btrfs_disk::Corrupt;

/// Why a repair or an undo does not go on. But for [`Error::Device`] nothing was written to the image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The check before or after a repair could not be done.
    #[error(transparent)]
    Check(#[from] btrfs_check::Error),
    /// The image, or what keeps the changes in memory.
    #[error(transparent)]
    Device(#[from] blockdev::Error),
    /// The damage is of a kind that this step does not mend.
    #[error("{0}")]
    Beyond(String),
    /// There is no room for the blocks that a repair writes beside those in use.
    #[error("no space for {needed} more tree blocks in block groups for {kind}; delete files or grow the volume first")]
    NoSpace {
        /// What the block groups are for.
        kind: &'static str,
        /// Blocks that found no place.
        needed: u64,
    },
    /// A block that must not reach a disk: our own mistake, noticed in time.
    #[error("a repaired block would be refused ({0}); nothing was written")]
    Refused(Corrupt),
    /// The file system is on several devices.
    #[error("a file system on {0} devices is not repaired, so far; `spinney rescue` and `spinney check` read it")]
    SeveralDevices(u64),
    /// The undo file cannot be written or read.
    #[error("undo file: {0}")]
    UndoFile(#[from] io::Error),
    /// The undo file is damaged, or is none.
    #[error("undo file: {0}")]
    BadUndo(&'static str),
    /// The image is not in the state that the repair left.
    #[error("the image is not as the repair left it ({0}); undoing it now would destroy what was written since")]
    Changed(&'static str),
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
