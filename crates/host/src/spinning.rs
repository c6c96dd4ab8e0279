//! Waits for a lock in a loop before the thread sleeps.
//!
//! A sleeping thread has to be woken: that takes 5 to 100 us, of which the thread that lets go of the lock pays a part
//! each time. Most locks are held for less. So a thread looks at the lock again and again for [`SPIN`], and then
//! sleeps.
//! Where there is one processor it sleeps at once, since the holder cannot run meanwhile.
//!
//! Callers: `locks`.

use std::hint;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// For how long a thread looks at a lock before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
/// Pauses of the processor between two looks at the lock, and looks at the lock between two looks at the clock.
const PAUSES: u32 = 8;
const LOOKS: u32 = 4;

/// Takes a lock: by `attempt` as soon as one succeeds, and by `wait` when none did for a while.
#[inline]
pub(crate) fn take<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    attempt().or_else(|| look_again(attempt)).unwrap_or_else(wait)
}

#[cold]
fn look_again<G>(attempt: impl Fn() -> Option<G>) -> Option<G> {
    static HAS_SEVERAL_PROCESSORS: LazyLock<bool> =
        LazyLock::new(|| thread::available_parallelism().is_ok_and(|count| count > NonZero::<usize>::MIN));
    if !*HAS_SEVERAL_PROCESSORS {
        return None;
    }
    let begin = Instant::now();
    while begin.elapsed() < SPIN {
        for _ in 0..LOOKS {
            (0..PAUSES).for_each(|_| hint::spin_loop());
            if let Some(guard) = attempt() {
                return Some(guard);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_lock_that_stays_taken_is_waited_for() {
        let looks = Cell::new(0_u32);
        let begin = Instant::now();
        let attempt = || {
            looks.set(looks.get() + 1);
            None
        };
        assert_eq!(take(attempt, || 7), 7);
        assert!(begin.elapsed() < Duration::from_secs(1));
        let looks_before = looks.get();
        // Free at the next look, if there are several processors.
        let attempt = || {
            looks.set(looks.get() + 1);
            (looks.get() > looks_before + 1).then_some(1)
        };
        let found = take(attempt, || 2);
        let expected = if thread::available_parallelism().map_or(1, NonZero::get) > 1 { 1 } else { 2 };
        assert_eq!(found, expected);
    }
}
