//! Locks caches. A cache stays consistent if a thread panics while it holds the lock, so poisoning is ignored. All
//! modules of the crate that cache something call it.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
