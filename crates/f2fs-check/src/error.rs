//! Errors that prevent a check.

/// An error that prevents a check.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither copy of the superblock can be used; the reason for the first.
    #[error("no superblock: {0}")]
    NoSuperblock(String),
    /// Neither checkpoint pack can be used; the reason for the first.
    #[error("no checkpoint: {0}")]
    NoCheckpoint(String),
    /// An unsupported feature.
    #[error("{0} is not supported")]
    Unsupported(String),
}
