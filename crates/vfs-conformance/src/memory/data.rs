//! Holds the contents of a file: its size, and the pages that are not holes. `node` has one for each file; `contents`
//! changes it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vfs::file_system::{Errno, Result};

use super::space::{PAGE_BYTES, Space};
use super::to_u64;

/// Largest size of a file, in bytes.
pub(super) const SIZE_MAX: u64 = i64::MAX.cast_unsigned();

const PAGE: usize = 4096;

/// Sparse bytes. Gives its pages back when it is dropped.
#[derive(Debug)]
pub(super) struct Data {
    size: u64,
    pages: BTreeMap<u64, Page>,
    space: Arc<Space>,
}

#[derive(Debug)]
enum Page {
    /// Written to.
    Bytes(Box<[u8; PAGE]>),
    /// Paid for, reads as zeros, and counts as a hole.
    Allocated,
}

/// The part of a range that lies in one page.
struct Piece {
    page: u64,
    /// Bytes of the page.
    within: Range<usize>,
    /// Bytes of the range.
    at: Range<usize>,
}

impl Data {
    pub(super) const fn new(space: Arc<Space>) -> Self {
        Self { size: 0, pages: BTreeMap::new(), space }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Charged pages, each with its contents, if it was written.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, Option<&[u8; PAGE]>)> {
        self.pages.iter().map(|(index, page)| match page {
            Page::Bytes(bytes) => (*index, Some(&**bytes)),
            Page::Allocated => (*index, None),
        })
    }

    /// Sets the size that belongs to the pages.
    pub(super) const fn restore_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Pages that are paid for.
    pub(super) fn page_count(&self) -> u64 {
        to_u64(self.pages.len())
    }

    /// Fills as much of `buf` as there is before the end.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let left = self.size.saturating_sub(offset);
        let count = usize::try_from(left).map_or(buf.len(), |left| left.min(buf.len()));
        for piece in pieces(offset, count) {
            let part = &mut buf[piece.at];
            match self.pages.get(&piece.page) {
                Some(Page::Bytes(bytes)) => part.copy_from_slice(&bytes[piece.within]),
                Some(Page::Allocated) | None => part.fill(0),
            }
        }
        count
    }

    /// Writes all of `data`. The range has been checked.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset + to_u64(data.len());
        self.pay_for(offset..end)?;
        for piece in pieces(offset, data.len()) {
            let part = &data[piece.at];
            let page = self.pages.entry(piece.page).or_insert(Page::Allocated);
            page.write(piece.within, part);
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Cuts off, or grows by a hole.
    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            let cut_off = self.pages.split_off(&size.div_ceil(PAGE_BYTES));
            self.space.give_back(to_u64(cut_off.len()));
            self.clear(size..size.next_multiple_of(PAGE_BYTES));
        }
        self.size = size;
    }

    /// Charges all pages of a range; their contents stay.
    pub(super) fn allocate(&mut self, range: Range<u64>) -> Result<()> {
        self.pay_for(range.clone())?;
        for page in touched(&range) {
            self.pages.entry(page).or_insert(Page::Allocated);
        }
        Ok(())
    }

    /// Makes a range read as zeros from pages that are paid for.
    pub(super) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        self.allocate(range.clone())?;
        for page in covered(&range) {
            self.pages.insert(page, Page::Allocated);
        }
        self.clear(range);
        Ok(())
    }

    /// Makes a range a hole, as far as it covers whole pages, and zeros for the rest.
    pub(super) fn punch(&mut self, range: Range<u64>) {
        let covered = covered(&range);
        if !covered.is_empty() {
            let mut tail = self.pages.split_off(&covered.start);
            let mut behind = tail.split_off(&covered.end);
            self.pages.append(&mut behind);
            self.space.give_back(to_u64(tail.len()));
        }
        self.clear(range);
    }

    /// The first byte at or after `offset` that was written.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let written = |(page, kept): (&u64, &Page)| kept.is_written().then_some(page * PAGE_BYTES);
        let start = self.pages.range(offset / PAGE_BYTES..).find_map(written)?.max(offset);
        (start < self.size).then_some(start)
    }

    /// The first byte at or after `offset` that was not written; the end is a hole.
    pub(super) fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut page = offset / PAGE_BYTES;
        for (index, kept) in self.pages.range(page..) {
            if *index != page || !kept.is_written() {
                break;
            }
            page += 1;
        }
        Some((page * PAGE_BYTES).clamp(offset, self.size))
    }

    fn pay_for(&self, range: Range<u64>) -> Result<()> {
        let touched = touched(&range);
        let there = to_u64(self.pages.range(touched.clone()).count());
        self.space.take(touched.end - touched.start - there)
    }

    /// Zeroes the bytes of a range that were written.
    fn clear(&mut self, range: Range<u64>) {
        let touched = touched(&range);
        for (index, page) in self.pages.range_mut(touched) {
            let Page::Bytes(bytes) = page else { continue };
            let start = index * PAGE_BYTES;
            let from = range.start.saturating_sub(start);
            let to = (range.end - start).min(PAGE_BYTES);
            bytes[within_page(from)..within_page(to)].fill(0);
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.space.give_back(self.page_count());
    }
}

impl Page {
    const fn is_written(&self) -> bool {
        matches!(self, Self::Bytes(_))
    }

    fn write(&mut self, within: Range<usize>, data: &[u8]) {
        match self {
            Self::Bytes(bytes) => bytes[within].copy_from_slice(data),
            Self::Allocated => *self = Self::Bytes(first_bytes(within, data)),
        }
    }
}

/// A page of zeros with `data` in it.
fn first_bytes(within: Range<usize>, data: &[u8]) -> Box<[u8; PAGE]> {
    if let Ok(whole) = data.try_into() {
        return Box::new(whole);
    }
    let mut bytes = Box::new([0; PAGE]);
    bytes[within].copy_from_slice(data);
    bytes
}

/// The end of a range that a file can have.
pub(super) fn range_end(offset: u64, len: u64) -> Result<u64> {
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
    if end > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    Ok(end)
}

/// Pages that hold at least one byte of a range.
const fn touched(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

/// Pages of which every byte is in a range.
fn covered(range: &Range<u64>) -> Range<u64> {
    let start = range.start.div_ceil(PAGE_BYTES);
    start..(range.end / PAGE_BYTES).max(start)
}

fn within_page(offset: u64) -> usize {
    usize::try_from(offset).expect("at most a page")
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let position = offset + to_u64(at);
        let start = within_page(position % PAGE_BYTES);
        let count = (PAGE - start).min(len - at);
        let piece = Piece { page: position / PAGE_BYTES, within: start..start + count, at: at..at + count };
        at += count;
        Some(piece)
    })
}
