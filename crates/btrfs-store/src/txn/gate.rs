//! Who may change the running transaction, and when it is committed.
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
    is_closed: bool,
    durable: u64,
}

/// The door to the running transaction.
pub(crate) struct Gate {
    /// One commit at a time, from closing the gate to the superblock on the device.
    serial: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Proof that no other commit is under way.
pub(crate) struct Serial<'a> {
    _guard: MutexGuard<'a, ()>,
}

impl Gate {
    /// A gate whose running transaction follows the committed `durable`.
    pub(crate) fn new(durable: Generation) -> Self {
        let state =
            State { running: durable.0 + 1, open_handles: 0, is_closed: false, durable: durable.0 };
        Self {
            serial: Mutex::new(Rank::CommitGate, ()),
            state: Mutex::new(Rank::Exclusive, state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn running(&self) -> Generation {
        Generation(self.state.lock().running)
    }

    pub(crate) fn durable(&self) -> Generation {
        Generation(self.state.lock().durable)
    }

    /// Waits for the critical section of a commit, and joins the running transaction.
    pub(crate) fn enter(&self) -> Generation {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |s| s.is_closed);
        state.open_handles += 1;
        Generation(state.running)
    }

    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.open_handles -= 1;
        if state.open_handles == 0 && state.is_closed {
            self.changed.notify_all();
        }
    }

    /// Waits for the commit that is under way, if there is one, and bars the next.
    pub(crate) fn serialize(&self) -> Serial<'_> {
        Serial { _guard: self.serial.lock() }
    }

    /// Lets nobody in any more, and waits until everybody is out.
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

    /// Starts the next transaction with one handle, and keeps the others out until
    /// [`Self::leave_exclusive`].
    pub(crate) fn open_exclusive(&self, _serial: &Serial<'_>, advance: bool) -> Generation {
        let mut state = self.state.lock();
        state.running += u64::from(advance);
        state.open_handles = 1;
        Generation(state.running)
    }

    pub(crate) fn leave_exclusive(&self) {
        let mut state = self.state.lock();
        state.open_handles = 0;
        state.is_closed = false;
        self.changed.notify_all();
    }

    /// The transaction `generation` is on the device.
    pub(crate) fn set_durable(&self, _serial: &Serial<'_>, generation: Generation) {
        self.state.lock().durable = generation.0;
    }
}
