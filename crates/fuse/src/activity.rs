//! Shows whether a server makes progress: each thread that answers requests counts when it begins and ends one.
//!
//! Two snapshots of these counts, some time apart, show the threads that were busy with one request all the time.
//! So no thread has to read a clock for each request. The threads of `transport` count; the server process of the
//! `mount` command compares two snapshots whenever its watchdog asks.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of all threads of a server.
#[derive(Default)]
pub struct Activity {
    pulses: Mutex<Vec<Arc<AtomicU64>>>,
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Activity").field(&self.glance()).finish()
    }
}

/// A snapshot of the counts of all threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Glance(Vec<u64>);

/// The count of one thread: odd while it answers a request.
pub(crate) struct Pulse(Arc<AtomicU64>);

impl Activity {
    /// Adds a thread, and returns its count.
    pub(crate) fn pulse(&self) -> Pulse {
        let pulse = Arc::<AtomicU64>::default();
        self.pulses.lock().push(Arc::clone(&pulse));
        Pulse(pulse)
    }

    /// Takes a snapshot of the counts.
    #[must_use]
    pub fn glance(&self) -> Glance {
        let pulses = self.pulses.lock();
        Glance(pulses.iter().map(|pulse| pulse.load(Ordering::Relaxed)).collect())
    }
}

impl Glance {
    /// The number of threads that have been busy with one request since the earlier snapshot `earlier`.
    #[must_use]
    pub fn busy_since(&self, earlier: &Self) -> usize {
        let pairs = self.0.iter().zip(&earlier.0);
        pairs.filter(|(now, then)| now == then && *now % 2 == 1).count()
    }
}

impl Pulse {
    /// Counts the beginning or the end of a request; a repeated call with the same value counts nothing.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        let count = self.0.load(Ordering::Relaxed);
        if (count % 2 == 1) != is_busy {
            self.0.store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_stays_with_one_request_is_seen() {
        let activity = Activity::default();
        let (a, b) = (activity.pulse(), activity.pulse());
        let idle = activity.glance();
        a.set_busy(true);
        b.set_busy(true);
        let first = activity.glance();
        assert_eq!(first.busy_since(&idle), 0);
        b.set_busy(false);
        b.set_busy(true);
        assert_eq!(activity.glance().busy_since(&first), 1);
        a.set_busy(false);
        a.set_busy(false);
        assert_eq!(activity.glance().busy_since(&first), 0);
    }
}
