//! Implements a copy-on-write device: writes stay in memory, and the device below is only read. Used by repairs (to
//! plan), by read-only opening with a log to replay, and by tests of hostile images.

use crate::convert::{to_u64, to_usize};
use crate::device::{check_range, parts_len};
use crate::{Device, Error, Op, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Granularity of the copy in bytes: the first write to a page copies the whole page into memory.
const PAGE_BYTES: usize = 4096;

/// Writes stay in memory and never reach the device below. They are "durable" until it is dropped.
#[derive(Debug)]
pub struct OverlayDevice {
    below: Arc<dyn Device>,
    pages_max: usize,
    pages: RwLock<BTreeMap<u64, Box<[u8]>>>,
}

impl OverlayDevice {
    /// An overlay without changes. Writes that would make it keep more than `bytes_max` fail.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, bytes_max: usize) -> Self {
        let pages_max = bytes_max / PAGE_BYTES;
        Self { below, pages_max, pages: RwLock::default() }
    }

    /// Bytes of memory that hold changes.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        to_u64(self.pages.read().len().saturating_mul(PAGE_BYTES))
    }

    /// The pages that hold changes, in order: first byte, and content. The last page may reach beyond the device; its
    /// end is zeros there.
    #[must_use]
    pub fn changes(&self) -> Vec<(u64, Box<[u8]>)> {
        let pages = self.pages.read();
        pages.iter().map(|(page, bytes)| (page.saturating_mul(to_u64(PAGE_BYTES)), bytes.clone())).collect()
    }

    /// Reads a page from the device below. Where the device ends within the page, the rest is zeros.
    fn page_below(&self, page: u64) -> Result<Box<[u8]>> {
        let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
        let start = page.saturating_mul(to_u64(PAGE_BYTES));
        let left = self.below.size_bytes().saturating_sub(start);
        let len = to_usize(left.min(to_u64(PAGE_BYTES)));
        self.below.read_at(start, &mut bytes[..len])?;
        Ok(bytes)
    }

    fn full(&self, offset: u64, len: u64) -> Error {
        let reason = "the changes kept in memory are as many as may be";
        Error::Io {
            op: Op::Write,
            device: self.name().to_owned(),
            offset,
            len,
            source: Arc::new(io::Error::new(io::ErrorKind::OutOfMemory, reason)),
        }
    }
}

impl Device for OverlayDevice {
    fn name(&self) -> &str {
        self.below.name()
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Op::Read, offset, to_u64(buf.len()))?;
        let pages = self.pages.read();
        self.below.read_at(offset, buf)?;
        let page_bytes = to_u64(PAGE_BYTES);
        let end = offset.saturating_add(to_u64(buf.len()));
        for (page, bytes) in pages.range(offset / page_bytes..end.div_ceil(page_bytes)) {
            let start = page.saturating_mul(page_bytes);
            let (from, to) = (start.max(offset), end.min(start.saturating_add(page_bytes)));
            let source = &bytes[to_usize(from - start)..to_usize(to - start)];
            buf[to_usize(from - offset)..to_usize(to - offset)].copy_from_slice(source);
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> u64 {
        let page_bytes = to_u64(PAGE_BYTES);
        let pages = self.pages.read();
        let changed = pages.range(offset / page_bytes..).next().map(|(page, _)| page.saturating_mul(page_bytes));
        let below = self.below.next_data(offset);
        changed.map_or(below, |changed| below.min(changed.max(offset)))
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts_len(parts);
        check_range(self, Op::Write, offset, len)?;
        let mut pages = self.pages.write();
        let mut at = offset;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                let (page, within) = (at / to_u64(PAGE_BYTES), to_usize(at % to_u64(PAGE_BYTES)));
                let taken = rest.len().min(PAGE_BYTES - within);
                let (now, after) = rest.split_at(taken);
                if !pages.contains_key(&page) {
                    if pages.len() >= self.pages_max {
                        return Err(self.full(offset, len));
                    }
                    pages.insert(page, self.page_below(page)?);
                }
                if let Some(bytes) = pages.get_mut(&page) {
                    bytes[within..within + taken].copy_from_slice(now);
                }
                at = at.saturating_add(to_u64(taken));
                rest = after;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Only checks the range: a discard is advice, and keeping the old bytes readable is allowed.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_range(self, Op::Discard, offset, len)
    }

    fn grow(&self, _: u64) -> Result<()> {
        let (device, size) = (self.name().to_owned(), self.size_bytes());
        Err(Error::CannotGrow { device, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{FileDevice, FileOptions, MemoryDevice};

    #[test]
    fn changes_are_read_back_and_stay_above() {
        let below = Arc::new(MemoryDevice::from_bytes(&[7; 10_000]).into_read_only());
        let overlay = OverlayDevice::new(Arc::<MemoryDevice>::clone(&below), 3 * PAGE_BYTES);
        overlay.write_at(4_090, &[b"hello ", b"", b"world"]).unwrap();
        overlay.write_at(9_999, &[b"!"]).unwrap();
        let mut expected = vec![7; 10_000];
        expected[4_090..4_101].copy_from_slice(b"hello world");
        expected[9_999] = b'!';
        for range in [0..10_000, 4_095..4_097, 9_000..10_000, 0..10, 5_000..5_000] {
            let mut found = vec![0; range.len()];
            overlay.read_at(to_u64(range.start), &mut found).unwrap();
            assert_eq!(found, expected[range.clone()], "{range:?}");
        }
        assert!(below.to_bytes().iter().all(|byte| *byte == 7));
        assert!(overlay.write_at(9_999, &[b"!!"]).is_err(), "past the end");
    }

    /// A file with a hole from 64 KiB on, in which a page is changed.
    #[test]
    fn a_hole_ends_where_something_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, [7; 65_536]).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let below = Arc::new(FileDevice::open(&path, &FileOptions::default()).unwrap());
        let knows_holes = below.next_data(65_536) == 1 << 40;
        let overlay = OverlayDevice::new(Arc::<FileDevice>::clone(&below), 1 << 20);
        overlay.write_at((1 << 30) + 5000, &[b"changed"]).unwrap();
        assert_eq!(overlay.next_data(100), 100);
        if knows_holes {
            assert_eq!(overlay.next_data(65_536), (1 << 30) + 4096);
            assert_eq!(overlay.next_data((1 << 30) + 5003), (1 << 30) + 5003);
            assert_eq!(overlay.next_data((1 << 30) + 8192), 1 << 40);
        }
    }

    #[test]
    fn the_bound_is_kept() {
        let below = Arc::new(MemoryDevice::new(1 << 20));
        let overlay = OverlayDevice::new(below, 2 * PAGE_BYTES);
        overlay.write_at(0, &[&[1; 2 * PAGE_BYTES]]).unwrap();
        overlay.write_at(100, &[&[2; 5]]).unwrap();
        let error = overlay.write_at(1 << 19, &[b"x"]).unwrap_err();
        assert!(error.to_string().contains("kept in memory"), "{error}");
        assert_eq!(overlay.allocated_bytes(), 8192);
    }
}
