//! Signals that ask a long copy to stop, so that it ends in an orderly way.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Chain, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use spinney::transfer::Cause;

/// Whether a signal has asked for the end. The first one is noted, a second one ends the program at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt {
    is_asked: Arc<AtomicBool>,
    /// The signal; 0 before there was one.
    signal: Arc<AtomicUsize>,
}

/// The failure of what stopped because a signal asked for it.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl Interrupt {
    /// From here on, SIGINT, SIGTERM and SIGHUP are noted, but for those that the caller has this program ignore
    /// (`nohup`, jobs in the background of a script).
    pub(crate) fn catch() -> Result<Self> {
        let noted = Self::default();
        let ignored = ignored();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            // They act in this order, so that the first signal does not meet its own note.
            flag::register_conditional_default(signal, Arc::clone(&noted.is_asked))?;
            flag::register(signal, Arc::clone(&noted.is_asked))?;
            flag::register_usize(signal, Arc::clone(&noted.signal), usize::try_from(signal)?)?;
        }
        Ok(noted)
    }

    /// For a loop, before each piece of its work.
    ///
    /// # Errors
    /// One that says so, once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_asked() { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// True once a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Ends this program by the signal that was noted, so that a shell sees what ended it (status 128 and the
    /// signal's number). Returns where there was none.
    pub(crate) fn end_by_it(&self) {
        let signal = i32::try_from(self.signal.load(Ordering::Relaxed)).unwrap_or_default();
        if signal != 0 {
            // It returns only where the signal has another default; then the caller's status has to do.
            let _ = low_level::emulate_default_handler(signal);
        }
    }
}

/// True for a failure that is a signal's.
pub(crate) fn is_interruption(error: &(dyn Error + 'static)) -> bool {
    let is_cancelled = |cause: &(dyn Error + 'static)| matches!(cause.downcast_ref(), Some(Cause::Cancelled));
    Chain::new(error).any(|cause| cause.is::<Interrupted>() || is_cancelled(cause))
}

/// The set of signals that this program was told to ignore, one bit a signal; none where `/proc` is missing.
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
