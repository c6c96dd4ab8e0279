//! Does jobs that make more jobs with a few threads: how trees are walked here. Called by `walk` and `estimate`.
//!
//! The newest job is done first, so that a walk goes down before it goes on and the number of
//! waiting jobs stays near the depth of the tree times the width of one directory. With one
//! thread the order is fixed: that of a recursive walk.
//!
//! The first failure ends the work; jobs that wait are dropped, jobs that run are finished.

use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More threads than this only wait for each other.
const THREADS_MAX: usize = 8;

/// Jobs that wait to be done.
pub(crate) struct Queue<J, E> {
    state: Mutex<State<J, E>>,
    changed: Condvar,
}

struct State<J, E> {
    waiting: Vec<J>,
    /// Jobs being done. They may still add some.
    running_count: usize,
    failure: Option<E>,
}

/// As many threads as there are processors, at most 8.
#[must_use]
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX)
}

/// Does `first` and everything that is added meanwhile. Each thread has a value of its own, made
/// by `start`.
///
/// # Errors
/// The first failure of `work`.
pub(crate) fn run<J: Send, S, E: Send>(
    thread_count: usize,
    first: J,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J, &Queue<J, E>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let state = State { waiting: vec![first], running_count: 0, failure: None };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new() };
    let one = || {
        let mut own = start();
        while let Some(job) = queue.take() {
            queue.done(work(&mut own, job, &queue));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..thread_count {
            scope.spawn(one);
        }
        one();
    });
    let state = queue.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.failure.map_or(Ok(()), Err)
}

impl<J, E> Queue<J, E> {
    /// Adds jobs, of which the first is done first.
    pub(crate) fn add(&self, jobs: impl DoubleEndedIterator<Item = J>) {
        self.lock().waiting.extend(jobs.rev());
        self.changed.notify_all();
    }

    fn take(&self) -> Option<J> {
        let mut state = self.lock();
        loop {
            if state.failure.is_some() {
                return None;
            }
            if let Some(job) = state.waiting.pop() {
                state.running_count += 1;
                return Some(job);
            }
            if state.running_count == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, result: Result<(), E>) {
        let mut state = self.lock();
        state.running_count -= 1;
        if let Err(error) = result {
            state.failure.get_or_insert(error);
            state.waiting.clear();
        }
        if state.running_count == 0 || state.failure.is_some() {
            drop(state);
            self.changed.notify_all();
        }
    }

    // A thread that panicked has left the numbers as they were: every change is one statement.
    fn lock(&self) -> MutexGuard<'_, State<J, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn one_thread_walks_in_order() {
        let seen = Mutex::new(Vec::new());
        run(
            1,
            1_u32,
            || (),
            |(), job, queue| {
                seen.lock().unwrap().push(job);
                if job < 10 {
                    queue.add([job * 10, job * 10 + 1].into_iter());
                }
                Ok::<_, &str>(())
            },
        )
        .unwrap();
        assert_eq!(*seen.lock().unwrap(), [1, 10, 11]);
    }

    #[test]
    fn all_jobs_are_done_by_many_threads() {
        let count = AtomicU64::new(0);
        run(
            4,
            12_u32,
            || (),
            |(), depth, queue| {
                count.fetch_add(1, Ordering::Relaxed);
                queue.add((0..2).filter(|_| depth > 0).map(|_| depth - 1));
                Ok::<_, &str>(())
            },
        )
        .unwrap();
        assert_eq!(count.into_inner(), (1 << 13) - 1);
    }

    #[test]
    fn the_first_failure_ends_the_work() {
        let result = run(
            3,
            0_u32,
            || (),
            |(), job, queue| {
                queue.add((0..100).map(|_| job + 1));
                if job > 3 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!(result, Err("enough"));
    }
}
