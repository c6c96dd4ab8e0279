//! What could not be read, file by file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use crate::sync::lock;

/// Files whose losses are remembered one by one.
const FILES_MAX: usize = 1 << 20;
/// Ranges that are remembered of a file; those behind it count as one.
const RANGES_MAX: usize = 10_000;

/// What a file lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Byte ranges of the file that read as zeros because they are lost; ascending.
    pub ranges: Vec<Range<u64>>,
    /// Bytes that were read and have no checksum to be compared with, though they should.
    pub unverified_bytes: u64,
    /// The inode itself is lost: size, mode and times are made up.
    pub has_lost_inode: bool,
    /// Extents are missing, and nothing says where.
    pub lacks_extents: bool,
    /// Names that lead to nothing: the file is lost wholly.
    pub is_gone: bool,
    /// Its items are from blocks that nothing leads to: it may be an older state of the file.
    pub may_be_older: bool,
}

impl Loss {
    /// Whether some of the file is lost.
    #[must_use]
    pub fn is_part(&self) -> bool {
        !self.ranges.is_empty() || self.has_lost_inode || self.lacks_extents
    }

    /// Bytes that are lost, of what is known.
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

/// The losses of all files that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<BTreeMap<(u64, u64), Loss>>);

impl Losses {
    /// Changes what is known of a file.
    pub(crate) fn note(&self, file: (u64, u64), change: impl FnOnce(&mut Loss)) {
        let mut losses = lock(&self.0);
        if losses.len() < FILES_MAX || losses.contains_key(&file) {
            change(losses.entry(file).or_default());
        }
    }

    /// Notes a range as lost.
    pub(crate) fn lose(&self, file: (u64, u64), range: Range<u64>) {
        self.note(file, |loss| loss.add(range));
    }

    /// All of them, by tree and inode.
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
