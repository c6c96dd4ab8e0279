//! Removals on a full volume that wait for space, served first come, first served.
//!
//! ```text
//! Accounts::reserve fails --> Line::join --> first? --> try again --> granted: the place is dropped
//!                                 ^                        |
//!                                 '--- wait for news <-----'
//! ```
//!
//! News is every return of space: a dropped reservation, freed bytes, charges that a commit takes back. As long as
//! nobody waits, news costs one load of a counter.
//!
//! Invariants
//! * Only the first in the line, or a newcomer while the line is empty, begins to use the global reserve.
//! * A place joins before its last try: space that is returned after that try wakes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use crate::locks::{Condvar, Mutex, Rank};

#[derive(Debug, Default)]
struct State {
    /// Numbers of the places, in the order of service.
    waiting: VecDeque<u64>,
    next_number: u64,
    /// Counts what may let the first one succeed.
    news: u64,
}

/// The line of one store.
#[derive(Debug)]
pub(super) struct Line {
    /// Length of the line.
    count: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A place in the line, until it is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped lets the next one go first"]
pub struct Place<'a> {
    line: &'a Line,
    number: u64,
    /// News up to this one was there before the last try.
    seen: u64,
}

impl Line {
    pub(super) fn new() -> Self {
        let state = Mutex::new(Rank::SpaceLine, State::default());
        Self { count: AtomicUsize::new(0), state, changed: Condvar::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Goes to the end of the line.
    pub(super) fn join(&self) -> Place<'_> {
        self.count.fetch_add(1, SeqCst);
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.push_back(number);
        Place { line: self, number, seen: state.news }
    }

    /// Space was returned.
    pub(super) fn tell(&self) {
        if !self.is_empty() {
            self.state.lock().news += 1;
            self.changed.notify_all();
        }
    }
}

impl Place<'_> {
    /// True when no earlier place is waiting.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.line.state.lock().waiting.front() == Some(&self.number)
    }

    /// Waits until the place is first and space was returned since the call before; false when that was not so by
    /// `deadline`.
    #[must_use]
    pub fn wait(&mut self, deadline: Instant) -> bool {
        let mut state = self.line.state.lock();
        loop {
            let is_first = state.waiting.front() == Some(&self.number);
            if is_first && state.news != self.seen {
                self.seen = state.news;
                return true;
            }
            if !self.line.changed.wait_until(&mut state, deadline) {
                return false;
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.lock();
        state.waiting.retain(|number| *number != self.number);
        // The next one is first now, and tries at once.
        state.news += 1;
        drop(state);
        self.line.count.fetch_sub(1, SeqCst);
        self.line.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn the_first_is_served_before_the_second() {
        let line = Line::new();
        line.tell();
        let (mut first, mut second) = (line.join(), line.join());
        assert!(first.is_first() && !second.is_first());
        assert!(!first.wait(soon()), "no news");
        line.tell();
        assert!(!second.wait(soon()), "not first");
        assert!(first.wait(late()));
        drop(first);
        assert!(second.is_first() && second.wait(late()), "the end of the first is news");
        drop(second);
        assert!(line.is_empty());
    }

    #[test]
    fn places_are_served_in_their_order() {
        let line = Line::new();
        let served = std::sync::Mutex::new(Vec::new());
        let first = line.join();
        std::thread::scope(|scope| {
            for index in 0..8 {
                let mut place = line.join();
                let served = &served;
                scope.spawn(move || {
                    assert!(place.wait(late()));
                    served.lock().unwrap().push(index);
                });
            }
            drop(first);
        });
        assert_eq!(served.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    }
}
