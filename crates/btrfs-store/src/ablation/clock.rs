//! Measures how long leaves of log trees are locked for writing. `tree/write_path` starts the clock; the benchmark of
//! the log takes the times.

/// Locks of log-tree leaves since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldTimes {
    /// Times a leaf was locked.
    pub count: u64,
    /// Nanoseconds that leaves were locked, all together.
    pub total_ns: u64,
    /// Nanoseconds that the blocks above a leaf were locked with it.
    pub upper_ns: u64,
}

#[cfg(feature = "ablation")]
mod state {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::HoldTimes;

    static COUNT: AtomicU64 = AtomicU64::new(0);
    static TOTAL_NS: AtomicU64 = AtomicU64::new(0);
    static UPPER_NS: AtomicU64 = AtomicU64::new(0);

    /// Runs while a leaf is locked.
    pub(crate) struct LeafClock {
        since: Option<Instant>,
        has_upper: bool,
    }

    impl LeafClock {
        pub(crate) fn start(is_log: bool, has_upper: bool) -> Self {
            Self { since: is_log.then(Instant::now), has_upper }
        }
    }

    impl Drop for LeafClock {
        fn drop(&mut self) {
            let Some(since) = self.since else { return };
            let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            COUNT.fetch_add(1, Ordering::Relaxed);
            TOTAL_NS.fetch_add(ns, Ordering::Relaxed);
            if self.has_upper {
                UPPER_NS.fetch_add(ns, Ordering::Relaxed);
            }
        }
    }

    /// Returns the hold times measured since the last call, and starts anew.
    pub fn take_hold_times() -> HoldTimes {
        HoldTimes {
            count: COUNT.swap(0, Ordering::Relaxed),
            total_ns: TOTAL_NS.swap(0, Ordering::Relaxed),
            upper_ns: UPPER_NS.swap(0, Ordering::Relaxed),
        }
    }
}

#[cfg(not(feature = "ablation"))]
mod state {
    use super::HoldTimes;

    /// Measures nothing.
    pub(crate) struct LeafClock;

    impl LeafClock {
        #[inline]
        pub(crate) fn start(_is_log: bool, _has_upper: bool) -> Self {
            Self
        }
    }

    /// Nothing is measured.
    #[must_use]
    pub fn take_hold_times() -> HoldTimes {
        HoldTimes::default()
    }
}

pub(crate) use state::LeafClock;
pub use state::take_hold_times;
