//! Reads, inserts and deletes checksums of file data in the checksum tree: one per sector, in runs. Called by
//! `extent/apply` and `log`, and through `Store` by reads and writes of data.
//!
//! Key: (`EXTENT_CSUM`, `EXTENT_CSUM`, address of the first sector); the item is an array of
//! checksums of consecutive sectors. Items never overlap and may end and start anywhere, also
//! inside an extent; an item of the largest size nearly fills a leaf.

#![expect(
    clippy::indexing_slicing,
    reason = "lengths are counted in whole checksums of the range that was asked for; a panic is our own bug"
)]

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::error::{At, Detail};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::node::leaf_data_size;
use btrfs_disk::{Corrupt, Key, Logical};

use crate::Result;
use crate::ablation::collects_csums;
use crate::tree::{Cut, Edit, EditItem, Scan, Tree};

/// The kernel keeps an item within one page of checksum *counts*, whatever the node size.
const CSUMS_PER_ITEM_MAX: usize = 4096;

/// Item headers for which the kernel leaves room beside the largest checksum item.
const ITEM_HEADERS_SPARED: u32 = 2 * 25;

/// Sizes that the layout of checksum items depends on.
#[derive(Clone, Copy, Debug)]
pub struct CsumSizes {
    /// Bytes of a tree block.
    pub nodesize: u32,
    /// Bytes that one checksum covers.
    pub sectorsize: u32,
    /// Bytes of a checksum.
    pub csum: usize,
}

/// The checksum tree.
#[derive(Clone, Copy, Debug)]
pub struct CsumTree<'a> {
    tree: &'a Tree,
    csum: usize,
    sector: u64,
    /// Checksums in an item.
    count_max: usize,
}

/// Checksums of a range of sectors, some of which may have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsumRange {
    csum: usize,
    bytes: Vec<u8>,
    present: Vec<bool>,
    present_count: usize,
}

impl CsumRange {
    fn new(csum: usize, count: usize) -> Self {
        Self { csum, bytes: vec![0; count * csum], present: vec![false; count], present_count: 0 }
    }

    /// Number of sectors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.present.len()
    }

    /// Checksum of the sector with this index, where it has one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let is_present = *self.present.get(index)?;
        is_present.then(|| &self.bytes[index * self.csum..(index + 1) * self.csum])
    }

    /// All checksums one after the other, when no sector lacks one.
    #[must_use]
    pub fn all(&self) -> Option<&[u8]> {
        (self.present_count == self.present.len()).then_some(&self.bytes)
    }

    /// The checksums there are: index of the first sector of each run, and its checksums.
    #[must_use]
    pub fn runs(&self) -> Vec<(usize, &[u8])> {
        let mut runs: Vec<(usize, &[u8])> = Vec::new();
        let mut start = 0;
        for same in self.present.chunk_by(|a, b| a == b) {
            let end = start + same.len();
            if same.first() == Some(&true) {
                runs.push((start, &self.bytes[start * self.csum..end * self.csum]));
            }
            start = end;
        }
        runs
    }

    /// True when no sector has a checksum.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present_count == 0
    }

    fn fill(&mut self, index: usize, csums: &[u8]) {
        let start = index * self.csum;
        self.bytes[start..start + csums.len()].copy_from_slice(csums);
        for present in &mut self.present[index..index + csums.len() / self.csum] {
            self.present_count += usize::from(!*present);
            *present = true;
        }
    }
}

/// An item that starts at or before an address of interest.
struct Before {
    start: u64,
    end: u64,
    bytes: Vec<u8>,
}

impl<'a> CsumTree<'a> {
    /// The checksum tree `tree`, of a file system of these sizes.
    #[must_use]
    pub fn new(tree: &'a Tree, sizes: &CsumSizes) -> Self {
        let room = usize_from(leaf_data_size(sizes.nodesize).saturating_sub(ITEM_HEADERS_SPARED));
        let fits = (room / sizes.csum.max(1)).saturating_sub(1);
        Self {
            tree,
            csum: sizes.csum.max(1),
            sector: u64::from(sizes.sectorsize.max(1)),
            count_max: fits.clamp(1, CSUMS_PER_ITEM_MAX),
        }
    }

    /// Stores the checksums of the sectors from `at` on, in place of those they may have.
    ///
    /// # Errors
    /// When the tree cannot be read or changed.
    pub fn put(&self, edit: &Edit<'_>, at: Logical, csums: &[u8]) -> Result<()> {
        let whole = csums.len() - csums.len() % self.csum;
        debug_assert!(whole == csums.len(), "a checksum for each sector");
        debug_assert!(at.0.is_multiple_of(self.span(self.csum)), "checksums are of whole sectors");
        let mut at = at.0;
        let mut rest = &csums[..whole];
        while !rest.is_empty() {
            let taken = self.put_some(edit, at, rest)?;
            rest = &rest[taken..];
            at = at.saturating_add(self.span(taken));
        }
        Ok(())
    }

    /// Removes the checksums of the sectors in a range. Those around it can be looked up all the
    /// time, and stay in the leaves where they are.
    ///
    /// # Errors
    /// When the tree cannot be read or changed.
    pub fn delete(&self, edit: &Edit<'_>, at: Logical, len: u64) -> Result<()> {
        let end = at.0.saturating_add(len);
        if len == 0 {
            return Ok(());
        }
        let sector = self.span(self.csum);
        debug_assert!(at.0.is_multiple_of(sector) && end.is_multiple_of(sector), "checksums are of whole sectors");
        if let Some(before) = self.before(at.0)?
            && before.start < at.0
            && before.end > at.0
        {
            let head = self.offset(before.start, at.0);
            if before.end > end {
                let tail = self.offset(before.start, end);
                let behind = (before.bytes.len() - tail) / self.csum;
                let rest = tail + behind / 2 * self.csum;
                let rest_key = key(before.start.saturating_add(self.span(rest)));
                let cut = Cut { head, tail, tail_key: key(end), rest: (rest, rest_key) };
                return edit.cut_middle(self.tree, &key(before.start), &cut);
            }
            edit.put(self.tree, &key(before.start), &before.bytes[..head])?;
            if before.end == end {
                return Ok(());
            }
        }
        if let Some(last) = self.before(end - 1)?
            && last.end > end
        {
            let tail = self.offset(last.start, end);
            edit.cut_front(self.tree, &key(last.start), tail, &key(end))?;
        }
        edit.remove_range(self.tree, &key(at.0), &key(end - 1), |_, _| {})?;
        Ok(())
    }

    /// The checksums of the sectors in a range.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn lookup(&self, at: Logical, len: u64) -> Result<CsumRange> {
        let mut range = CsumRange::new(self.csum, to_usize(len / self.sector));
        self.each(at, len, |start, csums| {
            range.fill(to_usize((start - at.0) / self.sector), csums);
            Scan::Continue
        })?;
        Ok(range)
    }

    /// True when any sector in a range has a checksum. Stops at the first.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn any(&self, at: Logical, len: u64) -> Result<bool> {
        if collects_csums() {
            return Ok(!self.lookup(at, len)?.is_empty());
        }
        let mut found = false;
        self.each(at, len, |_, _| {
            found = true;
            Scan::Stop
        })?;
        Ok(found)
    }

    /// Shows the runs of checksums in a range, cut to it, ascending.
    fn each(&self, at: Logical, len: u64, mut see: impl FnMut(u64, &[u8]) -> Scan) -> Result<()> {
        let end = at.0.saturating_add(len);
        if len < self.sector {
            return Ok(());
        }
        // Most ranges lie inside of one item: it is looked at where it is.
        let first = self.tree.at_or_before_with(&key(at.0), |key, bytes| {
            if !self.is_csums(key, bytes)? {
                return Ok(None);
            }
            let last = self.end_of(key, bytes).min(end);
            if last <= at.0 {
                return Ok(None);
            }
            let run = &bytes[self.offset(key.offset, at.0)..self.offset(key.offset, last)];
            Ok::<_, Corrupt>(Some((last, see(at.0, run))))
        })?;
        let from = match first.transpose()?.flatten() {
            Some((last, scan)) if scan == Scan::Stop || last >= end => return Ok(()),
            Some((last, _)) => last,
            None => at.0,
        };
        self.tree.scan(&key(from), &key(end - 1), |key, bytes| {
            let last = self.end_of(key, bytes).min(end);
            let cut = self.offset(key.offset, last);
            if cut == 0 {
                return Ok(Scan::Continue);
            }
            Ok(see(key.offset, &bytes[..cut]))
        })
    }

    /// Stores as many of `csums` as one item takes; returns the bytes taken. Zero when another
    /// thread changed the item that was to be extended.
    fn put_some(&self, edit: &Edit<'_>, at: u64, csums: &[u8]) -> Result<usize> {
        let before = self.before(at)?;
        if let Some(before) = before.as_ref().filter(|before| before.end > at) {
            return self.overwrite(edit, before, at, csums);
        }
        let room = self.bytes_before_next(at, csums.len())?;
        if let Some(before) = before.filter(|before| before.end == at) {
            let left = (self.count_max * self.csum).saturating_sub(before.bytes.len());
            let taken = room.min(left);
            if taken > 0 {
                return self.extend(edit, &before, &csums[..taken]);
            }
        }
        let taken = room.min(self.count_max * self.csum);
        edit.insert(self.tree, &key(at), &csums[..taken])?;
        Ok(taken)
    }

    fn overwrite(&self, edit: &Edit<'_>, item: &Before, at: u64, csums: &[u8]) -> Result<usize> {
        let from = self.offset(item.start, at);
        let taken = csums.len().min(item.bytes.len() - from);
        let mut is_done = false;
        edit.update(self.tree, &key(item.start), |bytes| {
            if let Some(place) = bytes.get_mut(from..from + taken) {
                place.copy_from_slice(&csums[..taken]);
                is_done = true;
            }
        })?;
        Ok(if is_done { taken } else { 0 })
    }

    fn extend(&self, edit: &Edit<'_>, item: &Before, csums: &[u8]) -> Result<usize> {
        let mut is_done = false;
        edit.edit(self.tree, &key(item.start), |old| {
            is_done = old.is_some_and(|old| old.len() == item.bytes.len());
            Ok(match old {
                Some(old) if is_done => EditItem::Put([old, csums].concat()),
                _ => EditItem::Keep,
            })
        })?;
        Ok(if is_done { csums.len() } else { 0 })
    }

    /// How many of `wanted` bytes of checksums fit before the next item's first sector.
    fn bytes_before_next(&self, at: u64, wanted: usize) -> Result<usize> {
        let last = at.saturating_add(self.span(wanted) - 1);
        let mut room = wanted;
        self.tree.scan(&key(at.saturating_add(1)), &key(last), |key, _| {
            room = self.offset(at, key.offset);
            Ok(Scan::Stop)
        })?;
        Ok(room)
    }

    /// The item that starts at `at`, or the last that starts before.
    fn before(&self, at: u64) -> Result<Option<Before>> {
        let Some((key, bytes)) = self.tree.at_or_before(&key(at))? else {
            return Ok(None);
        };
        if !self.is_csums(&key, &bytes)? {
            return Ok(None);
        }
        Ok(Some(Before { start: key.offset, end: self.end_of(&key, &bytes), bytes }))
    }

    /// True for an item of checksums.
    fn is_csums(&self, key: &Key, bytes: &[u8]) -> Result<bool, Corrupt> {
        if key.objectid != objectid::EXTENT_CSUM || key.item_type != item_type::EXTENT_CSUM {
            return Ok(false);
        }
        if bytes.is_empty() || !bytes.len().is_multiple_of(self.csum) {
            let expected = Detail::MultipleOf(to_u64(self.csum));
            return Err(Corrupt::new("checksum item size", expected, Detail::size(bytes.len()))
                .at(At::Key(self.tree.id(), *key)));
        }
        Ok(true)
    }

    /// Bytes on disk that this many bytes of checksums cover.
    fn span(&self, csum_bytes: usize) -> u64 {
        to_u64(csum_bytes / self.csum).saturating_mul(self.sector)
    }

    /// Index of the checksum of the sector at `at`, in an item that starts at `start`; bytes.
    fn offset(&self, start: u64, at: u64) -> usize {
        to_usize(at.saturating_sub(start) / self.sector) * self.csum
    }

    fn end_of(&self, key: &Key, bytes: &[u8]) -> u64 {
        key.offset.saturating_add(self.span(bytes.len()))
    }
}

fn key(at: u64) -> Key {
    Key::new(objectid::EXTENT_CSUM, item_type::EXTENT_CSUM, at)
}
