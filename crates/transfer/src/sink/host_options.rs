//! Says how a directory of the host is written. Callers of `HostSink` choose.

use super::Existing;

/// How the host is written.
#[derive(Debug, Clone, Copy)]
pub struct HostOptions {
    /// How a name that exists is treated: the copy fails, or replaces it.
    pub existing: Existing,
    /// An interrupted transfer is continued: complete files stay, incomplete ones are replaced.
    pub continues: bool,
    /// Files get the owner and group that the source says.
    pub keeps_owners: bool,
    /// The part of a file that could be copied stays, unless the transfer was cancelled; otherwise it is removed.
    pub keeps_partial: bool,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { existing: Existing::Fail, continues: false, keeps_owners: true, keeps_partial: false }
    }
}
