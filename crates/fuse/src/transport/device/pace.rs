//! Busy polling: when a worker looks for the next request again and again instead of sleeping.
//!
//! Waking a thread on another processor takes longer than answering a small request, in a virtual
//! machine several times as long. A program that makes one call after the other would pay for that
//! with each. So while requests come fast, one worker at a time keeps looking, for a short while
//! after the last one. That spends a processor's time on nothing; it is given away between two
//! looks, and where others take it, nobody looks for a time that doubles whenever that happens.
//! (Who has used up its time by looking is woken late, which is worse than not looking.)
//!
//! The others stand by meanwhile, and not in a read of the channel: there the kernel wakes one of them for each
//! request, which the one that polls has taken by then. They are called when requests pile up, and look up themselves
//! when the one they wait for has been busy with the same request for too long.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
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
/// How long the first of those who stand by waits for a request to be taken, before it looks itself: the longest time
/// that a request waits behind one that takes long.
const FIRST_WAITS: Duration = Duration::from_micros(250);
/// The same of the others, whom the first one calls when it leaves.
const OTHERS_WAIT: Duration = Duration::from_millis(20);
/// Requests that one worker finds there already, one after the other, when it would help to be two.
const PILE: u32 = 1;

/// What the workers of a mount know together.
#[derive(Debug)]
pub(crate) struct Pace {
    poll: Duration,
    state: Mutex<State>,
    standing_by: Mutex<StandingBy>,
    called: Condvar,
    /// Requests that were taken by those who do not sleep.
    taken: AtomicU64,
}

/// Workers that wait for their turn.
#[derive(Debug, Default)]
struct StandingBy {
    count: usize,
    /// One of them looks up often.
    has_first: bool,
}

/// Who may poll.
#[derive(Debug)]
pub(crate) enum Poller<'a> {
    /// Who asked.
    Me(Turn<'a>),
    /// Somebody does.
    Another,
    /// Nobody, for a time.
    Nobody,
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
        Self {
            poll,
            state: Mutex::new(state),
            standing_by: Mutex::default(),
            called: Condvar::new(),
            taken: AtomicU64::new(0),
        }
    }

    /// Whether polling would have found a request that came after so long.
    pub(crate) fn is_fast(&self, waited: Duration) -> bool {
        waited < self.poll
    }

    /// The right to poll, where nobody has it and it is no time of rest.
    pub(crate) fn turn(&self, now: Instant) -> Poller<'_> {
        let Some(mut state) = self.state.try_lock() else { return Poller::Another };
        if state.rests_until.is_some_and(|until| now < until) {
            return Poller::Nobody;
        }
        state.rests_until = None;
        Poller::Me(Turn { state, poll: self.poll, began: now, looked: now })
    }

    /// A request was taken by a worker that did not sleep. `at_once` is how many in a row it found there already.
    pub(crate) fn took(&self, at_once: u32) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        if at_once >= PILE {
            self.called.notify_one();
        }
    }

    /// Waits until there is more to do than one worker does, or one that took a request seems to stay with it.
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
            assert!(matches!(pace.turn(now + rest - STEP), Poller::Nobody), "{rest:?}");
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
            // As long as requests are taken, all stay where they are.
            let taker = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pace.took(0);
                    std::thread::yield_now();
                }
            });
            // On a busy machine the taker may get no time for so long that one of them leaves early: it comes back.
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
            // Calls for one wake one each; the first of them may call another one as it leaves.
            let before = returns.load(Ordering::Relaxed);
            pace.took(PILE);
            while returns.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
            // Nobody takes anything: all look up, and none of them was called.
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
