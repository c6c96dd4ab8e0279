//! Runs a long operation in a thread of its own, while the calling thread runs the progress callback and handles
//! signals. `images`, `streams` and `volume` call it.

use std::ops::ControlFlow;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBool;
use spinney::ProgressFn;

/// Longest time between two looks for signals.
const INTERVAL: Duration = Duration::from_millis(50);

/// How far an operation has come.
#[pyclass(frozen, get_all, module = "spinney")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Bytes done: read, copied, or of the stream.
    bytes: u64,
    /// Estimate of `bytes` at the end, which may change; 0 if unknown.
    bytes_total: u64,
    /// Inodes that were checked, or names that were copied or received.
    inodes: u64,
}

#[pymethods]
impl Progress {
    fn __repr__(&self) -> String {
        let Self { bytes, bytes_total, inodes } = self;
        format!("Progress(bytes={bytes}, bytes_total={bytes_total}, inodes={inodes})")
    }
}

/// Runs `operation`. It is cancelled if `callback` returns `False` or raises an exception, or a signal handler raises
/// one (Ctrl-C); the exception is raised after the operation has ended.
///
/// # Errors
/// That exception.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    operation: impl FnOnce(ProgressFn<'_>) -> T + Send,
) -> PyResult<T> {
    let is_cancelled = AtomicBool::new(false);
    let (outcome, failure) = py.detach(|| {
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let (answerer, answers) = mpsc::channel();
            let cancelled = &is_cancelled;
            let worker = scope.spawn(move || {
                operation(&mut move |done: &spinney::Progress| {
                    // The other side answers each report until this thread has ended.
                    let _ = sender.send(*done).map(|()| answers.recv());
                    if cancelled.load(Ordering::Acquire) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
            });
            let mut failure = None;
            loop {
                let done = match receiver.recv_timeout(INTERVAL) {
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => None,
                    Ok(done) => Some(done),
                };
                if !is_cancelled.load(Ordering::Relaxed) {
                    let answer = Python::attach(|py| asked(py, callback.as_ref(), done));
                    let is_break = !matches!(answer, Ok(ControlFlow::Continue(())));
                    is_cancelled.store(is_break, Ordering::Release);
                    failure = answer.err();
                }
                if done.is_some() {
                    // Fails only if the operation has ended meanwhile.
                    let _ = answerer.send(());
                }
            }
            (worker.join(), failure)
        })
    });
    let outcome = outcome.unwrap_or_else(|cause| panic::resume_unwind(cause));
    match failure {
        Some(failure) => Err(failure),
        None => Ok(outcome),
    }
}

/// Handles signals, and calls the callback if there is progress to report.
fn asked(py: Python<'_>, callback: Option<&Py<PyAny>>, done: Option<spinney::Progress>) -> PyResult<ControlFlow<()>> {
    py.check_signals()?;
    let (Some(callback), Some(done)) = (callback, done) else { return Ok(ControlFlow::Continue(())) };
    let spinney::Progress { bytes, bytes_total, inodes } = done;
    let answer = callback.bind(py).call1((Progress { bytes, bytes_total, inodes },))?;
    let is_no = answer.cast::<PyBool>().is_ok_and(|answer| !answer.is_true());
    Ok(if is_no { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}
