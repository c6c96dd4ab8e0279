//! What keeps a rescue from being done.

use btrfs_pool::MemberError;

/// What keeps a rescue from being done; what is missing of a file system is told in reports.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The devices cannot be used together.
    #[error(transparent)]
    Members(#[from] MemberError),
    /// Neither a superblock nor a tree block was found.
    #[error("no trace of btrfs: no superblock, and no tree block in any 4 KiB of it")]
    NothingFound,
    /// Something that is not understood well enough to be read.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The caller asked for a state that there is not.
    #[error("there is no root tree with generation or address {0}; `roots` lists those that were found")]
    NoSuchRoot(u64),
}
