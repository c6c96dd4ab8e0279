//! Carries data of a file on its way to disk, and the items made for it.
//!
//! All data takes this path, whether from the pages of a flush or from a large write: `plan` decides about each run,
//! [`super::encode`] compresses it, [`super::run`] allocates its place, [`super::batch`] writes it. The results are in
//! [`Made`]: a flush inserts them ([`super::completion`]), a large write keeps them as pending extents
//! ([`super::direct_write`]).
//!
//! A [`Source`] and runs have offsets and lengths in a file; a [`DataExtent`] and a batch count bytes on disk. They
//! differ where data is compressed.

use std::ops::Range;

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_store::{DataExtent, Hint};
use vfs::{PageCache, Run};

use crate::error::Result;
use crate::extents::{FileExtent, Kind, NewExtent};
use crate::inode::{Compression, Core, Receipt};

/// The place of a file's bytes until they are on disk.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// In pages, which are whole sectors.
    Pages(&'a PageCache),
    /// In the caller's buffer: whole sectors from an offset of the file on, and one more that was padded.
    Caller { start: u64, whole: &'a [u8], last: &'a [u8] },
}

impl<'a> Source<'a> {
    /// The bytes of a range of whole sectors, which the source has, in file order.
    pub(super) fn parts(self, range: Range<u64>) -> impl Iterator<Item = &'a [u8]> {
        let (pages, slices) = match self {
            Self::Pages(pages) => (Some(pages.pages(range)), None),
            Self::Caller { start, whole, last } => {
                let end = start.saturating_add(to_u64(whole.len()));
                let within = |offset: u64| to_usize(offset.clamp(start, end) - start);
                let head = whole.get(within(range.start)..within(range.end)).unwrap_or_default();
                let tail = if range.end > end { last } else { &[] };
                (None, Some([head, tail].into_iter().filter(|part| !part.is_empty())))
            }
        };
        pages.into_iter().flatten().chain(slices.into_iter().flatten())
    }
}

/// The outgoing data of one file.
#[derive(Default)]
pub(super) struct Outgoing {
    /// The reservation for it.
    pub(super) receipt: Receipt,
    /// Its own next place on disk, apart from the other data of the flush.
    pub(super) own_place: Option<Hint>,
    pub(super) wants_csums: bool,
    /// How it is compressed, if at all.
    pub(super) compression: Option<Compression>,
    /// The whole file, compressed, where it becomes small enough for its item.
    pub(super) small: Option<Vec<u8>>,
    pub(super) made: Made,
}

/// The results of writing the data, for the transaction that makes it part of the file.
#[derive(Default)]
pub(super) struct Made {
    /// The items to insert, in file order.
    pub(super) items: Vec<NewExtent>,
    /// Bytes of an inline extent among `items`.
    pub(super) inline: Vec<u8>,
    /// Checksums of adjacent sectors on disk.
    pub(super) csums: Vec<(Logical, Vec<u8>)>,
    /// Space allocated for it.
    pub(super) fresh: Vec<DataExtent>,
}

impl Outgoing {
    pub(super) fn set_inline(&mut self, source: Source<'_>, len: u64) {
        let page = source.parts(0..1).next().unwrap_or_default();
        let plain = page.get(..to_usize(len)).unwrap_or(page);
        let len = to_u64(plain.len());
        let (compression, bytes) = match (self.compression, self.small.take()) {
            (Some(compression), Some(small)) => (compression.kind.to_raw(), small),
            _ => (0, plain.to_vec()),
        };
        self.made.inline = bytes;
        let extent = FileExtent { compression, disk_len: 0, ..FileExtent::whole(0, Kind::Inline, Logical(0), len) };
        self.made.items.push(NewExtent { extent, is_fresh: false });
    }

    pub(super) fn add_in_place(&mut self, run: Run, old: &FileExtent) {
        if old.kind == Kind::Prealloc {
            let extent = FileExtent { kind: Kind::Regular, ..old.part(run.start..run.end()) };
            self.made.items.push(NewExtent { extent, is_fresh: false });
        }
    }

    /// Allocates up to `len` bytes on disk: at its own place if it has one, else preferably at `common`, which moves
    /// behind it.
    pub(super) fn allocate(&mut self, core: &Core, len: u64, common: &mut Hint) -> Result<DataExtent> {
        let extent = self.receipt.alloc(&core.store, len, self.own_place.unwrap_or(*common))?;
        self.made.fresh.push(extent);
        let next = Logical(extent.at.0.saturating_add(extent.len.min(len)));
        self.own_place.as_mut().unwrap_or(common).at = Some(next);
        debug_assert!(0 < extent.len && extent.len <= len, "no more than was asked for");
        Ok(DataExtent { len: extent.len.min(len), ..extent })
    }

    /// Adds an extent with new space.
    pub(super) fn add_fresh(&mut self, extent: FileExtent) {
        self.made.items.push(NewExtent { extent, is_fresh: true });
    }

    pub(super) fn add_csums(&mut self, core: &Core, at: u64, csums: &[u8]) {
        let (sector, csum) = (u64::from(core.store.sizes().sector), core.store.sizes().csum);
        debug_assert!(at.is_multiple_of(sector), "checksums are of whole sectors");
        debug_assert!(csums.len().is_multiple_of(csum.max(1)), "a checksum is whole");
        match self.made.csums.last_mut() {
            Some((start, list)) if start.0 + to_u64(list.len() / csum.max(1)) * sector == at => {
                list.extend_from_slice(csums);
            }
            _ => self.made.csums.push((Logical(at), csums.to_vec())),
        }
    }
}

impl Made {
    /// The checksums of `len` bytes on disk at `at`; empty where there are none. `sizes` are those of a sector and of
    /// its checksum.
    pub(super) fn csums_of(&self, at: Logical, len: u64, (sector, csum): (u32, usize)) -> Vec<u8> {
        let in_csums = |bytes: u64| to_usize(bytes / u64::from(sector)).saturating_mul(csum);
        let found = self.csums.iter().find_map(|(start, list)| {
            let skipped = at.0.checked_sub(start.0)?;
            list.get(in_csums(skipped)..in_csums(skipped.saturating_add(len)))
        });
        found.unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_writer_are_cut_by_the_file_s_offsets() {
        let whole: Vec<u8> = (0..8192_u32).map(|n| n.to_le_bytes()[1]).collect();
        let last = [9; 4096];
        let source = Source::Caller { start: 1 << 20, whole: &whole, last: &last };
        let parts = |from: u64, to: u64| source.parts((1 << 20) + from..(1 << 20) + to).collect::<Vec<_>>();
        assert_eq!(parts(0, 8192), [&whole[..]]);
        assert_eq!(parts(4096, 12288), [&whole[4096..], &last[..]]);
        assert_eq!(parts(8192, 12288), [&last[..]]);
    }

    #[test]
    fn checksums_are_found_by_the_place_on_disk() {
        let made =
            Made { csums: vec![(Logical(8192), vec![1; 8]), (Logical(65536), vec![2, 3, 4])], ..Made::default() };
        assert_eq!(made.csums_of(Logical(69632), 8192, (4096, 1)), [3, 4]);
        assert_eq!(made.csums_of(Logical(8192), 8192, (4096, 4)), [1; 8]);
        assert_eq!(made.csums_of(Logical(4096), 4096, (4096, 4)), [0; 0]);
    }
}
