//! Holds the bytes of a file of the model: pages that exist, zeros elsewhere. Used by `apply` and `property/compare`.

use crate::number::{to_u64, to_usize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page of the model. The same as a sector's, so that shared ranges share whole pages.
pub const PAGE_BYTES: u64 = 4096;

type Page = [u8; 4096];

/// A sparse run of bytes. A clone shares all pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    pages: BTreeMap<u64, Arc<Page>>,
    len: u64,
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when there are no bytes, not even zeros.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many pages hold something.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        to_u64(self.pages.len())
    }

    /// First bytes of the pages that hold something.
    pub fn page_starts(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().map(|page| page.saturating_mul(PAGE_BYTES))
    }

    /// Writes `data` at `offset`; the length grows to hold it.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = at % PAGE_BYTES;
            let count = to_usize(PAGE_BYTES - within).min(rest.len());
            let (part, after) = rest.split_at(count);
            let page = self.pages.entry(at / PAGE_BYTES).or_insert_with(|| Arc::new([0; 4096]));
            let start = to_usize(within);
            if let Some(target) = Arc::make_mut(page).get_mut(start..start.saturating_add(count)) {
                target.copy_from_slice(part);
            }
            at = at.saturating_add(to_u64(count));
            rest = after;
        }
        self.len = self.len.max(at);
    }

    /// The bytes from `offset`, `len` of them or as many as there are.
    #[must_use]
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.len);
        let mut bytes = vec![0; to_usize(end.saturating_sub(offset))];
        if bytes.is_empty() {
            return bytes;
        }
        for (page, content) in self.pages.range(offset / PAGE_BYTES..=(end - 1) / PAGE_BYTES) {
            let start = page.saturating_mul(PAGE_BYTES);
            let from = start.max(offset);
            let until = start.saturating_add(PAGE_BYTES).min(end);
            let source = content.get(to_usize(from - start)..to_usize(until - start));
            let target = bytes.get_mut(to_usize(from - offset)..to_usize(until - offset));
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
        bytes
    }

    /// Makes a range zeros; the length stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let first_whole = offset.div_ceil(PAGE_BYTES);
        let after_whole = end / PAGE_BYTES;
        if first_whole < after_whole {
            let gone: Vec<u64> = self.pages.range(first_whole..after_whole).map(|(page, _)| *page).collect();
            for page in gone {
                self.pages.remove(&page);
            }
        }
        for page in [offset / PAGE_BYTES, after_whole] {
            let start = page.saturating_mul(PAGE_BYTES);
            let from = start.max(offset);
            let until = start.saturating_add(PAGE_BYTES).min(end);
            if let (true, Some(content)) = (from < until, self.pages.get_mut(&page))
                && let Some(target) = Arc::make_mut(content).get_mut(to_usize(from - start)..to_usize(until - start))
            {
                target.fill(0);
            }
        }
    }

    /// Cuts, or extends with zeros.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len - len);
            self.pages.split_off(&len.div_ceil(PAGE_BYTES));
        }
        self.len = len;
    }

    /// Takes `len` bytes of `source` (a whole number of pages, or up to its end) over.
    pub fn clone_range(&mut self, source: &Self, source_offset: u64, offset: u64, len: u64) {
        let len = len.min(source.len.saturating_sub(source_offset));
        self.zero(offset, len);
        let pages = source_offset / PAGE_BYTES..source_offset.saturating_add(len).div_ceil(PAGE_BYTES);
        for (page, _) in source.pages.range(pages) {
            let start = page.saturating_mul(PAGE_BYTES).saturating_sub(source_offset);
            let bytes = source.read(source_offset.saturating_add(start), PAGE_BYTES.min(len.saturating_sub(start)));
            self.write(offset.saturating_add(start), &bytes);
        }
        self.len = self.len.max(offset.saturating_add(len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crash_explorer::Random;

    #[test]
    fn it_does_what_a_plain_vector_does() {
        let mut random = Random::new(3);
        let mut content = Content::default();
        let mut plain: Vec<u8> = Vec::new();
        for _ in 0..2000 {
            let offset = random.below(30_000);
            let len = random.below(9000);
            let (from, until) = (to_usize(offset), to_usize(offset + len));
            match random.below(4) {
                0 | 1 => {
                    let data = random.noise(to_usize(len));
                    content.write(offset, &data);
                    if !data.is_empty() {
                        plain.resize(plain.len().max(until), 0);
                        plain[from..until].copy_from_slice(&data);
                    }
                }
                2 => {
                    content.zero(offset, len);
                    let end = plain.len();
                    plain[from.min(end)..until.min(end)].fill(0);
                }
                _ => {
                    content.set_len(offset);
                    plain.resize(from, 0);
                }
            }
            content.len = content.len.max(to_u64(plain.len()));
            assert_eq!(content.len(), to_u64(plain.len()));
            assert_eq!(content.read(0, content.len()), plain);
            let end = plain.len();
            assert_eq!(content.read(offset, len), plain[from.min(end)..until.min(end)]);
        }
    }

    #[test]
    fn ranges_are_taken_over_between_files() {
        let mut source = Content::default();
        source.write(4096, &[1; 5000]);
        let mut target = Content::default();
        target.write(0, &[2; 20_000]);
        target.clone_range(&source, 0, 8192, source.len());
        assert_eq!(target.read(8192, 4096), [0; 4096]);
        assert_eq!(target.read(12_288, 5000), [1; 5000]);
        assert_eq!(target.read(17_288, 10), [2; 10]);
        assert_eq!(target.len(), 20_000);
    }
}
