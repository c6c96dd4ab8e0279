//! What keeps a check from being done.

use std::io;

use btrfs_pool::MemberError;

/// What keeps a check from being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No copy of the superblock can be used; why not the first.
    #[error("no superblock: {0}")]
    NoSuperblock(String),
    /// The devices cannot be used together.
    #[error(transparent)]
    Members(#[from] MemberError),
    /// Something that is not understood well enough to be judged.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A file for sorting.
    #[error("a file for what does not fit into memory: {0}")]
    Sorting(#[from] io::Error),
}

impl Error {
    /// There is nothing to begin with; what looks at every block may find more.
    #[must_use]
    pub fn is_of_superblocks(&self) -> bool {
        matches!(self, Self::NoSuperblock(_))
    }
}
