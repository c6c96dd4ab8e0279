//! Limits the bytes of long records and replies that are in memory at the same time, for all connections together.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Messages up to this length are not counted: the number of threads already limits them.
const SHORT_BYTES: usize = 32 << 10;

/// The bytes that are still free.
pub(super) struct Budget {
    left: Mutex<usize>,
    returned: Condvar,
}

/// A reservation of bytes; dropping it returns them.
#[must_use = "the bytes are given back when it is dropped"]
pub(super) struct Share<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: Mutex::new(bytes), returned: Condvar::new() }
    }

    /// Reserves `bytes`, and waits until they are free; `None` if they are not by `deadline`. A caller must not hold
    /// another share for the same message, or threads could wait for each other.
    pub(super) fn take(&self, bytes: usize, deadline: Instant) -> Option<Share<'_>> {
        if bytes <= SHORT_BYTES {
            return Some(Share { budget: self, bytes: 0 });
        }
        let mut left = self.left.lock();
        loop {
            if let Some(rest) = left.checked_sub(bytes) {
                *left = rest;
                return Some(Share { budget: self, bytes });
            }
            if self.returned.wait_until(&mut left, deadline).timed_out() {
                return None;
            }
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.left.lock() += self.bytes;
            self.budget.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn long_messages_wait_and_short_ones_do_not() {
        let budget = Budget::new(1 << 20);
        let soon = || Instant::now() + Duration::from_millis(20);
        let first = budget.take(1 << 20, soon()).unwrap();
        assert!(budget.take(SHORT_BYTES, soon()).is_some());
        assert!(budget.take(SHORT_BYTES + 1, soon()).is_none());
        drop(first);
        assert!(budget.take(1 << 20, soon()).is_some());
    }
}
