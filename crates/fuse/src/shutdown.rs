//! Passes the end of a mount from the worker that receives DESTROY to the thread that ends the server. Also starts and
//! ends the steps of the background thread. Callers: `server` and `session/service`.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// State shared by the threads of a server at the end.
///
/// ```text
///   workers                                 the caller of `wait`
///   DESTROY comes, and is not answered ---> syncs, closes
///   ... is answered  <--------------------- done
///   (or all have ended) ------------------> syncs, closes
/// ```
#[derive(Debug, Default)]
pub(crate) struct Ending {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    is_asked: bool,
    is_done: bool,
    is_step_wanted: bool,
    has_no_more_steps: bool,
}

impl Ending {
    /// Waits until no further request to the file system will come.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        while !state.is_asked && state.running > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Called when the kernel unmounts and waits for an answer: returns once everything is done.
    pub(crate) fn ask_and_wait(&self) {
        let mut state = self.state.lock();
        state.is_asked = true;
        self.changed.notify_all();
        while !state.is_done {
            self.changed.wait(&mut state);
        }
    }

    /// Waits for a time, or until the kernel unmounts.
    pub(crate) fn pause(&self, at_most: Duration) {
        let mut state = self.state.lock();
        if !state.is_asked {
            self.changed.wait_for(&mut state, at_most);
        }
    }

    /// Starts the next step of the background thread at once.
    pub(crate) fn want_step(&self) {
        self.change(|state| state.is_step_wanted = true);
    }

    /// Ends the steps of the background thread.
    pub(crate) fn end_steps(&self) {
        self.change(|state| state.has_no_more_steps = true);
    }

    /// Waits for a time, or until a step is wanted; false once the steps have ended.
    pub(crate) fn wait_for_step(&self, at_most: Duration) -> bool {
        let mut state = self.state.lock();
        let until = Instant::now() + at_most;
        while !state.is_step_wanted && !state.has_no_more_steps {
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.is_step_wanted = false;
        !state.has_no_more_steps
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

/// A serving thread, while this value lives.
#[derive(Debug)]
pub(crate) struct Running(Arc<Ending>);

impl Running {
    pub(crate) fn new(ending: &Arc<Ending>) -> Self {
        ending.change(|state| state.running = state.running.saturating_add(1));
        Self(Arc::clone(ending))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|state| state.running = state.running.saturating_sub(1));
    }
}

/// Reports that everything is done when it is dropped, so that no thread waits for a failed server.
#[derive(Debug)]
pub(crate) struct Done(pub(crate) Arc<Ending>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.change(|state| state.is_done = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_is_asked_to_end_waits_until_it_is_done() {
        let ending = Arc::new(Ending::default());
        let running = Running::new(&ending);
        let done = Done(Arc::clone(&ending));
        let asked = Arc::clone(&ending);
        let worker = thread::spawn(move || {
            asked.ask_and_wait();
            drop(running);
        });
        ending.wait();
        assert!(!worker.is_finished());
        drop(done);
        worker.join().unwrap();
    }

    #[test]
    fn a_step_that_is_wanted_is_not_waited_for_and_the_end_is_told() {
        let ending = Arc::new(Ending::default());
        ending.want_step();
        let long = Duration::from_secs(600);
        assert!(ending.wait_for_step(long), "wanted before");
        assert!(ending.wait_for_step(Duration::ZERO), "wanted once, and the time is over");
        let asking = Arc::clone(&ending);
        let waiting = thread::spawn(move || (asking.wait_for_step(long), asking.wait_for_step(long)));
        ending.want_step();
        while ending.state.lock().is_step_wanted {
            thread::yield_now();
        }
        ending.end_steps();
        assert!(!waiting.join().unwrap().1);
    }

    #[test]
    fn without_threads_there_is_nothing_to_wait_for() {
        let ending = Arc::new(Ending::default());
        drop(Running::new(&ending));
        ending.wait();
    }
}
