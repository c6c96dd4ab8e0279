//! Measures the rate of syncs of a whole volume: where they are frequent, the flusher writes dirty data before the next
//! sync has to. Used by the flusher, the background work and syncs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Syncs within this many milliseconds of each other are frequent.
const OFTEN_MILLIS: u64 = 1000;

/// Syncs of a volume: the running ones and the time of the last.
#[derive(Debug)]
pub(crate) struct SyncRate {
    under_way: AtomicUsize,
    opened: Instant,
    /// When the last one began, in milliseconds since the volume was opened.
    last_millis: AtomicU64,
    /// Syncs count as frequent until this time; 0 where they never were.
    often_until: AtomicU64,
}

/// A running sync of the whole volume.
#[derive(Debug)]
#[must_use = "the sync counts as running until this is dropped"]
pub(crate) struct Syncing<'a>(&'a SyncRate);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for SyncRate {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            opened: Instant::now(),
            last_millis: AtomicU64::new(0),
            often_until: AtomicU64::new(0),
        }
    }
}

impl SyncRate {
    /// Notes that a sync of the whole volume runs, until the guard is dropped: background work yields to it.
    pub(crate) fn begin(&self) -> Syncing<'_> {
        self.note(self.now_millis());
        self.wait()
    }

    /// The same for a thread that waits for commits, and does not sync.
    pub(crate) fn wait(&self) -> Syncing<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Syncing(self)
    }

    /// True while such a sync or commit is waited for.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// True where syncs are frequent.
    pub(crate) fn is_often(&self) -> bool {
        let until = self.often_until.load(Ordering::Relaxed);
        // Most volumes never have frequent syncs, and need not read the clock.
        until > 0 && self.now_millis() < until
    }

    fn now_millis(&self) -> u64 {
        // From 1 on, since 0 stands for never.
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
        let syncs = SyncRate::default();
        let until = || syncs.often_until.load(Ordering::Relaxed);
        syncs.note(1);
        assert_eq!(until(), 0);
        syncs.note(2 + OFTEN_MILLIS);
        assert_eq!(until(), 0);
        syncs.note(2 + 2 * OFTEN_MILLIS);
        assert_eq!(until(), 2 + 3 * OFTEN_MILLIS);
        assert!(!syncs.is_under_way() && syncs.is_often());
        let guard = syncs.begin();
        assert!(syncs.is_under_way());
        drop(guard);
        assert!(!syncs.is_under_way());
    }
}
