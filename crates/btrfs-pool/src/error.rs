//! Errors of the pool. Every variant blames one party.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use btrfs_disk::{Corrupt, DevId, Logical};

/// Result of an operation of the pool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of the pool failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system contradicts itself.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),

    /// A device failed.
    #[error(transparent)]
    Device(#[from] blockdev::Error),

    /// The file system is sound as far as we know, but needs what this build cannot do.
    #[error("unsupported: {what}")]
    Unsupported {
        /// Names of the features.
        what: Cow<'static, str>,
    },

    /// The pool, or one of its devices, was opened read-only.
    #[error("the devices are open read-only")]
    ReadOnly,

    /// Every copy of a range is damaged or unreadable.
    #[error("no good copy of the {len} bytes at {at}:{}", Causes(causes))]
    NoGoodCopy {
        /// Where the range starts.
        at: Logical,
        /// Its length in bytes.
        len: u64,
        /// The fault of each copy, in the order they were tried.
        causes: Arc<[BadCopy]>,
    },
}

impl Error {
    /// The file system needs `what`, which this build cannot do.
    #[must_use]
    pub fn unsupported(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}

/// A copy of a block that could not be used.
#[derive(Clone, Debug)]
pub struct BadCopy {
    /// Number of the mirror, from 0.
    pub mirror: u32,
    /// Device it is on.
    pub device: DevId,
    /// Byte offset on that device.
    pub offset: u64,
    /// Its fault.
    pub cause: Cause,
}

impl fmt::Display for BadCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mirror, device, offset, cause } = self;
        write!(f, "copy {mirror} (device {device}, offset {offset}): {cause}")
    }
}

/// The fault of one copy.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Cause {
    /// Its checksum, header or key does not match.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// It could not be read.
    #[error(transparent)]
    Device(#[from] blockdev::Error),
}

/// All of them in one line, for messages.
#[derive(Debug)]
pub struct Causes<'a>(pub &'a [BadCopy]);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, cause) in self.0.iter().enumerate() {
            write!(f, "{} {cause}", if index > 0 { ";" } else { "" })?;
        }
        Ok(())
    }
}
