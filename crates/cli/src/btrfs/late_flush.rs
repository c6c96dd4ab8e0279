//! A device on which only the last flush counts.
//!
//! While a file system is being made, nothing on the device is worth keeping: a crash leaves
//! rubbish either way. So the flushes of the commits in between are left out, and
//! [`LateFlush::finish`] does one for all of them.

use blockdev::{Device, Result};

/// Passes everything on but flushes.
#[derive(Debug)]
pub(super) struct LateFlush<D>(D);

impl<D: Device> LateFlush<D> {
    /// Wraps a device that holds nothing yet.
    pub(super) fn new(device: D) -> Self {
        Self(device)
    }

    /// Makes everything durable that was written.
    pub(super) fn finish(&self) -> Result<()> {
        self.0.flush()
    }
}

impl<D: Device> Device for LateFlush<D> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        self.0.read_parts_at(offset, parts)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.0.write_at(offset, parts)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.0.discard(offset, len)
    }
    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.0.grow(size_bytes)
    }
}
