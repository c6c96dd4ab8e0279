//! Prepares the pages of a write before the lock is taken: copies of the written data, and reads of partly overwritten
//! pages. Called by `write`.

use std::ops::Range;
use std::vec;

use btrfs_disk::convert::{to_u64, to_usize, usize_from};

use super::read::read_at;
use crate::error::Result;
use crate::inode::{Core, DataLayers, Inode};

/// Pages read ahead by one write. When the file changes all the time, the last one is read under the lock.
const READS_MAX: u32 = 4;

/// The pages of one write.
pub(super) struct PreparedPages {
    /// Pages that it covers whole, in file order.
    whole: vec::IntoIter<Box<[u8]>>,
    /// The first and the last page, where it covers a part of them.
    parts: Vec<PreparedPage>,
    reads: u32,
}

struct PreparedPage {
    start: u64,
    page: Box<[u8]>,
    /// The page is valid while the file's data has this version.
    version: u64,
}

impl PreparedPages {
    /// The pages that a write of `data` at `at` covers whole, filled.
    pub(super) fn of(core: &Core, at: u64, data: &[u8]) -> Self {
        let sector = usize_from(core.store.sizes().sector);
        let head = to_usize(at.next_multiple_of(to_u64(sector)) - at);
        let body = data.get(head..).unwrap_or_default();
        let whole: Vec<Box<[u8]>> = body.chunks_exact(sector).map(Into::into).collect();
        Self { whole: whole.into_iter(), parts: Vec::new(), reads: 0 }
    }

    /// The next page that the write covers.
    pub(super) fn take_whole(&mut self) -> Option<Box<[u8]>> {
        self.whole.next()
    }

    /// A page that a write of `range` needs and that is not in memory.
    pub(super) fn missing_page(
        &self,
        core: &Core,
        inode: &Inode,
        layers: &DataLayers,
        range: Range<u64>,
    ) -> Option<u64> {
        let sector = u64::from(core.store.sizes().sector);
        let start_of = |offset: u64| offset - offset % sector;
        let is_partial = |start: u64| range.start > start || range.end < start + sector;
        if self.reads >= READS_MAX || (!is_partial(start_of(range.start)) && range.end.is_multiple_of(sector)) {
            return None;
        }
        let size = inode.state().size;
        let version = inode.data.version();
        let is_known = |start: u64| {
            let flight = layers.flight.as_deref();
            let in_flight = flight.and_then(|flight| flight.pages.as_ref());
            let mut in_memory = layers.dirty.iter().chain(in_flight);
            in_memory.any(|pages| pages.page(start).is_some())
                || self.parts.iter().any(|a| (a.start, a.version) == (start, version))
        };
        [range.start, range.end.saturating_sub(1)]
            .map(start_of)
            .into_iter()
            .find(|start| is_partial(*start) && *start < size && !is_known(*start))
    }

    /// Reads a page. Called without locks.
    pub(super) fn read(&mut self, core: &Core, inode: &Inode, start: u64) -> Result<()> {
        self.reads += 1;
        let version = inode.data.version_now();
        let mut page = vec![0; usize_from(core.store.sizes().sector)].into_boxed_slice();
        read_at(core, inode, start, &mut page)?;
        self.parts.retain(|prepared| prepared.start != start);
        self.parts.push(PreparedPage { start, page, version });
        Ok(())
    }

    /// The page, if it was read, is still valid, and is not dirty.
    pub(super) fn take(&mut self, inode: &Inode, layers: &DataLayers, start: u64) -> Option<Box<[u8]>> {
        let at = self.parts.iter().position(|prepared| prepared.start == start)?;
        let PreparedPage { mut page, version, .. } = self.parts.swap_remove(at);
        let is_dirty = layers.dirty.as_ref().is_some_and(|dirty| dirty.page(start).is_some());
        if is_dirty || version != inode.data.version() {
            return None;
        }
        // The file may have been shortened meanwhile and extended again: its version shows that. Bytes after its end
        // were read as zeros.
        let inside = to_usize(inode.state().size.saturating_sub(start)).min(page.len());
        page.iter_mut().skip(inside).for_each(|byte| *byte = 0);
        Some(page)
    }
}
