//! Records the losses of files, found as they are read. `contents` and `tree_view` record them, [`crate::View::losses`]
//! returns them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use crate::locks::lock;

/// Limit on files with recorded losses.
const FILES_MAX: usize = 1 << 20;
/// Limit on ranges per file; ranges after it are merged into the last.
const RANGES_MAX: usize = 10_000;

/// Losses of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Byte ranges of the file that are lost and read as zeros; ascending.
    pub ranges: Vec<Range<u64>>,
    /// Bytes read whose checksum is missing, although the file has checksums.
    pub unverified_bytes: u64,
    /// The inode item is lost: size, mode and times are made up.
    pub has_lost_inode: bool,
    /// Extents are missing at unknown offsets.
    pub lacks_extents: bool,
    /// Only names of the file are left.
    pub is_gone: bool,
    /// Its items are from unreferenced blocks and may belong to an older state.
    pub may_be_older: bool,
}

impl Loss {
    /// Whether part of the file is lost.
    #[must_use]
    pub fn is_part(&self) -> bool {
        !self.ranges.is_empty() || self.has_lost_inode || self.lacks_extents
    }

    /// Known lost bytes.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum()
    }

    pub(crate) fn add_unverified(&mut self, bytes: u64) {
        self.unverified_bytes = self.unverified_bytes.saturating_add(bytes);
    }

    fn add(&mut self, range: Range<u64>) {
        let index = self.ranges.partition_point(|known| known.end < range.start);
        let end = self.ranges.partition_point(|known| known.start <= range.end);
        if index < end {
            let joined = self.ranges.get(index..end).unwrap_or_default();
            let from = joined.first().map_or(range.start, |first| first.start.min(range.start));
            let to = joined.last().map_or(range.end, |last| last.end.max(range.end));
            self.ranges.splice(index..end, std::iter::once(from..to));
        } else if self.ranges.len() < RANGES_MAX {
            self.ranges.insert(index, range);
        } else if let Some(last) = self.ranges.last_mut() {
            last.end = last.end.max(range.end);
        }
    }
}

/// Losses of all files read so far.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<BTreeMap<(u64, u64), Loss>>);

impl Losses {
    /// Changes the losses of a file.
    pub(crate) fn note(&self, file: (u64, u64), change: impl FnOnce(&mut Loss)) {
        let mut losses = lock(&self.0);
        if losses.len() < FILES_MAX || losses.contains_key(&file) {
            change(losses.entry(file).or_default());
        }
    }

    /// Records a range as lost.
    pub(crate) fn lose(&self, file: (u64, u64), range: Range<u64>) {
        self.note(file, |loss| loss.add(range));
    }

    /// All losses, by tree and inode.
    pub(crate) fn all(&self) -> Vec<((u64, u64), Loss)> {
        lock(&self.0).iter().map(|(file, loss)| (*file, loss.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        let mut loss = Loss::default();
        for range in [10..20, 30..40, 0..5, 20..30, 50..60, 55..70] {
            loss.add(range);
        }
        assert_eq!(loss.ranges, [0..5, 10..40, 50..70]);
        assert_eq!(loss.lost_bytes(), 55);
    }
}
