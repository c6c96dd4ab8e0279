//! Reads the extent items of an inode from its subvolume tree. Called by reads, reflinks, send and writeback.

use std::ops::Range;

use btrfs_disk::items::FILE_EXTENT_INLINE_START;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key};
use btrfs_store::{Scan, Tree};

use super::{FileExtent, Kind};
use crate::error::Result;

/// Most items that one map should hold; longer ranges are read in several steps.
pub(crate) const SCAN_ITEMS_MAX: usize = 4096;

/// All items of one inode that overlap a range.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentMap {
    /// The file bytes that the map covers.
    known: Range<u64>,
    items: Vec<FileExtent>,
}

/// A part of a file: covered by an item, or by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch {
    /// The file bytes `start..end` are those of the item.
    Item(FileExtent),
    /// No item: zeros.
    Gap,
}

impl ExtentMap {
    /// Reads the items that overlap the sectors of `range`, at most `limit` of them (and at least one):
    /// [`Self::known`] says how far they reach, which is further than `range.start`.
    ///
    /// # Errors
    /// Corrupt when items overlap or lie; whatever reading the tree fails with.
    pub(crate) fn load(tree: &Tree, ino: InodeNo, range: Range<u64>, limit: usize, sector: u32) -> Result<Self> {
        // Whole sectors: the end of a gap decides how much of it is preallocated.
        let unit = u64::from(sector);
        let range = range.start - range.start % unit..range.end.next_multiple_of(unit);
        let mut items: Vec<FileExtent> = Vec::new();
        let at = |key: &Key| At::Key(tree.id(), *key);
        let from = Key::new(ino.0, EXTENT_DATA, range.start);
        if let Some((key, bytes)) = tree.at_or_before(&from)?
            && (key.objectid, key.item_type) == (ino.0, EXTENT_DATA)
        {
            let item = FileExtent::decode(key.offset, &bytes, sector).map_err(|error| error.at(at(&key)))?;
            if item.end_in_sectors(sector) > range.start {
                items.push(item);
            }
        }
        let mut known = range.clone();
        let to = Key::new(ino.0, EXTENT_DATA, range.end.saturating_sub(1));
        let mut failure = None;
        let is_covered = items.first().is_some_and(|item| item.end() >= range.end);
        if let Some(from) = from.next().filter(|from| *from <= to && !is_covered) {
            tree.scan(&from, &to, |key, bytes| {
                if items.len() >= limit.max(1) {
                    known.end = key.offset;
                    return Ok(Scan::Stop);
                }
                match next_item(&items, key, bytes, sector) {
                    Ok(item) => items.push(item),
                    Err(error) => {
                        failure = Some(error.at(at(key)));
                        return Ok(Scan::Stop);
                    }
                }
                Ok(Scan::Continue)
            })?;
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(Self::new(known, items, sector)),
        }
    }

    /// Whole items are known, also where they reach out of the range that was asked for.
    fn new(asked: Range<u64>, items: Vec<FileExtent>, sector: u32) -> Self {
        let start = items.first().map_or(asked.start, |first| first.start.min(asked.start));
        let end = items.last().map_or(asked.end, |last| last.end_in_sectors(sector).max(asked.end));
        Self { known: start..end, items }
    }

    pub(crate) fn known(&self) -> Range<u64> {
        self.known.clone()
    }

    pub(crate) fn items(&self) -> &[FileExtent] {
        &self.items
    }

    /// The item or gap at `offset`, which must be known, and its end.
    pub(crate) fn at(&self, offset: u64, sector: u32) -> (Stretch, u64) {
        let index = self.items.partition_point(|item| item.end_in_sectors(sector) <= offset);
        match self.items.get(index) {
            Some(item) if item.start <= offset => {
                (Stretch::Item(*item), item.end_in_sectors(sector).min(self.known.end))
            }
            Some(item) => (Stretch::Gap, item.start.min(self.known.end)),
            None => (Stretch::Gap, self.known.end),
        }
    }

    pub(crate) fn knows(&self, offset: u64) -> bool {
        self.known.contains(&offset)
    }
}

fn next_item(items: &[FileExtent], key: &Key, bytes: &[u8], sector: u32) -> std::result::Result<FileExtent, Corrupt> {
    let item = FileExtent::decode(key.offset, bytes, sector)?;
    match items.last() {
        Some(last) if last.end_in_sectors(sector) > item.start => Err(Corrupt::new(
            "file extent start",
            Detail::AtLeast(last.end_in_sectors(sector)),
            Detail::Number(item.start),
        )),
        _ => Ok(item),
    }
}

/// The bytes that stand in an inline item, still compressed when the item says so.
///
/// # Errors
/// Corrupt when the item was removed or is no inline extent.
pub(crate) fn read_inline(tree: &Tree, ino: InodeNo, item: &FileExtent) -> Result<Vec<u8>> {
    let key = Key::new(ino.0, EXTENT_DATA, item.start);
    let bytes = tree.get_with(&key, |bytes| bytes.get(FILE_EXTENT_INLINE_START..).map(<[u8]>::to_vec))?;
    match bytes.flatten() {
        Some(bytes) if item.kind == Kind::Inline => Ok(bytes),
        _ => Err(Corrupt::new("inline extent", Detail::Text("an inline extent as read before"), Detail::Text("none"))
            .at(At::Key(tree.id(), key))
            .into()),
    }
}
