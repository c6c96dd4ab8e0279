//! How often a whole volume is synced: where that happens again and again, what becomes dirty is written before the
//! next sync has to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Syncs that follow each other within so many milliseconds are many.
const OFTEN_MILLIS: u64 = 1000;

/// Syncs of a volume, those under way and how long ago they were.
#[derive(Debug)]
pub(crate) struct Synced {
    under_way: AtomicUsize,
    opened: Instant,
    /// When the last one began, in milliseconds since the volume was opened.
    last_millis: AtomicU64,
    /// Until then there are many; 0 where there never were.
    often_until: AtomicU64,
}

/// A sync of the whole volume is under way.
#[derive(Debug)]
#[must_use = "it ends with this"]
pub(crate) struct Syncing<'a>(&'a Synced);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Synced {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            opened: Instant::now(),
            last_millis: AtomicU64::new(0),
            often_until: AtomicU64::new(0),
        }
    }
}

impl Synced {
    /// Tells who can wait, until the guard is dropped, that somebody waits for a sync of the whole volume.
    pub(crate) fn begin(&self) -> Syncing<'_> {
        self.note(self.now_millis());
        self.wait()
    }

    /// The same of who waits for commits, and does not sync.
    pub(crate) fn wait(&self) -> Syncing<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Syncing(self)
    }

    /// True while somebody waits for such a sync.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// True where one follows the other.
    pub(crate) fn is_often(&self) -> bool {
        let until = self.often_until.load(Ordering::Relaxed);
        // Most volumes are never synced like that, and do not ask what time it is.
        until > 0 && self.now_millis() < until
    }

    fn now_millis(&self) -> u64 {
        // From 1 on, so that 0 is never.
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn note(&self, now: u64) {
        let last = self.last_millis.swap(now, Ordering::Relaxed);
        if last > 0 && now.saturating_sub(last) <= OFTEN_MILLIS {
            self.often_until.store(now.saturating_add(OFTEN_MILLIS), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_that_follow_each_other_are_many_and_one_alone_is_not() {
        let synced = Synced::default();
        let until = || synced.often_until.load(Ordering::Relaxed);
        synced.note(1);
        assert_eq!(until(), 0);
        synced.note(2 + OFTEN_MILLIS);
        assert_eq!(until(), 0);
        synced.note(2 + 2 * OFTEN_MILLIS);
        assert_eq!(until(), 2 + 3 * OFTEN_MILLIS);
        assert!(!synced.is_under_way() && synced.is_often());
        let guard = synced.begin();
        assert!(synced.is_under_way());
        drop(guard);
        assert!(!synced.is_under_way());
    }
}
