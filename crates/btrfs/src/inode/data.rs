//! What `file` and `writeback` keep in memory per inode and per volume.
//!
//! It is declared here because [`super::Inode`] owns it, and imports go down only.

/// The data side of one inode.
#[derive(Debug, Default)]
pub(crate) struct DataState {}

/// The data side of a volume.
#[derive(Debug, Default)]
pub(crate) struct DataShared {}

impl DataState {
    /// True when nothing is kept in memory that is not in the trees.
    pub(crate) fn is_clean(&self) -> bool {
        true
    }
}
