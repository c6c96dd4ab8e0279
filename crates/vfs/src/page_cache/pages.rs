//! Holds the dirty pages of one file: puts, reads and takes them. Called by an engine (`file/write`, `file/read`,
//! `writeback`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Budget;

/// Adjacent dirty pages: a range of file bytes, page-aligned at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first byte in the file.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Run {
    /// Offset of the first byte behind the run.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// A part of a range of file bytes: in the cache, or to be had elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The file's bytes from `start` on.
    Cached {
        /// Offset in the file.
        start: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Not in the cache.
    Gap(Range<u64>),
}

/// The pages of one file that are newer than the disk.
#[derive(Debug)]
pub struct PageCache {
    page_bytes: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
    run_count: usize,
    budget: Arc<Budget>,
}

impl PageCache {
    /// An empty cache. `page_bytes` must not be 0.
    #[must_use]
    pub fn new(page_bytes: u32, budget: Arc<Budget>) -> Self {
        Self { page_bytes: u64::from(page_bytes.max(1)), pages: BTreeMap::new(), run_count: 0, budget }
    }

    /// Size of a page in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// True when nothing is dirty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Number of dirty pages.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Number of runs that the pages form.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.run_count
    }

    /// Offset of the first dirty byte; `None` when nothing is dirty.
    #[must_use]
    pub fn start(&self) -> Option<u64> {
        let (first, _) = self.pages.first_key_value()?;
        Some(first.saturating_mul(self.page_bytes))
    }

    /// The page that contains `offset`.
    #[must_use]
    pub fn page(&self, offset: u64) -> Option<&[u8]> {
        self.pages.get(&(offset / self.page_bytes)).map(AsRef::as_ref)
    }

    /// The page that contains `offset`, for changing it.
    pub fn page_mut(&mut self, offset: u64) -> Option<&mut [u8]> {
        self.pages.get_mut(&(offset / self.page_bytes)).map(AsMut::as_mut)
    }

    /// Puts the page that starts at `start` (rounded down to a page), replacing an older one.
    pub fn put(&mut self, start: u64, page: Box<[u8]>) {
        let index = start / self.page_bytes;
        self.budget.charge(page.len());
        if let Some(old) = self.pages.insert(index, page) {
            self.budget.release(old.len());
            return;
        }
        let joins_left = index > 0 && self.pages.contains_key(&(index - 1));
        let joins_right = self.pages.contains_key(&index.saturating_add(1));
        match (joins_left, joins_right) {
            (true, true) => self.run_count = self.run_count.saturating_sub(1),
            (false, false) => self.run_count += 1,
            _ => {}
        }
    }

    /// Takes over the pages of `older` that are not here: those here are newer.
    pub fn put_older(&mut self, mut older: Self) {
        older.budget.release(older.pages.values().map(|page| page.len()).sum());
        for (index, page) in std::mem::take(&mut older.pages) {
            if !self.pages.contains_key(&index) {
                self.put(index.saturating_mul(self.page_bytes), page);
            }
        }
    }

    /// Drops every page that starts within `range`.
    pub fn discard(&mut self, range: Range<u64>) {
        drop(self.take(range));
    }

    /// Takes out every page that starts within `range`, as a cache of its own.
    #[must_use]
    pub fn take(&mut self, range: Range<u64>) -> Self {
        let first = range.start.div_ceil(self.page_bytes);
        let end = range.end.div_ceil(self.page_bytes);
        let mut taken = Self {
            page_bytes: self.page_bytes,
            pages: BTreeMap::new(),
            run_count: 0,
            budget: Arc::clone(&self.budget),
        };
        if first >= end || self.pages.range(first..end).next().is_none() {
            return taken;
        }
        let mut inside = self.pages.split_off(&first);
        let mut behind = inside.split_off(&end);
        self.pages.append(&mut behind);
        taken.pages = inside;
        taken.run_count = taken.runs().count();
        self.run_count = self.runs().count();
        taken
    }

    /// The dirty runs in file order.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let mut pages = self.pages.keys().copied().peekable();
        let page_bytes = self.page_bytes;
        std::iter::from_fn(move || {
            let first = pages.next()?;
            let mut end = first.saturating_add(1);
            while pages.next_if_eq(&end).is_some() {
                end = end.saturating_add(1);
            }
            Some(Run { start: first.saturating_mul(page_bytes), len: (end - first).saturating_mul(page_bytes) })
        })
    }

    /// The pages that start within `range`, in file order.
    pub fn pages(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        let first = range.start.div_ceil(self.page_bytes);
        let end = range.end.div_ceil(self.page_bytes).max(first);
        self.pages.range(first..end).map(|(_, page)| page.as_ref())
    }

    /// Calls `visit` for each part of `range`, in order: cached bytes (page by page) and
    /// the gaps between them.
    pub fn pieces(&self, range: Range<u64>, mut visit: impl FnMut(Piece<'_>)) {
        let mut at = range.start;
        let first = range.start / self.page_bytes;
        let end = range.end.div_ceil(self.page_bytes).max(first);
        for (index, page) in self.pages.range(first..end) {
            let page_start = index.saturating_mul(self.page_bytes);
            let from = page_start.max(at);
            let to = page_start.saturating_add(self.page_bytes).min(range.end);
            if from >= to {
                continue;
            }
            if at < from {
                visit(Piece::Gap(at..from));
            }
            let inside = |offset: u64| usize::try_from(offset - page_start).unwrap_or(usize::MAX);
            if let Some(bytes) = page.get(inside(from)..inside(to)) {
                visit(Piece::Cached { start: from, bytes });
            }
            at = to;
        }
        if at < range.end {
            visit(Piece::Gap(at..range.end));
        }
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.budget.release(self.pages.values().map(|page| page.len()).sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: u8) -> Box<[u8]> {
        vec![fill; 16].into_boxed_slice()
    }

    fn cache(budget: &Arc<Budget>, starts: &[u64]) -> PageCache {
        let mut cache = PageCache::new(16, Arc::clone(budget));
        for start in starts {
            cache.put(*start, page(1));
        }
        cache
    }

    #[test]
    fn adjacent_pages_form_runs() {
        let budget = Arc::new(Budget::new(64));
        let cache = cache(&budget, &[64, 0, 32, 16, 160]);
        let runs: Vec<Run> = cache.runs().collect();
        assert_eq!(runs, [Run { start: 0, len: 48 }, Run { start: 64, len: 16 }, Run { start: 160, len: 16 }]);
        assert_eq!(cache.run_count(), 3);
        assert_eq!(runs.last().map(Run::end), Some(176));
        assert_eq!(cache.start(), Some(0));
    }

    #[test]
    fn the_budget_counts_pages_until_they_are_dropped() {
        let budget = Arc::new(Budget::new(40));
        let mut cache = cache(&budget, &[0, 16, 16, 64]);
        assert_eq!(budget.used_bytes(), 48);
        assert!(budget.is_exceeded());
        let taken = cache.take(16..64);
        assert_eq!((taken.page_count(), cache.page_count(), budget.used_bytes()), (1, 2, 48));
        assert_eq!((taken.run_count(), cache.run_count()), (1, 2));
        drop(taken);
        assert_eq!(budget.used_bytes(), 32);
        cache.discard(0..1);
        assert_eq!((budget.used_bytes(), cache.run_count()), (16, 1));
        drop(cache);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn pieces_cover_the_range_in_order() {
        let budget = Arc::new(Budget::new(64));
        let cache = cache(&budget, &[16, 48]);
        let mut seen = Vec::new();
        cache.pieces(10..56, |piece| {
            seen.push(match piece {
                Piece::Cached { start, bytes } => (start, bytes.len(), true),
                Piece::Gap(gap) => (gap.start, usize::try_from(gap.end - gap.start).unwrap(), false),
            });
        });
        assert_eq!(seen, [(10, 6, false), (16, 16, true), (32, 16, false), (48, 8, true)]);
        let mut gaps = Vec::new();
        cache.pieces(100..103, |piece| gaps.push(matches!(piece, Piece::Gap(_))));
        assert_eq!(gaps, [true]);
    }

    #[test]
    fn older_pages_give_way() {
        let budget = Arc::new(Budget::new(64));
        let mut newer = cache(&budget, &[16]);
        let mut older = cache(&budget, &[0, 32]);
        older.put(16, page(2));
        newer.put_older(older);
        assert_eq!((newer.page_count(), newer.run_count(), budget.used_bytes()), (3, 1, 48));
        assert_eq!(newer.page(16).map(|page| page[0]), Some(1));
    }

    #[test]
    fn a_page_is_changed_in_place() {
        let budget = Arc::new(Budget::new(64));
        let mut cache = cache(&budget, &[16]);
        cache.page_mut(20).unwrap()[4] = 9;
        assert_eq!(cache.page(31).map(|page| page[4]), Some(9));
        assert_eq!(cache.page(32), None);
        assert_eq!(cache.pages(0..64).count(), 1);
    }
}
