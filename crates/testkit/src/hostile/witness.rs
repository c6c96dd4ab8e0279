//! Implements a read-only view of a device, which may end before the device does. `hostile_image` returns its images as
//! such.

use blockdev::{Device, Error, Op, Result};
use std::sync::Arc;

/// Passes reads of the first `size_bytes` of a device on. A write or discard is a bug of the tested code, and panics.
#[derive(Debug)]
pub(super) struct ReadWitness {
    below: Arc<dyn Device>,
    size_bytes: u64,
}

impl ReadWitness {
    pub(super) fn new(below: Arc<dyn Device>, size_bytes: u64) -> Self {
        let size_bytes = size_bytes.min(below.size_bytes());
        Self { below, size_bytes }
    }
}

impl Device for ReadWitness {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = u64::try_from(buf.len()).unwrap_or(u64::MAX);
        if offset.checked_add(len).is_none_or(|end| end > self.size_bytes) {
            let device = self.name().to_owned();
            return Err(Error::UnexpectedEnd { device, offset, len, size: self.size_bytes });
        }
        self.below.read_at(offset, buf)
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.below.next_data(offset).min(self.size_bytes).max(offset)
    }

    #[expect(clippy::panic, reason = "it is a test that fails")]
    fn write_at(&self, offset: u64, _: &[&[u8]]) -> Result<()> {
        panic!("byte {offset} of a device that is only to be read was written");
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    #[expect(clippy::panic, reason = "it is a test that fails")]
    fn discard(&self, offset: u64, _: u64) -> Result<()> {
        panic!("byte {offset} of a device that is only to be read was discarded");
    }

    fn grow(&self, _: u64) -> Result<()> {
        Err(Error::ReadOnly { device: self.name().to_owned(), op: Op::Grow })
    }
}
