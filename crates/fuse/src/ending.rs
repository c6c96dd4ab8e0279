//! The end of a mount: passed from the thread that hears of it to the one that ends the server.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// What the threads of a server tell each other at the end.
///
/// ```text
///   workers                                 who waits for the server
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
}

impl Ending {
    /// Waits until nothing will be asked of the file system any more.
    pub(crate) fn wait(&self) {
        let mut state = self.state.lock();
        while !state.is_asked && state.running > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// The kernel unmounts, and waits for an answer: gives it once everything is done.
    pub(crate) fn ask_and_wait(&self) {
        let mut state = self.state.lock();
        state.is_asked = true;
        self.changed.notify_all();
        while !state.is_done {
            self.changed.wait(&mut state);
        }
    }

    /// Waits for so long, or until the kernel unmounts.
    pub(crate) fn pause(&self, at_most: Duration) {
        let mut state = self.state.lock();
        if !state.is_asked {
            self.changed.wait_for(&mut state, at_most);
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

/// A thread that serves, for as long as this value lives.
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

/// Says that everything is done when it is dropped, so that nobody waits for a server that failed.
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
    fn without_threads_there_is_nothing_to_wait_for() {
        let ending = Arc::new(Ending::default());
        drop(Running::new(&ending));
        ending.wait();
    }
}
