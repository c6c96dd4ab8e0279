//! Gathers the items of a file's contents that an fsync puts into the log. Called by `contents`.

use std::ops::Range;

use btrfs_disk::items::OnDisk;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{Generation, InodeNo, Key};
use btrfs_store::{Scan, Tree};

use super::ITEMS_MAX;
use super::recorder::{Result, Stop};
use crate::extents::{FILE_BYTES_MAX, FileExtent, Kind};

/// Times a range is widened before the transaction is committed instead.
const WIDENINGS_MAX: usize = 64;

/// An item as it is in a tree.
pub(super) struct Item {
    pub(super) key: Key,
    pub(super) extent: FileExtent,
    pub(super) bytes: Vec<u8>,
}

/// The replacement of the items of a range in the log.
pub(super) struct Stretch {
    pub(super) range: Range<u64>,
    /// Keys of all items that may lie in the range.
    pub(super) first: Key,
    pub(super) last: Key,
    pub(super) items: Vec<Item>,
}

/// The trees that have a file's items, and the facts needed to read them.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) tree: &'a Tree,
    pub(super) log: &'a Tree,
    pub(super) ino: InodeNo,
    pub(super) sector: u32,
    /// Up to here, gaps between items are written as holes: there may be older items on disk.
    pub(super) holes_below: u64,
}

/// Ranges in order, adjacent ones joined.
pub(super) fn join(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

impl Source<'_> {
    /// The items of a range, widened until no item on either side is cut, if they are not too many.
    pub(super) fn stretch(&self, range: Range<u64>) -> Result<Stretch> {
        let sector = u64::from(self.sector);
        let end = range.end.min(FILE_BYTES_MAX);
        let mut range = range.start - range.start % sector..end.checked_next_multiple_of(sector).unwrap_or(end);
        for _ in 0..WIDENINGS_MAX {
            let items = self.items(self.tree, &range)?;
            let logged = self.items(self.log, &range)?;
            let mut wide = range.clone();
            for item in items.iter().chain(&logged) {
                wide.start = wide.start.min(item.extent.start);
                wide.end = wide.end.max(item.extent.end_in_sectors(self.sector));
            }
            if wide == range {
                let items = self.with_holes(&range, items);
                let (first, last) = (self.key(range.start), self.key(range.end.saturating_sub(1)));
                return Ok(Stretch { range, first, last, items });
            }
            range = wide;
        }
        Err(Stop::NeedsCommit)
    }

    fn key(&self, offset: u64) -> Key {
        Key::new(self.ino.0, EXTENT_DATA, offset)
    }

    fn items(&self, tree: &Tree, range: &Range<u64>) -> Result<Vec<Item>> {
        let mut from = self.key(range.start);
        if let Some((before, _)) = tree.at_or_before(&from)?
            && (before.objectid, before.item_type) == (self.ino.0, EXTENT_DATA)
        {
            from = before;
        }
        let mut items = Vec::new();
        tree.scan(&from, &self.key(range.end.saturating_sub(1)), |key, bytes| {
            let extent = FileExtent::decode(key.offset, bytes, self.sector)?;
            if extent.end_in_sectors(self.sector) > range.start {
                items.push(Item { key: *key, extent, bytes: bytes.to_vec() });
            }
            Ok(if items.len() > ITEMS_MAX { Scan::Stop } else { Scan::Continue })
        })?;
        if items.len() > ITEMS_MAX { Err(Stop::NeedsCommit) } else { Ok(items) }
    }

    /// Adds hole items to gaps: without them a replay would keep older items there.
    fn with_holes(&self, range: &Range<u64>, items: Vec<Item>) -> Vec<Item> {
        let end = range.end.min(self.holes_below);
        let mut whole = Vec::with_capacity(items.len());
        let mut at = range.start;
        for item in items {
            if item.extent.start > at && at < end {
                whole.extend(self.hole(at..item.extent.start.min(end), item.extent.generation));
            }
            at = at.max(item.extent.end_in_sectors(self.sector));
            whole.push(item);
        }
        whole.extend(self.hole(at..end, Generation(0)));
        whole
    }

    fn hole(&self, range: Range<u64>, generation: Generation) -> Option<Item> {
        (range.start < range.end).then(|| {
            let key = self.key(range.start);
            let extent = FileExtent::hole(range, generation);
            let bytes = extent.encode().bytes().to_vec();
            Item { key, extent, bytes }
        })
    }
}

impl Item {
    /// Address and length on disk of the data that may have checksums.
    pub(super) fn data(&self) -> Option<(btrfs_disk::Logical, u64)> {
        let extent = &self.extent;
        if extent.kind != Kind::Regular || extent.is_hole() {
            return None;
        }
        Some(if extent.is_compressed() {
            (extent.disk, extent.disk_len)
        } else {
            (extent.disk_at(extent.start), extent.len)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_ranges_are_joined() {
        let ranges = vec![8..12, 0..4, 4..6, 20..30, 10..14];
        assert_eq!(join(ranges), [0..6, 8..14, 20..30]);
        assert_eq!(join(Vec::new()), []);
    }
}
