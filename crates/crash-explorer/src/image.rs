//! Holds images with shared pages: the state of a device is a map of changed pages over an immutable base, and a copy
//! of it costs one pointer a page. `recording` makes one for each state, `explore` opens it.

use crate::number::{to_u64, to_usize};
use blockdev::{Device, Error, Op, Result};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The content of a device.
#[derive(Debug, Clone)]
pub(super) struct Image {
    below: Arc<dyn Device>,
    pages: HashMap<u64, Arc<Page>>,
}

impl Image {
    /// The contents of `below`, which must not change any more.
    pub(super) fn new(below: Arc<dyn Device>) -> Self {
        Self { below, pages: HashMap::new() }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (page, within, len) = piece(at, rest.len());
            let (now, after) = rest.split_at_mut(len);
            match self.pages.get(&page) {
                Some(bytes) => now.copy_from_slice(&bytes[within..within + len]),
                None => self.below.read_at(at, now)?,
            }
            at += to_u64(len);
            rest = after;
        }
        Ok(())
    }

    /// Reads from the base, as it was before all changes.
    pub(super) fn read_base(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.below.read_at(offset, buffer)
    }

    /// Pages that were written, with their first bytes' places.
    pub(super) fn changed_pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(page, bytes)| (page * to_u64(PAGE_BYTES), bytes.as_slice()))
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, within, len) = piece(at, rest.len());
            let (now, after) = rest.split_at(len);
            let found = self.pages.entry(page);
            let target = match found {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    let mut fresh = [0; PAGE_BYTES];
                    if len < PAGE_BYTES {
                        let start = page * to_u64(PAGE_BYTES);
                        let left = to_usize(self.below.size_bytes().saturating_sub(start)).min(PAGE_BYTES);
                        self.below.read_at(start, &mut fresh[..left])?;
                    }
                    entry.insert(Arc::new(fresh))
                }
            };
            Arc::make_mut(target)[within..within + len].copy_from_slice(now);
            at += to_u64(len);
            rest = after;
        }
        Ok(())
    }
}

/// Page, first byte in it, and how many bytes of `len` are in it.
fn piece(at: u64, len: usize) -> (u64, usize, usize) {
    let within = to_usize(at % to_u64(PAGE_BYTES));
    (at / to_u64(PAGE_BYTES), within, len.min(PAGE_BYTES - within))
}

/// An image as a readable and writable device; its writes are lost with it.
#[derive(Debug)]
pub struct ImageDevice {
    image: RwLock<Image>,
    size_bytes: u64,
}

impl ImageDevice {
    /// Begins with the contents of `below`, which must not change any more.
    #[must_use]
    pub fn over(below: Arc<dyn Device>) -> Self {
        Self::new(Image::new(below))
    }

    pub(super) fn new(image: Image) -> Self {
        let size_bytes = image.size_bytes();
        Self { image: RwLock::new(image), size_bytes }
    }

    fn check(&self, op: Op, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.size_bytes) {
            return Ok(());
        }
        let (device, size) = (self.name().to_owned(), self.size_bytes);
        Err(Error::OutOfRange { op, device, offset, len, size })
    }
}

impl Device for ImageDevice {
    fn name(&self) -> &str {
        "state"
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(Op::Read, offset, to_u64(buf.len()))?;
        self.image.read().read(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.check(Op::Write, offset, parts.iter().map(|part| to_u64(part.len())).sum())?;
        let mut image = self.image.write();
        let mut at = offset;
        for part in parts {
            image.write(at, part)?;
            at += to_u64(part.len());
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Does nothing: a discarded range may keep its content, and tests should see that.
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn grow(&self, _: u64) -> Result<()> {
        let (device, size) = (self.name().to_owned(), self.size_bytes);
        Err(Error::CannotGrow { device, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::backends::MemoryDevice;

    #[test]
    fn copies_do_not_see_each_other() {
        let below = Arc::new(MemoryDevice::from_bytes(&[7; 10_000]).into_read_only());
        let mut first = Image::new(below);
        first.write(4_090, b"hello world").unwrap();
        let mut second = first.clone();
        second.write(4_094, b"!").unwrap();
        second.write(9_999, b"!").unwrap();
        let read = |image: &Image| {
            let mut bytes = vec![0; 10_000];
            image.read(0, &mut bytes).unwrap();
            bytes
        };
        let mut expected = vec![7; 10_000];
        expected[4_090..4_101].copy_from_slice(b"hello world");
        assert_eq!(read(&first), expected);
        (expected[4_094], expected[9_999]) = (b'!', b'!');
        assert_eq!(read(&second), expected);
    }

    #[test]
    fn a_device_refuses_what_is_outside() {
        let device = ImageDevice::new(Image::new(Arc::new(MemoryDevice::new(8192))));
        assert!(device.write_at(8190, &[b"abc"]).is_err() && device.read_at(8192, &mut [0]).is_err());
        device.write_at(8189, &[b"a", b"bc"]).unwrap();
        let mut found = [0; 4];
        device.image.read().read(8188, &mut found).unwrap();
        assert_eq!(&found, b"\0abc");
    }
}
