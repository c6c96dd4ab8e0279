//! Counts how many dirty bytes all files of a volume hold together. An engine's writers (`file/write`) check it, and
//! write back beyond the limit.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A shared count of dirty bytes with a limit that its users keep.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// A budget of `limit_bytes`, none of it used.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, used_bytes: AtomicUsize::new(0) }
    }

    /// The limit in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Dirty bytes now.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// True when a writer has to write back before it goes on.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.limit_bytes
    }

    pub(super) fn charge(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
