//! Busy polling: a worker polls for the next request instead of sleeping.
//!
//! Waking a thread on another processor takes longer than answering a small request, in a virtual machine several times
//! as long. A program that makes one call after the other would pay for that with each. So while requests follow
//! quickly, one worker at a time polls for a short while after the last one. That wastes a processor's time; the worker
//! yields between two polls, and if other programs take the processor, polling pauses for a time that doubles whenever
//! that happens. (A thread that has used up its slice by polling is woken late, which is worse than not polling.)
//!
//! The other workers stand by meanwhile, and not in a read of the channel: there the kernel would wake one of them for
//! each request, which the polling one has taken by then. They are called when requests pile up, and poll themselves if
//! the polling worker has been busy with one request for too long.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a worker polls after the last request, and the longest interval that counts as fast.
pub(crate) const POLL: Duration = Duration::from_micros(100);
/// A worker that was not scheduled for longer than this between two polls has a processor that others want.
const AWAY_MAX: Duration = Duration::from_micros(200);
/// Pauses after others wanted the processor: the first, and the longest.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(2);
/// Requests found without others wanting the processor, after which pauses are short again.
const FOUND_MIN: u32 = 10_000;
/// How long the first standby worker waits for a request to be taken before it polls itself: the longest delay of a
/// request behind a slow one.
const FIRST_WAITS: Duration = Duration::from_micros(250);
/// The same for the other standby workers, which the first one calls when it leaves.
const OTHERS_WAIT: Duration = Duration::from_millis(20);
/// Requests that one worker finds waiting, one after the other, before it calls a second one.
const PILE: u32 = 1;

/// Polling state shared by the workers of a mount.
#[derive(Debug)]
pub(crate) struct Pace {
    poll: Duration,
    state: Mutex<State>,
    standing_by: Mutex<StandingBy>,
    called: Condvar,
    /// Number of requests taken by workers that do not sleep.
    taken: AtomicU64,
}

/// Workers on standby.
#[derive(Debug, Default)]
struct StandingBy {
    count: usize,
    /// True if the first one is there, which wakes up often.
    has_first: bool,
}

/// The worker that polls.
#[derive(Debug)]
pub(crate) enum Poller<'a> {
    /// The caller.
    Me(Turn<'a>),
    /// Another worker.
    Another,
    /// None, during a pause.
    Paused,
}

#[derive(Debug)]
struct State {
    rest: Duration,
    rests_until: Option<Instant>,
    /// Requests found since the last pause.
    found: u32,
}

/// The right to poll, which one worker has at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    state: MutexGuard<'a, State>,
    poll: Duration,
    began: Instant,
    looked: Instant,
}

impl Pace {
    /// Workers poll for at most `poll`; never with zero.
    pub(crate) fn new(poll: Duration) -> Self {
        let state = State { rest: REST_MIN, rests_until: None, found: 0 };
        Self {
            poll,
            state: Mutex::new(state),
            standing_by: Mutex::default(),
            called: Condvar::new(),
            taken: AtomicU64::new(0),
        }
    }

    /// Whether polling would have found a request that came after this time.
    pub(crate) fn is_fast(&self, waited: Duration) -> bool {
        waited < self.poll
    }

    /// The right to poll, if it is free and there is no pause.
    pub(crate) fn turn(&self, now: Instant) -> Poller<'_> {
        let Some(mut state) = self.state.try_lock() else { return Poller::Another };
        if state.rests_until.is_some_and(|until| now < until) {
            return Poller::Paused;
        }
        state.rests_until = None;
        Poller::Me(Turn { state, poll: self.poll, began: now, looked: now })
    }

    /// Notes that a worker without sleep took a request. `at_once` is the number in a row that it found waiting.
    pub(crate) fn took(&self, at_once: u32) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if at_once >= PILE {
            self.called.notify_one();
        }
    }

    /// Waits until requests pile up, or until a worker seems to be stuck with one.
    pub(crate) fn stand_by(&self) {
        let mut standing_by = self.standing_by.lock();
        let is_first = !standing_by.has_first;
        standing_by.has_first = true;
        standing_by.count += 1;
        let limit = if is_first { FIRST_WAITS } else { OTHERS_WAIT };
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let is_late = self.called.wait_for(&mut standing_by, limit).timed_out();
            if !is_late || self.taken.load(Ordering::Relaxed) == taken {
                break;
            }
        }
        standing_by.count -= 1;
        if is_first {
            standing_by.has_first = false;
            if standing_by.count > 0 {
                self.called.notify_one();
            }
        }
    }
}

impl Turn<'_> {
    /// Whether to poll again, after no request was found and the processor was yielded.
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

    /// Notes that a request was found.
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

    fn mine(pace: &Pace, now: Instant) -> Turn<'_> {
        match pace.turn(now) {
            Poller::Me(turn) => turn,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_worker_at_a_time_polls_and_not_for_long() {
        let pace = Pace::new(POLL);
        let mut now = Instant::now();
        let began = now;
        let mut turn = mine(&pace, now);
        assert!(matches!(pace.turn(now), Poller::Another), "two poll");
        while turn.goes_on(now) {
            now += STEP;
        }
        assert_eq!(now - began, POLL);
        drop(turn);
        drop(mine(&pace, now));
        assert!(pace.is_fast(STEP) && !pace.is_fast(POLL));
        assert!(!Pace::new(Duration::ZERO).is_fast(Duration::ZERO));
    }

    #[test]
    fn nobody_polls_while_others_want_the_processor() {
        let pace = Pace::new(POLL);
        let mut now = Instant::now();
        let mut rest = REST_MIN;
        for _ in 0..10 {
            let mut turn = mine(&pace, now);
            now += AWAY_MAX + STEP;
            assert!(!turn.goes_on(now));
            drop(turn);
            assert!(matches!(pace.turn(now + rest - STEP), Poller::Paused), "{rest:?}");
            now += rest;
            rest = (rest * 2).min(REST_MAX);
        }
        for _ in 0..FOUND_MIN {
            mine(&pace, now).found();
        }
        let mut turn = mine(&pace, now);
        now += AWAY_MAX + STEP;
        assert!(!turn.goes_on(now));
        drop(turn);
        assert!(matches!(pace.turn(now + REST_MIN), Poller::Me(_)), "rests stay long");
    }

    #[test]
    fn who_stands_by_comes_when_called_and_when_nothing_is_taken_any_more() {
        let pace = Pace::new(POLL);
        let waiting = || pace.standing_by.lock().count;
        let stop = std::sync::atomic::AtomicBool::new(false);
        let returns = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // While requests are taken, all stay on standby.
            let taker = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pace.took(0);
                    std::thread::yield_now();
                }
            });
            // On a busy machine the taker may not run for so long that one of them leaves early: it comes back.
            let others: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            pace.stand_by();
                            returns.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while waiting() < 3 {
                std::thread::yield_now();
            }
            // Calls for one worker wake one each; the first of them may call another one as it leaves.
            let before = returns.load(Ordering::Relaxed);
            pace.took(PILE);
            while returns.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            // No requests are taken: all leave, without being called.
            stop.store(true, Ordering::Relaxed);
            taker.join().unwrap();
            for other in others {
                other.join().unwrap();
            }
        });
        assert_eq!(waiting(), 0);
        assert!(!pace.standing_by.lock().has_first);
    }
}
