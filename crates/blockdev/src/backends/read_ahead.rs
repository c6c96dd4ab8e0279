//! Read-ahead for direct reads: a small read from a disk also fetches its surroundings, as the page cache would.
//!
//! A disk reads 64 KiB in hardly more time than 4. Tree blocks are often near those that are needed next, so their
//! surroundings are read at once; those of other bytes only after two nearby reads. Caller: `direct_io`.

use crate::buffer::AlignedBuffer;
use crate::convert::{to_u64, to_usize};
use crate::{Kind, Result};
use parking_lot::Mutex;

/// Bytes that are read and kept together, at a multiple of that.
const WINDOW_BYTES: u64 = 64 << 10;
/// Windows kept, each in the place that its number gives it: 16 MiB.
const SLOTS: u64 = 256;
/// Longer reads are on their own.
pub(super) const READ_BYTES_MAX: u64 = 32 << 10;

/// Windows of a disk that were read.
pub(super) struct Around {
    slots: Box<[Mutex<Slot>]>,
}

#[derive(Default)]
struct Slot {
    /// The window that was asked for last.
    noted: Option<u64>,
    held: Option<(u64, AlignedBuffer)>,
    /// Changes of windows in this slot: data read before a change is not kept after it.
    changes: u64,
}

impl Around {
    pub(super) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }

    fn slot(&self, window: u64) -> Option<&Mutex<Slot>> {
        self.slots.get(to_usize(window % SLOTS))
    }

    /// Fills `buf` from `offset` of a device of `size` bytes, if the read fits one read-ahead window; `fetch` reads
    /// from the device. Returns false if the caller has to read.
    pub(super) fn read(
        &self,
        (offset, size): (u64, u64),
        kind: Kind,
        buf: &mut [u8],
        fetch: impl FnOnce(u64, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let (len, window) = (to_u64(buf.len()), offset / WINDOW_BYTES);
        let start = window * WINDOW_BYTES;
        let inside = to_usize(offset - start)..to_usize(offset - start + len);
        if len == 0 || len > READ_BYTES_MAX || inside.end > to_usize(WINDOW_BYTES) {
            return Ok(false);
        }
        let Some(place) = self.slot(window) else { return Ok(false) };
        let mut slot = place.lock();
        if let Some((_, bytes)) = slot.held.as_ref().filter(|(held, _)| *held == window) {
            let Some(found) = bytes.get(inside) else { return Ok(false) };
            buf.copy_from_slice(found);
            return Ok(true);
        }
        let is_near = slot.noted.replace(window) == Some(window);
        if !is_near && kind != Kind::Metadata {
            return Ok(false);
        }
        let changes = slot.changes;
        drop(slot);
        let mut bytes = AlignedBuffer::new(to_usize(WINDOW_BYTES.min(size.saturating_sub(start))));
        if inside.end > bytes.len() || fetch(start, &mut bytes).is_err() {
            // The wanted range itself may be readable, and gives the better error.
            return Ok(false);
        }
        buf.copy_from_slice(bytes.get(inside).unwrap_or_default());
        let mut slot = place.lock();
        if slot.changes == changes {
            slot.held = Some((window, bytes));
        }
        Ok(true)
    }

    /// Drops a range from the cache. Every write calls this before it returns, even after a failure.
    pub(super) fn forget(&self, offset: u64, len: u64) {
        let first = offset / WINDOW_BYTES;
        let last = offset.saturating_add(len.max(1) - 1) / WINDOW_BYTES;
        for window in (first..=last).take(self.slots.len()) {
            let Some(place) = self.slot(window) else { continue };
            let mut slot = place.lock();
            slot.changes = slot.changes.wrapping_add(1);
            // A range of more windows than slots affects all of them.
            let is_in_range = |held: u64| (first..=last).contains(&held);
            slot.held.take_if(|(held, _)| is_in_range(*held));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SIZE: u64 = 10 * WINDOW_BYTES - 8192;

    /// Reads, and tells how often the device was asked; its bytes are the numbers of their 4 KiB.
    fn read(around: &Around, offset: u64, len: usize, kind: Kind) -> (bool, Vec<u8>, usize) {
        let asked = Cell::new(0);
        let mut buf = vec![0; len];
        let fetch = |start: u64, bytes: &mut [u8]| {
            asked.set(asked.get() + 1);
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = ((start + to_u64(at)) / 4096).to_le_bytes()[0];
            }
            Ok(())
        };
        let done = around.read((offset, SIZE), kind, &mut buf, fetch).unwrap();
        (done, buf, asked.get())
    }

    #[test]
    fn blocks_of_trees_bring_what_is_around_them_and_others_the_second_time() {
        let around = Around::new();
        assert_eq!(read(&around, 8192, 4096, Kind::Metadata), (true, vec![2; 4096], 1));
        assert_eq!(read(&around, 4096, 4096, Kind::Data), (true, vec![1; 4096], 0));
        let other = 3 * WINDOW_BYTES;
        assert!(!read(&around, other, 4096, Kind::Data).0);
        assert_eq!(read(&around, other + 4096, 100, Kind::Data), (true, vec![49; 100], 1));
        assert_eq!(read(&around, other, 100, Kind::Data), (true, vec![48; 100], 0));
        // Long, across the border of a window, beyond the end.
        assert!(!read(&around, 0, to_usize(READ_BYTES_MAX) + 1, Kind::Metadata).0);
        assert!(!read(&around, WINDOW_BYTES - 1, 2, Kind::Metadata).0);
        assert_eq!(read(&around, SIZE - 4096, 4096, Kind::Metadata).2, 1);
        assert!(!read(&around, SIZE, 4096, Kind::Metadata).0);
    }

    #[test]
    fn what_changes_is_forgotten_also_while_it_is_read() {
        let around = Around::new();
        assert_eq!(read(&around, 0, 4096, Kind::Metadata).2, 1);
        around.forget(WINDOW_BYTES - 1, 1);
        assert_eq!(read(&around, 0, 4096, Kind::Metadata).2, 1);
        around.forget(WINDOW_BYTES, WINDOW_BYTES);
        assert_eq!(read(&around, 0, 4096, Kind::Metadata).2, 0, "the neighbour changed");
        around.forget(0, u64::MAX);
        let mut buf = [0; 16];
        let changed_meanwhile = |_: u64, _: &mut [u8]| {
            around.forget(4096, 10);
            Ok(())
        };
        assert!(around.read((0, SIZE), Kind::Metadata, &mut buf, changed_meanwhile).unwrap());
        assert_eq!(read(&around, 0, 4096, Kind::Metadata).2, 1, "it was not kept");
    }
}
