//! What keeps a check from being done.

/// What keeps a check from being done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither copy of the superblock can be used; why not the first.
    #[error("no superblock: {0}")]
    NoSuperblock(String),
    /// Neither checkpoint pack can be used; why not the first.
    #[error("no checkpoint: {0}")]
    NoCheckpoint(String),
    /// Something that is not understood well enough to be judged.
    #[error("{0} is not supported")]
    Unsupported(String),
}
