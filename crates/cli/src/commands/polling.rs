//! Asking a server again and again how far it is: soon at first, as what is small ends at once, and then less often.

use std::time::Duration;

/// Time between two questions: the first, and the longest.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_millis(200);

/// Times to wait between questions.
#[derive(Debug)]
pub(crate) struct Polling(Duration);

impl Default for Polling {
    fn default() -> Self {
        Self(INTERVAL_MIN)
    }
}

impl Polling {
    /// How long to wait before the next question.
    pub(crate) fn interval(&mut self) -> Duration {
        let longer = self.0.saturating_mul(2).min(INTERVAL_MAX);
        std::mem::replace(&mut self.0, longer)
    }

    /// Waits before the next question.
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
