//! [`Rounds`]: the schedule of the flusher thread, and the writers that wait for it. `writeback::flusher` takes the
//! steps.

use crate::error::Result;
use crate::locks::{Condvar, Mutex, Rank};

/// The result of a step of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    More,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    None,
    Wanted,
    Running,
}

#[derive(Debug)]
struct State {
    /// The thread runs, and has not been asked to end.
    is_open: bool,
    round: Round,
    /// The last round failed, and nothing was written since.
    has_failed: bool,
}

/// Rounds of work that a thread does for other threads.
#[derive(Debug)]
pub(crate) struct Rounds {
    state: Mutex<State>,
    /// Signals that a round is requested, a step is done, or the thread must end.
    changed: Condvar,
}

impl Default for Rounds {
    fn default() -> Self {
        let state = State { is_open: false, round: Round::None, has_failed: false };
        Self { state: Mutex::new(Rank::Lists, state), changed: Condvar::new() }
    }
}

impl Rounds {
    /// Announces a thread that will [`serve`](Self::serve).
    pub(crate) fn open(&self) {
        self.state.lock().is_open = true;
    }

    /// Ends the thread after its present step.
    pub(crate) fn end(&self) {
        self.state.lock().is_open = false;
        self.changed.notify_all();
    }

    /// Requests a round, unless there is no thread or the last round failed.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if state.is_open && state.round == Round::None && !state.has_failed {
            state.round = Round::Wanted;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Requests a round, and waits as long as one runs and `is_needed` holds, which is checked after each step.
    pub(crate) fn wait_while(&self, is_needed: impl Fn() -> bool) {
        self.wake();
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.is_open && state.round != Round::None && is_needed());
    }

    /// Clears the failure of the last round, after another thread did its work.
    pub(crate) fn forget_failure(&self) {
        self.state.lock().has_failed = false;
    }

    /// Runs the requested rounds, step by step, until the end.
    pub(crate) fn serve(&self, step: impl Fn() -> Result<Step>) {
        // Even if a step panics, waiting threads are released.
        let _end = EndOnDrop(self);
        loop {
            let mut state = self.state.lock();
            self.changed.wait_while(&mut state, |state| state.is_open && state.round == Round::None);
            if !state.is_open {
                return;
            }
            state.round = Round::Running;
            drop(state);
            let done = loop {
                match step() {
                    Ok(Step::More) if self.state.lock().is_open => self.changed.notify_all(),
                    done => break done,
                }
            };
            let mut state = self.state.lock();
            (state.round, state.has_failed) = (Round::None, done.is_err());
            drop(state);
            self.changed.notify_all();
        }
    }
}

struct EndOnDrop<'a>(&'a Rounds);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;
    use crate::error::CallerError;

    #[test]
    fn rounds_are_run_until_nothing_is_left_and_waited_for() {
        let (rounds, left) = (Rounds::default(), AtomicU32::new(100));
        // Without a thread there is no waiting.
        rounds.wait_while(|| true);
        rounds.open();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rounds.serve(|| {
                    // A round may be asked for when nothing is left.
                    let before = left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
                    Ok(if before.is_ok_and(|before| before > 1) { Step::More } else { Step::Done })
                });
            });
            // After a failed assertion waiting threads are released.
            let _end = EndOnDrop(&rounds);
            rounds.wait_while(|| left.load(Relaxed) > 50);
            assert!(left.load(Relaxed) <= 50);
            rounds.wait_while(|| left.load(Relaxed) > 0);
            assert_eq!(left.load(Relaxed), 0);
        });
    }

    #[test]
    fn after_a_failure_nobody_waits_until_somebody_had_more_luck() {
        let (rounds, steps) = (Rounds::default(), AtomicU32::new(0));
        rounds.open();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rounds.serve(|| {
                    steps.fetch_add(1, Relaxed);
                    Err(CallerError::NotFound.into())
                });
            });
            let _end = EndOnDrop(&rounds);
            rounds.wait_while(|| true);
            rounds.wait_while(|| true);
            assert_eq!(steps.load(Relaxed), 1);
            rounds.forget_failure();
            rounds.wait_while(|| true);
            assert_eq!(steps.load(Relaxed), 2);
        });
    }
}
