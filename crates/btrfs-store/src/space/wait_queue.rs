//! Queues removals that wait for space on a full volume, and serves them in order of arrival. `space/reserve` and
//! `Store` wait in it.
//!
//! ```text
//! Accounts::reserve fails --> WaitQueue::join --> first? --> try again --> granted: the place is dropped
//!                                 ^                        |
//!                                  '--- wait for space <----'
//! ```
//!
//! Every return of space wakes the first place: a dropped reservation, freed bytes, charges that a commit returns.
//! While the queue is empty, that costs one load of a counter.
//!
//! Invariants
//! * Only the first in the queue, or a newcomer while the queue is empty, begins to use the global reserve.
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
    /// Counts returns of space, any of which may let the first place succeed.
    returns: u64,
}

/// The queue of one store.
#[derive(Debug)]
pub(super) struct WaitQueue {
    /// Length of the queue.
    count: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A place in the queue, until it is dropped.
#[derive(Debug)]
#[must_use = "a place that is dropped lets the next one go first"]
pub struct Place<'a> {
    queue: &'a WaitQueue,
    number: u64,
    /// Returns of space that happened before the last try.
    seen: u64,
}

impl WaitQueue {
    pub(super) fn new() -> Self {
        let state = Mutex::new(Rank::SpaceQueue, State::default());
        Self { count: AtomicUsize::new(0), state, changed: Condvar::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Goes to the end of the queue.
    pub(super) fn join(&self) -> Place<'_> {
        self.count.fetch_add(1, SeqCst);
        let mut state = self.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.push_back(number);
        Place { queue: self, number, seen: state.returns }
    }

    /// Reports that space was returned.
    pub(super) fn notify(&self) {
        if !self.is_empty() {
            self.state.lock().returns += 1;
            self.changed.notify_all();
        }
    }
}

impl Place<'_> {
    /// True when no earlier place is waiting.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.queue.state.lock().waiting.front() == Some(&self.number)
    }

    /// Waits until the place is first and space was returned since the call before; false when that was not so by
    /// `deadline`.
    #[must_use]
    pub fn wait(&mut self, deadline: Instant) -> bool {
        let mut state = self.queue.state.lock();
        loop {
            let is_first = state.waiting.front() == Some(&self.number);
            if is_first && state.returns != self.seen {
                self.seen = state.returns;
                return true;
            }
            if !self.queue.changed.wait_until(&mut state, deadline) {
                return false;
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.waiting.retain(|number| *number != self.number);
        // The next one is first now, and tries at once.
        state.returns += 1;
        drop(state);
        self.queue.count.fetch_sub(1, SeqCst);
        self.queue.changed.notify_all();
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
        let queue = WaitQueue::new();
        queue.notify();
        let (mut first, mut second) = (queue.join(), queue.join());
        assert!(first.is_first() && !second.is_first());
        assert!(!first.wait(soon()), "no space returned");
        queue.notify();
        assert!(!second.wait(soon()), "not first");
        assert!(first.wait(late()));
        drop(first);
        assert!(second.is_first() && second.wait(late()), "the end of the first wakes it");
        drop(second);
        assert!(queue.is_empty());
    }

    #[test]
    fn places_are_served_in_their_order() {
        let queue = WaitQueue::new();
        let served = std::sync::Mutex::new(Vec::new());
        let first = queue.join();
        std::thread::scope(|scope| {
            for index in 0..8 {
                let mut place = queue.join();
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
