//! Reports how far an operation has come to its caller, who can end it. `open`, `repair`, `copy` and `btrfs/operations`
//! use it.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use blockdev::{Device, Error, Op, Result};
use checking::Watch;
use parking_lot::Mutex;
use transfer::Observer;

/// The shortest time between two calls of the callback.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// How far an operation has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done: read from the devices by a check, a repair or a scrub, moved by a balance, copied or shared as file
    /// contents by a copy, of the stream by a send or a receipt.
    pub bytes: u64,
    /// Estimate of `bytes` at the end, which may change; 0 if unknown.
    pub bytes_total: u64,
    /// Inodes that were checked; in a copy or receipt, names that are done: files, directories, further hard links; in
    /// a balance, block groups.
    pub inodes: u64,
}

/// The callback of an operation. It is called with the progress at most every 50 ms, by any thread of the operation but
/// never by two at once; [`ControlFlow::Break`] cancels the operation.
pub type ProgressFn<'a> = &'a mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send);

/// Collects the progress of several threads and passes it to the callback, one call at a time.
pub(crate) struct Reporter<'a> {
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    inodes: AtomicU64,
    callback: Mutex<(ProgressFn<'a>, Option<Instant>)>,
    cancelled: Arc<AtomicBool>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(callback: ProgressFn<'a>) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            inodes: AtomicU64::new(0),
            callback: Mutex::new((callback, None)),
            cancelled: Arc::default(),
        }
    }

    /// The flag that is set when the caller ends the operation.
    pub(crate) fn cancelled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// So many bytes, and so many inodes, were read or written.
    pub(crate) fn add(&self, bytes: u64, inodes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inodes.fetch_add(inodes, Ordering::Relaxed);
        self.report();
    }

    fn report(&self) {
        // The thread that holds it reports these counts too, now or with its next call.
        let Some(mut callback) = self.callback.try_lock() else { return };
        if self.is_cancelled() || callback.1.is_some_and(|last| last.elapsed() < INTERVAL) {
            return;
        }
        callback.1 = Some(Instant::now());
        if (callback.0)(&self.progress()).is_break() {
            self.cancelled.store(true, Ordering::Release);
        }
    }

    /// Reports the end; the result of the callback is ignored.
    pub(crate) fn finish(&self) {
        if !self.is_cancelled() {
            let _ = (self.callback.lock().0)(&self.progress());
        }
    }

    /// The result of the operation; `ECANCELED` if it was cancelled.
    pub(crate) fn end<T>(&self, result: vfs::Result<T>) -> vfs::Result<T> {
        self.finish();
        if self.is_cancelled() { Err(vfs::Errno::ECANCELED.into()) } else { result }
    }

    /// Sets the progress of an operation that counts by itself; `Break` if it is cancelled.
    pub(crate) fn set(&self, progress: Progress) -> ControlFlow<()> {
        self.bytes.store(progress.bytes, Ordering::Relaxed);
        self.bytes_total.store(progress.bytes_total, Ordering::Relaxed);
        self.inodes.store(progress.inodes, Ordering::Relaxed);
        self.report();
        if self.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn progress(&self) -> Progress {
        Progress {
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
            inodes: self.inodes.load(Ordering::Relaxed),
        }
    }
}

impl Watch for Reporter<'_> {
    fn add_bytes(&self, bytes: u64) {
        self.add(bytes, 0);
    }

    fn add_inodes(&self, count: u64) {
        self.add(0, count);
    }

    fn set_total(&self, bytes: u64) {
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        Reporter::is_cancelled(self)
    }
}

impl Observer for Reporter<'_> {
    fn done(&self) {
        self.add(0, 1);
    }

    fn copied(&self, bytes: u64) {
        self.add(bytes, 0);
    }

    fn shared(&self, bytes: u64) {
        self.add(bytes, 0);
    }

    fn is_cancelled(&self) -> bool {
        Reporter::is_cancelled(self)
    }
}

/// A device that can be read until its user cancels the operation.
#[derive(Debug)]
pub(crate) struct Cancellable {
    device: Arc<dyn Device>,
    cancelled: Arc<AtomicBool>,
}

impl Cancellable {
    pub(crate) fn over(device: Arc<dyn Device>, cancelled: Arc<AtomicBool>) -> Arc<dyn Device> {
        Arc::new(Self { device, cancelled })
    }

    fn refusal(&self, op: Op) -> Error {
        Error::ReadOnly { op, device: self.device.name().to_owned() }
    }
}

impl Device for Cancellable {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.cancelled.load(Ordering::Acquire) {
            let (len, cancelled) = (u64::try_from(buf.len()).unwrap_or(u64::MAX), io::ErrorKind::Interrupted);
            return Err(Error::io(Op::Read, self.name(), offset, len, cancelled.into()));
        }
        self.device.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.device.next_data(offset)
    }

    fn queue_depth(&self) -> usize {
        self.device.queue_depth()
    }

    fn write_at(&self, _offset: u64, _parts: &[&[u8]]) -> Result<()> {
        Err(self.refusal(Op::Write))
    }

    fn flush(&self) -> Result<()> {
        Err(self.refusal(Op::Flush))
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Err(self.refusal(Op::Discard))
    }

    fn grow(&self, _size_bytes: u64) -> Result<()> {
        Err(self.refusal(Op::Grow))
    }
}
