//! Defines the errors of a repair or an undo. All modules of the crate return them; the `spinney` library passes them
//! on.

use std::io;

use btrfs_disk::Corrupt;

/// Errors of a repair or an undo. Except for [`Error::Device`] nothing was written to the image.
///
/// To do: save the files with `spinney rescue get IMAGE DIR`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The check before or after a repair could not be done.
    #[error(transparent)]
    Check(#[from] btrfs_check::Error),
    /// The image, or the overlay with the changes.
    #[error(transparent)]
    Device(#[from] blockdev::Error),
    /// Damage that this step cannot repair.
    #[error("{0}")]
    Beyond(String),
    /// There is no room for the blocks that a repair writes beside those in use.
    ///
    /// To do: make room as the message says, then repair.
    #[error("no space for {needed} more tree blocks in block groups for {kind}; delete files or grow the volume first")]
    NoSpace {
        /// The kind of block groups.
        kind: &'static str,
        /// Blocks without a place.
        needed: u64,
    },
    /// A block that must not be written: a mistake of ours, noticed in time.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("a repaired block would be refused ({0}); nothing was written")]
    Refused(Corrupt),
    /// The file system is on several devices.
    ///
    /// To do: save the files with `spinney rescue get`.
    #[error("a file system on {0} devices is not repaired, so far; `spinney rescue` and `spinney check` read it")]
    SeveralDevices(u64),
    /// The undo file cannot be written or read.
    ///
    /// To do: choose another place with `--undo-file`, with room for it.
    #[error("undo file: {0}")]
    UndoFile(#[from] io::Error),
    /// The undo file is damaged, or not an undo file.
    ///
    /// To do: use the undo file that the repair wrote.
    #[error("undo file: {0}")]
    BadUndo(&'static str),
    /// The image is not in the state that the repair left.
    ///
    /// To do: keep the image as it is; undo only an image that nothing has written to since.
    #[error("the image is not as the repair left it ({0}); undoing it now would destroy later writes")]
    Changed(&'static str),
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
