//! Defines [`Watch`], by which a long operation reports its progress and asks whether it is cancelled. Checkers,
//! repairs, receipts and backups call it; the command line and the `spinney` library implement it.

use std::fmt;
use std::io::{self, Read, Write};

/// Called with the progress of a check, a repair, a copy or a backup, by any of its threads.
pub trait Watch: Sync {
    /// So many bytes more were read or copied.
    fn add_bytes(&self, _bytes: u64) {}

    /// So many inodes or names more are done.
    fn add_inodes(&self, _count: u64) {}

    /// Estimate of the bytes at the end; a later call replaces it.
    fn set_total(&self, _bytes: u64) {}

    /// True to end the operation soon.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl Watch for () {}

/// A reader or writer whose bytes are added to the progress, and which fails once the operation is cancelled.
pub struct Watched<'a, I> {
    inner: I,
    watch: &'a dyn Watch,
}

impl<'a, I> Watched<'a, I> {
    /// Watches what passes through `inner`.
    pub fn new(inner: I, watch: &'a dyn Watch) -> Self {
        Self { inner, watch }
    }

    fn check(&self) -> io::Result<()> {
        if self.watch.is_cancelled() { Err(io::Error::other(Cancelled)) } else { Ok(()) }
    }

    fn count(&self, bytes: usize) -> usize {
        self.watch.add_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
        bytes
    }
}

impl<I: Read> Read for Watched<'_, I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let count = self.inner.read(buffer)?;
        Ok(self.count(count))
    }
}

impl<I: Write> Write for Watched<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        let count = self.inner.write(bytes)?;
        Ok(self.count(count))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<I: fmt::Debug> fmt::Debug for Watched<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The operation was cancelled: the cause of the [`io::Error`] of a [`Watched`].
#[derive(Debug, Clone, Copy)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operation was cancelled")
    }
}

impl std::error::Error for Cancelled {}
