//! Implements a device that is a sparse file on a host without much room. Used by the test `host_full` of `testkit`.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::{Device, Error, Op, Result};
use parking_lot::Mutex;

use crate::number::to_u64;

/// Bytes that the host gives at once.
const PAGE_BYTES: u64 = 4096;

/// A device whose pages take space of its host when they are first written, and return it when they are discarded. A
/// write without enough space writes the part that fits, and fails as the host's would.
#[derive(Debug)]
pub struct FullDevice {
    inner: Arc<dyn Device>,
    taken: Mutex<HashSet<u64>>,
    room: AtomicU64,
    refused: AtomicU64,
}

impl FullDevice {
    /// Wraps `inner`; there is room for everything until [`FullDevice::leave_room`] says how much.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, taken: Mutex::default(), room: AtomicU64::new(u64::MAX), refused: AtomicU64::new(0) }
    }

    /// From now on the host has so many bytes left.
    pub fn leave_room(&self, bytes: u64) {
        let taken = to_u64(self.taken.lock().len());
        self.room.store(taken.saturating_add(bytes / PAGE_BYTES), Ordering::SeqCst);
    }

    /// Writes that found no room so far.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// Takes room for as many bytes from `offset` on as there is room for.
    fn take(&self, offset: u64, len: u64) -> u64 {
        let mut taken = self.taken.lock();
        let end = offset.saturating_add(len);
        for page in offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES) {
            if taken.contains(&page) {
                continue;
            }
            if to_u64(taken.len()) >= self.room.load(Ordering::SeqCst) {
                self.refused.fetch_add(1, Ordering::SeqCst);
                return (page * PAGE_BYTES).saturating_sub(offset);
            }
            taken.insert(page);
        }
        len
    }
}

impl Device for FullDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let all = parts.concat();
        let fits = self.take(offset, to_u64(all.len()));
        let some = all.get(..crate::number::to_usize(fits)).unwrap_or(&all);
        self.inner.write_at(offset, &[some])?;
        if some.len() < all.len() {
            let error = io::Error::from(io::ErrorKind::StorageFull);
            return Err(Error::io(Op::Write, self.name(), offset, to_u64(all.len()), error));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        let whole = offset.div_ceil(PAGE_BYTES)..end / PAGE_BYTES;
        self.taken.lock().retain(|page| !whole.contains(page));
        self.inner.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.inner.grow(size_bytes)
    }
}
