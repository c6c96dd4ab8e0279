//! Progress of a check.

/// Receives the progress of a check, from several threads.
pub trait Watch: Sync {
    /// Counts bytes as read.
    fn add_bytes(&self, _bytes: u64) {}
    /// Counts inodes as checked.
    fn add_inodes(&self, _count: u64) {}
    /// Sets the number of bytes to read, as far as known.
    fn set_total(&self, _bytes: u64) {}
}

impl Watch for () {}
