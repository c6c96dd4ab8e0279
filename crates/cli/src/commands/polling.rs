//! Chooses the intervals for polling a server: short at first, since small jobs end at once, then longer. `scrub` and
//! `balance` wait with it for a mount.

use std::time::Duration;

/// Shortest and longest interval.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_millis(200);

/// The interval of a poll.
#[derive(Debug)]
pub(crate) struct Polling(Duration);

impl Default for Polling {
    fn default() -> Self {
        Self(INTERVAL_MIN)
    }
}

impl Polling {
    /// The time to wait before the next poll.
    pub(crate) fn interval(&mut self) -> Duration {
        let longer = self.0.saturating_mul(2).min(INTERVAL_MAX);
        std::mem::replace(&mut self.0, longer)
    }

    /// Waits before the next poll.
    pub(crate) fn wait(&mut self) {
        std::thread::sleep(self.interval());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_become_rarer() {
        let mut polling = Polling::default();
        let intervals: Vec<u128> = (0..7).map(|_| polling.interval().as_millis()).collect();
        assert_eq!(intervals, [10, 20, 40, 80, 160, 200, 200]);
    }
}
