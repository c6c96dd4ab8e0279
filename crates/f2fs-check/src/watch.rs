//! Who is told how far a check has come.

/// Is told how far a check has come.
pub trait Watch {
    /// So many bytes were read.
    fn add_bytes(&self, _bytes: u64) {}
    /// So many inodes were looked at.
    fn add_inodes(&self, _count: u64) {}
}

impl Watch for () {}
