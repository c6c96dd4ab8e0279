//! Admits handles to the running transaction, and closes for a commit: the gate. `Store::begin` enters it; the commit
//! closes it.
//!
//! ```text
//! Running(n) --close--> draining --no handles--> Critical(n) --open--> Running(n+1), n written
//!                                                    |--open_exclusive--> one handle of n+1,
//!                                                       the others wait until it ends
//! ```

use crate::locks::{Condvar, Mutex, MutexGuard, Rank};

use btrfs_disk::Generation;

struct State {
    running: u64,
    open_handles: usize,
    /// A commit is between closing the gate and opening it.
    is_closed: bool,
    /// The only open handle is exclusive. Separate from `is_closed`, because a commit may close the gate while the
    /// handle lives, and the gate stays closed when it ends.
    is_exclusive: bool,
    durable: u64,
    /// Handles that were let in since the beginning.
    entered: u64,
}

impl State {
    fn let_in(&mut self) -> Generation {
        self.open_handles += 1;
        self.entered += 1;
        Generation(self.running)
    }
}

/// The gate of the running transaction.
pub(crate) struct Gate {
    /// One commit at a time, from closing the gate to the superblock on the device.
    serial: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Proof that no other commit is running.
pub(crate) struct Serial<'a> {
    _guard: MutexGuard<'a, ()>,
}

impl Gate {
    /// A gate whose running transaction follows the committed `durable`.
    pub(crate) fn new(durable: Generation) -> Self {
        let state = State {
            running: durable.0 + 1,
            open_handles: 0,
            is_closed: false,
            is_exclusive: false,
            durable: durable.0,
            entered: 0,
        };
        Self {
            serial: Mutex::new(Rank::CommitGate, ()),
            state: Mutex::new(Rank::Waiting, state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn running(&self) -> Generation {
        Generation(self.state.lock().running)
    }

    pub(crate) fn durable(&self) -> Generation {
        Generation(self.state.lock().durable)
    }

    /// How many handles were admitted since the beginning, exclusive ones not counted.
    pub(crate) fn entered(&self) -> u64 {
        self.state.lock().entered
    }

    /// Waits for the critical section of a commit, and joins the running transaction.
    pub(crate) fn enter(&self) -> Generation {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |s| s.is_closed || s.is_exclusive);
        state.let_in()
    }

    /// As [`Self::enter`], but `None` instead of waiting.
    pub(crate) fn try_enter(&self) -> Option<Generation> {
        let mut state = self.state.lock();
        if state.is_closed || state.is_exclusive {
            return None;
        }
        Some(state.let_in())
    }

    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.open_handles -= 1;
        if state.open_handles == 0 && state.is_closed {
            self.changed.notify_all();
        }
    }

    /// Waits for a running commit, and bars the next.
    pub(crate) fn serialize(&self) -> Serial<'_> {
        Serial { _guard: self.serial.lock() }
    }

    /// As [`Self::serialize`], but `None` while a commit is running.
    pub(crate) fn try_serialize(&self) -> Option<Serial<'_>> {
        self.serial.try_lock().map(|guard| Serial { _guard: guard })
    }

    /// Closes the gate for new handles, and waits until all have ended.
    pub(crate) fn close(&self, _serial: &Serial<'_>) -> Generation {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.changed.wait_while(&mut state, |s| s.open_handles > 0);
        Generation(state.running)
    }

    /// Opens the gate to the next transaction, or to the same one when nothing was committed.
    pub(crate) fn open(&self, _serial: &Serial<'_>, advance: bool) -> Generation {
        let mut state = self.state.lock();
        state.running += u64::from(advance);
        state.is_closed = false;
        self.changed.notify_all();
        Generation(state.running)
    }

    /// Starts the next transaction with one handle, and admits no other until [`Self::leave_exclusive`].
    pub(crate) fn open_exclusive(&self, _serial: &Serial<'_>, advance: bool) -> Generation {
        let mut state = self.state.lock();
        state.running += u64::from(advance);
        state.open_handles = 1;
        state.is_closed = false;
        state.is_exclusive = true;
        Generation(state.running)
    }

    pub(crate) fn leave_exclusive(&self) {
        let mut state = self.state.lock();
        state.open_handles = 0;
        state.is_exclusive = false;
        self.changed.notify_all();
    }

    /// The transaction `generation` is on the device.
    pub(crate) fn set_durable(&self, _serial: &Serial<'_>, generation: Generation) {
        self.state.lock().durable = generation.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_commit_that_waits_for_the_exclusive_handle_keeps_the_gate_closed() {
        let gate = Gate::new(Generation(1));
        let serial = gate.serialize();
        gate.close(&serial);
        gate.open_exclusive(&serial, true);
        drop(serial);
        let is_critical = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let serial = gate.serialize();
                gate.close(&serial);
                is_critical.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                is_critical.store(false, Ordering::SeqCst);
                gate.open(&serial, true);
            });
            // The commit waits by now; either way the gate must not open for the visitor.
            while !gate.state.lock().is_closed {
                std::thread::yield_now();
            }
            gate.leave_exclusive();
            assert!(gate.state.lock().is_closed, "the waiting commit closed the gate");
            assert_eq!(gate.enter(), Generation(4));
            assert!(!is_critical.load(Ordering::SeqCst));
            gate.leave();
        });
    }
}
