//! How far a rescue has come, for those who wait for it.

/// Is told how far the scan has come. Called from several threads.
pub trait Watch: Send + Sync {
    /// So many bytes were read.
    fn add_bytes(&self, _bytes: u64) {}
    /// A scan of so many bytes begins.
    fn begin(&self, _bytes: u64) {}
    /// The scan is over.
    fn end(&self) {}
}

impl Watch for () {}
