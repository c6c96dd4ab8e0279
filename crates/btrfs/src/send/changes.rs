//! Finds the inodes that differ between two trees: differing items, grouped by inode. Called by `stream` and `report`.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::Key;
use btrfs_disk::key::{item_type, objectid};
use btrfs_store::{Compare, Difference};

use super::places::Pair;
use crate::error::Result;
use crate::extents::FileExtent;

/// An inode of which some items differ.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) ino: u64,
    /// The inode item.
    pub(super) item: bool,
    pub(super) names: bool,
    pub(super) xattrs: bool,
    /// Bytes of the file with differing extents in either tree, ascending; none where there is no first tree.
    pub(super) ranges: Vec<Range<u64>>,
}

/// Iterates over differing inodes, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Changes {
    compare: Compare,
    sector: u32,
    has_old: bool,
    /// The first difference of the next inode.
    next: Option<Changed>,
}

impl Changes {
    pub(super) fn new(pair: &Pair, sector: u32) -> Result<Self> {
        let old = pair.old.as_ref().map(|old| Arc::clone(&old.tree));
        let has_old = old.is_some();
        Ok(Self { compare: Compare::new(old, Arc::clone(&pair.new.tree))?, sector, has_old, next: None })
    }

    /// The next inode that differs.
    ///
    /// # Errors
    /// Damage, I/O.
    pub(super) fn step(&mut self) -> Result<Option<Changed>> {
        let mut found = self.next.take();
        while let Some(difference) = self.compare.step()? {
            let key = difference.key;
            if !(objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&key.objectid) {
                continue;
            }
            match &mut found {
                Some(changed) if changed.ino == key.objectid => {
                    note(changed, &difference, self.has_old, self.sector)?;
                }
                _ => {
                    let mut changed = Changed { ino: key.objectid, ..Changed::default() };
                    note(&mut changed, &difference, self.has_old, self.sector)?;
                    if found.is_some() {
                        self.next = Some(changed);
                        return Ok(found);
                    }
                    found = Some(changed);
                }
            }
        }
        Ok(found)
    }
}

fn note(changed: &mut Changed, difference: &Difference<'_>, wants_ranges: bool, sector: u32) -> Result<()> {
    let Difference { key, old, new } = *difference;
    match key.item_type {
        item_type::INODE_ITEM => changed.item = true,
        item_type::INODE_REF | item_type::INODE_EXTREF => changed.names = true,
        item_type::XATTR_ITEM => changed.xattrs = true,
        item_type::EXTENT_DATA if wants_ranges => {
            for bytes in [old, new].into_iter().flatten() {
                add(&mut changed.ranges, range_of(&key, bytes, sector)?);
            }
        }
        _ => {}
    }
    Ok(())
}

fn range_of(key: &Key, bytes: &[u8], sector: u32) -> Result<Range<u64>> {
    let item = FileExtent::decode(key.offset, bytes, sector)?;
    Ok(item.start..item.end_in_sectors(sector))
}

/// Adds a range that begins where the last one did, or behind that.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = Vec::new();
        for range in [0..4096, 0..8192, 8192..12288, 20480..24576, 20480..20481] {
            add(&mut ranges, range);
        }
        assert_eq!(ranges, [0..12288, 20480..24576]);
    }
}
