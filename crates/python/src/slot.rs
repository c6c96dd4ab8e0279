//! Keeps an open volume or file until Python closes it, and away from child processes. `volume` and `file` use it.
//!
//! A fork copies the memory of the engine but not its threads, and the lock on the image is the parent's. So a child
//! process must neither use nor close a volume of its parent: what it would write could contradict the parent's writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts a fork. The package calls it in each child process.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Something that is open until it is taken out.
pub(crate) struct Slot<T> {
    what: &'static str,
    forks: u64,
    value: RwLock<Option<Arc<T>>>,
}

impl<T> Slot<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        let forks = FORKS.load(Ordering::Relaxed);
        Self { what, forks, value: RwLock::new(Some(Arc::new(value))) }
    }

    /// # Errors
    /// `ValueError` after it was closed, `RuntimeError` in a child process.
    pub(crate) fn get(&self) -> PyResult<Arc<T>> {
        self.refuse_child()?;
        let value = self.value.read();
        value.clone().ok_or_else(|| PyValueError::new_err(format!("I/O operation on closed {}", self.what)))
    }

    /// Takes it out; `None` if it was closed before, and in a child process.
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        self.refuse_child().ok()?;
        self.value.write().take()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.refuse_child().is_ok() && self.value.read().is_none()
    }

    fn refuse_child(&self) -> PyResult<()> {
        if self.forks == FORKS.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(format!("the {} was opened before a fork: open it in this process", self.what)))
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.refuse_child().is_err() {
            // Closing it would write to the image that the parent has open.
            std::mem::forget(self.value.get_mut().take());
        }
    }
}
