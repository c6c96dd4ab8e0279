//! Remembers when the item of an inode was staged, and how often it was changed. Used by `handle`, and by the log to
//! find changes since the last fsync.

use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::Generation;

/// Written under the write lock of the inode's `state`.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// Transaction in which the item was staged last; 0 for never.
    staged_in: AtomicU64,
    change_count: AtomicU64,
}

impl Staging {
    pub(super) fn count_change(&self) {
        self.change_count.fetch_add(1, Ordering::Release);
    }

    pub(super) fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
    }

    pub(super) fn stage(&self, running: Generation) {
        self.staged_in.store(running.0, Ordering::Relaxed);
    }

    /// True when the item was staged in this transaction, or in one after it.
    pub(super) fn is_in(&self, running: Generation) -> bool {
        self.staged_in.load(Ordering::Relaxed) >= running.0
    }
}
