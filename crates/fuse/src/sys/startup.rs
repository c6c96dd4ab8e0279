//! Records the state of the standard output when the process started, before Rust's runtime changes it. `output` of the
//! program asks it.
//!
//! The runtime opens `/dev/null` in place of a closed standard descriptor, and later output is lost without an error.
//! That descriptor looks like a `/dev/null` chosen by the caller (a daemon's is opened for reading and writing, too),
//! so it has to be examined before the runtime runs.

use rustix::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the loader calls what this section lists before `main`, once, while there is one thread. The function makes
// one system call and stores to a static without a destructor; it needs nothing that the runtime sets up.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: it is borrowed for one call, which fails if it is closed.
        let stdout = unsafe { BorrowedFd::borrow_raw(1) };
        let is_closed = rustix::io::fcntl_getfd(stdout) == Err(rustix::io::Errno::BADF);
        STDOUT_WAS_CLOSED.store(is_closed, Ordering::Relaxed);
    }
    look
};

/// True if this process was started with its standard output closed: output would be lost.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}
