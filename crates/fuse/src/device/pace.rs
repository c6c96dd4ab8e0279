//! Busy polling: when a worker looks for the next request again and again instead of sleeping.
//!
//! Waking a thread on another processor takes longer than answering a small request, in a virtual
//! machine several times as long. A program that makes one call after the other would pay for that
//! with each. So while requests come fast, one worker at a time keeps looking, for a short while
//! after the last one. That spends a processor's time on nothing; it is given away between two
//! looks, and where others take it, nobody looks for a time that doubles whenever that happens.
//! (Who has used up its time by looking is woken late, which is worse than not looking.)

use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a worker polls after the last request, and what counts as fast.
pub(crate) const POLL: Duration = Duration::from_micros(100);
/// A worker that was away longer than this between two looks has a processor that others want.
const AWAY_MAX: Duration = Duration::from_micros(200);
/// Rests after others wanted the processor: the first, and the longest.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(2);
/// Requests found while nobody wanted the processor, after which rests are short again.
const FOUND_MIN: u32 = 10_000;

/// What the workers of a mount know together.
#[derive(Debug)]
pub(crate) struct Pace {
    poll: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rest: Duration,
    rests_until: Option<Instant>,
    /// Requests found since the last rest.
    found: u32,
}

/// The right to poll, which one has at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    state: MutexGuard<'a, State>,
    poll: Duration,
    began: Instant,
    looked: Instant,
}

impl Pace {
    /// Nobody polls for longer than `poll`; with zero, nobody ever does.
    pub(crate) fn new(poll: Duration) -> Self {
        let state = State { rest: REST_MIN, rests_until: None, found: 0 };
        Self { poll, state: Mutex::new(state) }
    }

    /// Whether polling would have found a request that came after so long.
    pub(crate) fn is_fast(&self, waited: Duration) -> bool {
        waited < self.poll
    }

    /// The right to poll; `None` when another worker has it, or during a rest.
    pub(crate) fn turn(&self, now: Instant) -> Option<Turn<'_>> {
        let mut state = self.state.try_lock()?;
        if state.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        state.rests_until = None;
        Some(Turn { state, poll: self.poll, began: now, looked: now })
    }
}

impl Turn<'_> {
    /// Whether to look again, when nothing was there and the processor was offered to others.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        if now.duration_since(self.looked) > AWAY_MAX {
            self.state.rests_until = Some(now + self.state.rest);
            self.state.rest = self.state.rest.saturating_mul(2).min(REST_MAX);
            self.state.found = 0;
            return false;
        }
        self.looked = now;
        now.duration_since(self.began) < self.poll
    }

    /// A request was there.
    pub(crate) fn found(mut self) {
        self.state.found = self.state.found.saturating_add(1);
        if self.state.found == FOUND_MIN {
            self.state.rest = REST_MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(1);

    #[test]
    fn one_worker_at_a_time_polls_and_not_for_long() {
        let pace = Pace::new(POLL);
        let mut now = Instant::now();
        let began = now;
        let mut turn = pace.turn(now).unwrap();
        assert!(pace.turn(now).is_none(), "two poll");
        while turn.goes_on(now) {
            now += STEP;
        }
        assert_eq!(now - began, POLL);
        drop(turn);
        assert!(pace.turn(now).is_some());
        assert!(pace.is_fast(STEP) && !pace.is_fast(POLL));
        assert!(!Pace::new(Duration::ZERO).is_fast(Duration::ZERO));
    }

    #[test]
    fn nobody_polls_while_others_want_the_processor() {
        let pace = Pace::new(POLL);
        let mut now = Instant::now();
        let mut rest = REST_MIN;
        for _ in 0..10 {
            let mut turn = pace.turn(now).unwrap();
            now += AWAY_MAX + STEP;
            assert!(!turn.goes_on(now));
            drop(turn);
            assert!(pace.turn(now + rest - STEP).is_none(), "{rest:?}");
            now += rest;
            rest = (rest * 2).min(REST_MAX);
        }
        for _ in 0..FOUND_MIN {
            pace.turn(now).unwrap().found();
        }
        let mut turn = pace.turn(now).unwrap();
        now += AWAY_MAX + STEP;
        assert!(!turn.goes_on(now));
        drop(turn);
        assert!(pace.turn(now + REST_MIN).is_some(), "rests stay long");
    }
}
