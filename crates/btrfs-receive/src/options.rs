//! Defines the options of a receipt, and the trait that receives its events. Callers of [`crate::Receiver`], such as
//! the command `receive`, set them.

use crate::error::{Cause, Error};

/// Options of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Stops at the first end command; otherwise reads streams until the input ends.
    pub stops_at_end: bool,
    /// Number of failed commands that ends the receipt: 1 for the first, 0 for no limit. A subvolume with a failed
    /// command is never marked as received.
    pub errors_max: u64,
    /// Decompresses encoded writes; otherwise they are stored compressed if possible.
    pub force_decompress: bool,
    /// Builds subvolumes resumably, and resumes receipts that were cut short. Then every command must succeed,
    /// regardless of `errors_max`.
    pub resumable: bool,
    /// Uses a changed subvolume if no unchanged one matches a parent or clone source.
    pub takes_changed: bool,
    /// Bytes of a stream between two resume points of a resumable receipt.
    pub keep_interval_bytes: u64,
}

/// The cost of a commit, a snapshot and a deletion is small compared with this many bytes.
const KEEP_INTERVAL_BYTES: u64 = 64 << 20;

impl Default for Options {
    fn default() -> Self {
        Self {
            stops_at_end: false,
            errors_max: 1,
            force_decompress: false,
            resumable: false,
            takes_changed: false,
            keep_interval_bytes: KEEP_INTERVAL_BYTES,
        }
    }
}

/// Called with the events of a receipt that its error or report does not hold. The default of every method does
/// nothing, so that `&mut ()` ignores them.
pub trait Notices {
    /// The receipt of a subvolume begins.
    fn begun(&mut self, name: &[u8], is_snapshot: bool) {
        let _ = (name, is_snapshot);
    }

    /// The receipt uses a changed subvolume, as [`Options::takes_changed`] allows; the result may be wrong.
    fn warned(&mut self, cause: &Cause) {
        let _ = cause;
    }

    /// A command failed, and the receipt continues.
    fn failed(&mut self, error: &Error) {
        let _ = error;
    }
}

impl Notices for () {}
