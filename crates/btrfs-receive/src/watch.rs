//! What a caller asks of a receipt, and hears of it.

use crate::error::{Cause, Error};

/// How to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Go no further than the first end command; otherwise streams are read until the input ends.
    pub stops_at_end: bool,
    /// Commands that may fail before the receipt is given up: 1 for the first, 0 for no limit. A subvolume of which
    /// one failed is never marked as received.
    pub errors_max: u64,
    /// Decompress the data of encoded writes; otherwise it goes to disk as it is, where that is possible.
    pub force_decompress: bool,
    /// Build subvolumes so that a receipt that was cut short can go on, and go on with those that were. Every command
    /// has to succeed then, whatever `errors_max` says.
    pub resumable: bool,
    /// If no unchanged subvolume matches a parent or clone source, use a changed one.
    pub takes_changed: bool,
    /// Bytes of a stream between two points from which a resumable receipt can go on after a crash.
    pub keep_interval_bytes: u64,
}

/// A commit, a snapshot, and the deletion of an earlier one are little work beside so many bytes.
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

/// Hears how a receipt goes. Every method does nothing by default.
pub trait Watch {
    /// So many bytes of the stream were applied.
    fn position(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// A file, directory or other node was made.
    fn made(&mut self) {}

    /// The receipt of a subvolume begins.
    fn begun(&mut self, name: &[u8], is_snapshot: bool) {
        let _ = (name, is_snapshot);
    }

    /// The receipt uses a changed subvolume, as [`Options::takes_changed`] allows; the result may be wrong.
    fn warned(&mut self, cause: &Cause) {
        let _ = cause;
    }

    /// A command failed, and the receipt goes on.
    fn failed(&mut self, error: &Error) {
        let _ = error;
    }
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Watch for Silent {}
