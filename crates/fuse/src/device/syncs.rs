//! Syncs that were begun and wait for their end, those of all workers of a mount.
//!
//! Ending one makes durable all that were begun before it, so one worker at a time ends what all
//! have begun, and waits for the device. The others go on with other requests; what they begin
//! meanwhile is for the same worker, afterwards.

use crate::session::BegunSync;
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A sync whose request waits for a reply.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Where the request came from, and the reply has to go.
    pub(crate) channel: Arc<OwnedFd>,
    /// The request.
    pub(crate) unique: u64,
    pub(crate) sync: BegunSync,
}

/// What the workers of a mount know together.
#[derive(Debug)]
pub(crate) struct Syncs<T = Waiting>(Mutex<State<T>>);

#[derive(Debug)]
struct State<T> {
    waiting: Vec<T>,
    /// Somebody is ending some, and looks for more afterwards.
    is_led: bool,
}

impl<T> Default for Syncs<T> {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: Vec::new(), is_led: false }))
    }
}

impl<T> Syncs<T> {
    /// Adds one. True when it is for the caller to see that it ends.
    pub(crate) fn add(&self, waiting: T) -> bool {
        let mut state = self.0.lock();
        state.waiting.push(waiting);
        !state.is_led
    }

    /// Ends all that wait by now, unless somebody else is at it. True when it is for the caller to end more.
    pub(crate) fn end(&self, end: impl FnMut(T)) -> bool {
        let mut state = self.0.lock();
        if state.is_led {
            return false;
        }
        state.is_led = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(end);
        let mut state = self.0.lock();
        state.is_led = false;
        !state.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn who_ends_some_sees_to_what_came_meanwhile() {
        let syncs = Syncs::default();
        assert!(syncs.add(1) && syncs.add(2));
        let mut ended = Vec::new();
        let has_more = syncs.end(|number| {
            ended.push(number);
            if number == 1 {
                assert!(!syncs.add(3), "two are responsible");
                assert!(!syncs.end(|_| unreachable!("two end syncs")));
            }
        });
        assert!(has_more);
        assert!(!syncs.end(|number| ended.push(number)));
        assert_eq!(ended, [1, 2, 3]);
        assert!(!syncs.end(|_| unreachable!("ended twice")));
        assert!(syncs.add(4));
    }

    #[test]
    fn each_is_ended_once_and_none_is_forgotten() {
        const THREADS: usize = 4;
        const EACH: usize = 20_000;
        let syncs = Syncs::default();
        let ended: Vec<AtomicUsize> = (0..THREADS * EACH).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (syncs, ended) = (&syncs, &ended);
                scope.spawn(move || {
                    let mut is_mine = false;
                    for number in thread * EACH..(thread + 1) * EACH {
                        is_mine |= syncs.add(number);
                        // As a worker does that has other requests at hand.
                        if is_mine && !number.is_multiple_of(3) {
                            is_mine = syncs.end(|number: usize| {
                                ended[number].fetch_add(1, SeqCst);
                            });
                        }
                    }
                    while is_mine {
                        is_mine = syncs.end(|number: usize| {
                            ended[number].fetch_add(1, SeqCst);
                        });
                    }
                });
            }
        });
        assert!(ended.iter().all(|count| count.load(SeqCst) == 1));
    }
}
