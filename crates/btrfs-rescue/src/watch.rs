//! Receives the progress of a rescue: a trait. The command line (`btrfs/rescue`) and the `spinney` library implement
//! it; `blocks`, `scan` and `supers` call it.

/// Receives the progress of the scan, from several threads.
pub trait Watch: Send + Sync {
    /// Counts bytes as read.
    fn add_bytes(&self, _bytes: u64) {}
    /// Begins a scan of this many bytes.
    fn begin(&self, _bytes: u64) {}
    /// The scan is over.
    fn end(&self) {}
}

impl Watch for () {}
