//! Defines the errors that keep a check from being done. `run` and `supers` return them; `btrfs-repair` and the
//! `spinney` library pass them on.

use std::io;

use btrfs_pool::MemberError;

/// Errors that keep a check from being done.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No usable copy of the superblock, with the reason for the first.
    ///
    /// To do: is it btrfs at all? If it was: `spinney rescue get IMAGE DIR` needs no superblock.
    #[error("no superblock: {0}")]
    NoSuperblock(String),
    /// The devices cannot be used together.
    #[error(transparent)]
    Members(#[from] MemberError),
    /// A feature that is not supported well enough for a check.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A temporary file for sorting.
    ///
    /// To do: make room in the directory of temporary files, or set TMPDIR to another one.
    #[error("cannot write the temporary sort file: {0}")]
    Sorting(#[from] io::Error),
}

impl Error {
    /// True where no superblock was found; a scan of every block may find more.
    #[must_use]
    pub fn is_of_superblocks(&self) -> bool {
        matches!(self, Self::NoSuperblock(_))
    }
}
