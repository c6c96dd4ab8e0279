//! Defines the errors that prevent a check. `supers`, `packs` and `run` return them; the `spinney` library passes them
//! on.

/// An error that prevents a check.
///
/// To do: is it f2fs at all? If it was, restore it from a copy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither copy of the superblock can be used; the reason for the first.
    #[error("no superblock: {0}")]
    NoSuperblock(String),
    /// Neither checkpoint pack can be used; the reason for the first.
    #[error("no checkpoint: {0}")]
    NoCheckpoint(String),
    /// An unsupported feature.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("{0} is not supported")]
    Unsupported(String),
}
