//! What a caller wants of where the contents of a file are on disk, and of space that has none.

use std::ops::Range;

/// Extents that are shorter are joined where nothing else is said, in bytes.
pub const EXTENT_BYTES_DEFAULT: u64 = 32 << 20;

/// Bytes that [`FileSystem::dedupe`](super::FileSystem::dedupe) compares and shares with one call at most.
pub const DEDUPE_BYTES_MAX: u64 = 16 << 20;

/// How the contents of a file are to be laid out anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout<'a> {
    /// Bytes of the file that are looked at.
    pub range: Range<u64>,
    /// Extents from this length on stay where they are, in bytes.
    pub extent_bytes: u64,
    /// Everything is compressed so, in the words of the format. Without this, what is compressed stays as it is.
    pub compression: Option<&'a str>,
}

/// Which free space a device is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trim {
    /// Addresses of the format's own.
    pub range: Range<u64>,
    /// Shorter runs are left out, in bytes.
    pub bytes_min: u64,
}

impl Default for Trim {
    fn default() -> Self {
        Self { range: 0..u64::MAX, bytes_min: 0 }
    }
}

impl Default for Layout<'_> {
    fn default() -> Self {
        Self { range: 0..u64::MAX, extent_bytes: EXTENT_BYTES_DEFAULT, compression: None }
    }
}
