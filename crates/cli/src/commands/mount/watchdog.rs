//! Detects a server that does not answer for a long time.
//!
//! The supervisor sends its server a [`Message::Ping`] every few seconds; a server that runs and completes requests
//! answers with a [`Message::Pong`]. The silence is counted in steps, so that time in which the supervisor was stopped,
//! or the machine slept, does not count. Caller: the supervisor.
//!
//! [`Message::Ping`]: super::channel::Message::Ping
//! [`Message::Pong`]: super::channel::Message::Pong

use std::time::{Duration, Instant};

/// A silence of this length is logged.
const TELL_AFTER: Duration = Duration::from_secs(30);
/// Longest interval between two pings.
const STEP_MAX: Duration = Duration::from_secs(5);
/// Shortest interval.
const STEP_MIN: Duration = Duration::from_millis(100);

/// The action that is due after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// Ask the server.
    Ask,
    /// Log that the server has been silent for this long.
    Tell(Duration),
    /// Abort: the server has been silent for the limit.
    Abort(Duration),
}

/// Measures the silence of a server.
#[derive(Debug)]
pub(super) struct Watchdog {
    limit: Option<Duration>,
    last_step: Instant,
    silent: Duration,
    is_asked: bool,
    is_told: bool,
}

impl Watchdog {
    /// With a `limit`, a longer silence ends the mount.
    pub(super) fn new(limit: Option<Duration>, now: Instant) -> Self {
        Self { limit, last_step: now, silent: Duration::ZERO, is_asked: false, is_told: false }
    }

    /// Interval between two steps.
    pub(super) fn step(&self) -> Duration {
        let step = self.limit.map_or(STEP_MAX, |limit| limit / 4);
        step.clamp(STEP_MIN, STEP_MAX)
    }

    /// Time until the next step.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.step().saturating_sub(now.saturating_duration_since(self.last_step))
    }

    /// The server answered; `gets_on` if it is not stuck. True if its silence had been logged.
    pub(super) fn answered(&mut self, gets_on: bool) -> bool {
        self.is_asked = false;
        if !gets_on {
            return false;
        }
        self.silent = Duration::ZERO;
        std::mem::take(&mut self.is_told)
    }

    /// Counts the time since the last step, if a step is due.
    pub(super) fn tick(&mut self, now: Instant) -> Due {
        let passed = now.saturating_duration_since(self.last_step);
        if passed < self.step() {
            return Due::Nothing;
        }
        self.last_step = now;
        let was_asked = std::mem::replace(&mut self.is_asked, true);
        self.silent += passed.min(self.step() * 2);
        match self.limit {
            Some(limit) if self.silent >= limit + self.step() => Due::Abort(self.silent),
            _ if self.silent >= TELL_AFTER && !self.is_told => {
                self.is_told = true;
                Due::Tell(self.silent)
            }
            // One ping at a time: the server may not read them.
            _ if was_asked => Due::Nothing,
            _ => Due::Ask,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn silence_is_told_once_and_ends_with_an_answer() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(None, start);
        assert_eq!(watchdog.tick(start + seconds(1)), Due::Nothing);
        assert_eq!(watchdog.wait(start + seconds(1)), seconds(4));
        assert_eq!(watchdog.tick(start + seconds(5)), Due::Ask);
        assert!(!watchdog.answered(true));
        let dues: Vec<Due> = (2..10).map(|step| watchdog.tick(start + seconds(5 * step))).collect();
        assert_eq!(dues[0], Due::Ask);
        assert!(dues[1..5].iter().all(|due| *due == Due::Nothing), "{dues:?}");
        assert_eq!(dues[5], Due::Tell(seconds(30)));
        assert_eq!(dues[6..], [Due::Nothing, Due::Nothing]);
        assert!(!watchdog.answered(false));
        assert!(watchdog.answered(true));
        assert!(!watchdog.answered(true));
    }

    #[test]
    fn a_limit_is_kept_but_sleep_does_not_count() {
        let start = Instant::now();
        let mut watchdog = Watchdog::new(Some(seconds(8)), start);
        assert_eq!(watchdog.tick(start + seconds(3600)), Due::Ask);
        let mut at = start + seconds(3600);
        let mut steps = 0;
        while !matches!(watchdog.tick(at), Due::Abort(_)) {
            at += seconds(2);
            steps += 1;
            assert!(steps < 10);
        }
        assert_eq!(steps, 3, "4 s of the long sleep, then 6 more");
    }
}
