//! Notes signals that ask a long copy to stop at a consistent point. `get`, `tally`, `balance` and `scrub` check for
//! them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Chain, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use spinney::transfer::Cause;

/// Notes a signal that asks for the end. The first one is noted, a second one ends the program at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_asked: Arc<AtomicBool>,
    /// Number of the signal; 0 if none came.
    signal: Arc<AtomicUsize>,
}

/// The failure of an operation that stopped because of a signal.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl Interrupt {
    /// Notes SIGINT, SIGTERM and SIGHUP from here on, except those that the process inherited as ignored (`nohup`,
    /// background jobs of a script).
    pub(crate) fn catch() -> Result<Self> {
        let noted = Self::default();
        let ignored = ignored();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // Handlers run in this order, so that the first signal does not see its own note.
            flag::register_conditional_default(signal, Arc::clone(&noted.is_asked))?;
            flag::register(signal, Arc::clone(&noted.is_asked))?;
            flag::register_usize(signal, Arc::clone(&noted.signal), usize::try_from(signal)?)?;
        }
        Ok(noted)
    }

    /// Called by a loop before each piece of work.
    ///
    /// # Errors
    /// [`Interrupted`], once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// True once a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Ends this program by the noted signal, so that a shell sees the cause (status 128 and the signal's number).
    /// Returns if there was none.
    pub(crate) fn end_by_it(&self) {
        let signal = i32::try_from(self.signal.load(Ordering::Relaxed)).unwrap_or_default();
        if signal != 0 {
            // Returns only if the default action of the signal differs; then the caller's status is used.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}

/// True for a failure caused by a signal.
pub(crate) fn is_interruption(error: &(dyn Error + 'static)) -> bool {
    let is_cancelled = |cause: &(dyn Error + 'static)| matches!(cause.downcast_ref(), Some(Cause::Cancelled));
    Chain::new(error).any(|cause| cause.is::<Interrupted>() || is_cancelled(cause))
}

/// Signals that this process ignores, one bit a signal; none if `/proc` is missing.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted by a signal")
    }
}

impl Error for Interrupted {}
