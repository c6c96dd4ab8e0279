//! Defines the errors of [`crate::Rescue`]. `rescue` and `supers` return them; the `spinney` library (`salvage`) passes
//! them on.

use btrfs_pool::MemberError;

/// A reason for which no rescue is possible. Damage within a file system is reported, and is not an error.
///
/// To do: use the kernel or a newer version for this image; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The devices cannot be used together.
    #[error(transparent)]
    Members(#[from] MemberError),
    /// Neither a superblock nor a tree block was found.
    ///
    /// To do: look for a partition (`IMAGE?offset=BYTES`) or another format.
    #[error("no trace of btrfs: no superblock, and no tree block in any 4 KiB of it")]
    NothingFound,
    /// The format has a feature that this crate cannot read.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The requested root does not exist.
    ///
    /// To do: choose one of `spinney rescue roots IMAGE`.
    #[error("no root tree has generation or address {0}; `roots` lists the root trees found")]
    NoSuchRoot(u64),
}
