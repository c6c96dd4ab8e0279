//! Counts the room for the contents of files, in pages. `data` takes and returns it.

use std::sync::atomic::{AtomicU64, Ordering};

use vfs::file_system::{Errno, Result, VolumeStatus};

use super::NAME_BYTES_MAX;

/// Bytes of a page: the unit of allocation.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Counts the pages that are in use.
#[derive(Debug)]
pub(super) struct Space {
    pages: u64,
    pages_used: AtomicU64,
}

impl Space {
    pub(super) const fn new(capacity_bytes: u64) -> Self {
        Self { pages: capacity_bytes / PAGE_BYTES, pages_used: AtomicU64::new(0) }
    }

    /// Takes all of `pages`, or none of them.
    pub(super) fn take(&self, pages: u64) -> Result<()> {
        let taken = self.pages_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(pages).filter(|used| *used <= self.pages)
        });
        taken.map(drop).map_err(|_| Errno::ENOSPC)
    }

    pub(super) fn give_back(&self, pages: u64) {
        self.pages_used.fetch_sub(pages, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> VolumeStatus {
        let free = self.pages - self.pages_used.load(Ordering::Relaxed);
        VolumeStatus {
            block_bytes: u32::try_from(PAGE_BYTES).expect("a small constant"),
            blocks: self.pages,
            blocks_free: free,
            blocks_available: free,
            nodes: 0,
            nodes_free: 0,
            name_bytes_max: u32::try_from(NAME_BYTES_MAX).expect("a small constant"),
        }
    }
}
