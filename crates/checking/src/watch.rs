//! Who is told how far a check has come.

/// Is told how far a check has come. Called from several threads.
pub trait Watch: Sync {
    /// So many bytes were read.
    fn add_bytes(&self, _bytes: u64) {}
    /// So many inodes were looked at.
    fn add_inodes(&self, _count: u64) {}
    /// So many bytes will be read, as far as is known now.
    fn set_total(&self, _bytes: u64) {}
}

impl Watch for () {}
