//! Defines requests about the layout of contents on disk (defragmentation, extents), and about free space. The commands
//! `defrag`, `dedupe` and `trim` and the FUSE server make them; file systems answer them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Extent;

/// Extents that are shorter are joined where nothing else is said, in bytes.
pub const EXTENT_BYTES_DEFAULT: u64 = 32 << 20;

/// Bytes that [`FileSystem::dedupe`](super::FileSystem::dedupe) compares and shares with one call at most.
pub const DEDUPE_BYTES_MAX: u64 = 16 << 20;

/// True where `len` bytes of two files, from an offset of each, are in the same place on disk already.
#[must_use]
pub fn are_shared(ours: (&[Extent], u64), theirs: (&[Extent], u64), len: u64) -> bool {
    let mut done = 0;
    while done < len {
        let (our_offset, their_offset) = (ours.1.saturating_add(done), theirs.1.saturating_add(done));
        let pair = extent_at(ours.0, our_offset).zip(extent_at(theirs.0, their_offset));
        let Some((a, b)) = pair else { return false };
        let (in_a, in_b) = (our_offset - a.offset, their_offset - b.offset);
        let place = |extent: &Extent, within: u64| match extent.compression {
            // A compressed extent is named by its first byte.
            Some(_) => extent.logical,
            None => extent.logical.map(|at| at.saturating_add(within)),
        };
        if a.compression != b.compression || place(a, in_a).is_none() || place(a, in_a) != place(b, in_b) {
            return false;
        }
        done += (a.len - in_a).min(b.len - in_b).max(1);
    }
    true
}

/// The extent of a list in file order that a byte of the file is in.
#[must_use]
pub fn extent_at(extents: &[Extent], offset: u64) -> Option<&Extent> {
    let next = extents.partition_point(|extent| extent.offset <= offset);
    let extent = extents.get(next.checked_sub(1)?)?;
    (offset.checked_sub(extent.offset)? < extent.len).then_some(extent)
}

/// How the contents of a file are to be laid out anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout<'a> {
    /// Bytes of the file that are looked at.
    pub range: Range<u64>,
    /// Extents from this length on stay where they are, in bytes.
    pub extent_bytes: u64,
    /// Compress everything so, in the notation of the format. Without this, compressed data stays as it is.
    pub compression: Option<&'a str>,
}

/// Which free space a device is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trim {
    /// Addresses of the format's own.
    pub range: Range<u64>,
    /// Shorter runs are left out, in bytes.
    pub bytes_min: u64,
}

/// How large a volume is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// This many bytes, rounded down to whole blocks.
    Bytes(u64),
    /// As small as it can be as long as nothing is moved.
    Least,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::ExtentKind;

    fn extent(offset: u64, len: u64, logical: u64) -> Extent {
        Extent { offset, len, kind: ExtentKind::Data, logical: Some(logical), disk_len: len, compression: None }
    }

    #[test]
    fn places_are_compared() {
        let ours = [extent(0, 8192, 100_000), extent(8192, 4096, 500_000)];
        let theirs = [extent(4096, 4096, 104_096), extent(8192, 8192, 500_000)];
        assert!(are_shared((&ours, 4096), (&theirs, 4096), 8192));
        assert!(!are_shared((&ours, 0), (&theirs, 4096), 4096));
        assert!(!are_shared((&ours, 4096), (&theirs, 0), 4096), "a hole");
        let inline = [Extent { logical: None, ..extent(0, 4096, 0) }];
        assert!(!are_shared((&inline, 0), (&inline, 0), 4096), "each has its own");
        assert_eq!(extent_at(&ours, 8192).map(|extent| extent.len), Some(4096));
        assert_eq!(extent_at(&ours, 12_288), None);
    }
}
