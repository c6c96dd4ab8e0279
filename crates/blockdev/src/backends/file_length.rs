//! Keeps how long a device over a file is, and makes the file longer and shorter. Both backends of files have it.

use crate::{Error, Op, Result};
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

/// The length of a device that begins at a byte of a file.
#[derive(Debug)]
pub(super) struct FileLength {
    bytes: AtomicU64,
    /// Byte of the file at which the device begins.
    start: u64,
    /// The device ends where the file does.
    can_grow: bool,
}

impl FileLength {
    pub(super) const fn new(bytes: u64, start: u64, can_grow: bool) -> Self {
        Self { bytes: AtomicU64::new(bytes), start, can_grow }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Makes the device at least so long, and the file with it.
    ///
    /// # Errors
    /// [`Error::CannotGrow`]; those of the host.
    pub(super) fn grow(&self, file: &File, name: &str, size_bytes: u64) -> Result<()> {
        let size = self.bytes();
        if size_bytes <= size {
            return Ok(());
        }
        let Some(end) = self.start.checked_add(size_bytes).filter(|_| self.can_grow) else {
            return Err(Error::CannotGrow { device: name.to_owned(), size });
        };
        let failed = |error| Error::io(Op::Grow, name, size, size_bytes - size, error);
        if file.metadata().map_err(failed)?.len() < end {
            file.set_len(end).map_err(failed)?;
        }
        self.bytes.fetch_max(size_bytes, Ordering::AcqRel);
        Ok(())
    }

    /// Makes the device and its file shorter, if the device ends where the file does.
    ///
    /// # Errors
    /// Those of the host.
    pub(super) fn shrink(&self, file: &File, name: &str, size_bytes: u64) -> Result<()> {
        let size = self.bytes();
        if !self.can_grow || size_bytes >= size {
            return Ok(());
        }
        let Some(end) = self.start.checked_add(size_bytes) else { return Ok(()) };
        // First, so that no read goes behind the end of the file.
        self.bytes.store(size_bytes, Ordering::Release);
        file.set_len(end).map_err(|error| Error::io(Op::Shrink, name, size_bytes, size - size_bytes, error))
    }
}
