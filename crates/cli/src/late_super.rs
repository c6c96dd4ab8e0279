//! Wraps a device so that its superblocks are written last, for `mkfs`.
//!
//! A crash while a file system is being made must not leave one that looks whole and is not. So the old superblocks are
//! overwritten first; new ones, and the flushes of the commits in between, are held back. [`LateSuper::finish`] flushes
//! everything, writes the superblocks, and flushes again.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use spinney::blockdev::{Device, Kind, Result, Tag, tagged};

/// Tag of its own writes.
const SUPERBLOCK: Tag = Tag { kind: Kind::Superblock, mirror: 0 };

/// Passes all requests on except flushes and what concerns the places of superblocks.
#[derive(Debug)]
pub(crate) struct LateSuper {
    device: Arc<dyn Device>,
    /// The contents of these places, by their offset.
    held: RwLock<BTreeMap<u64, Vec<u8>>>,
    /// First byte and end of each, ascending.
    places: Vec<(u64, u64)>,
}

impl LateSuper {
    /// Wraps a device and overwrites `len` bytes at each of the places, which ascend, the first one last: where that is
    /// broken off, the old file system is found by its first superblock and is whole, and once that one is gone no copy
    /// leads to it any more.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(crate) fn new(device: Arc<dyn Device>, offsets: &[u64], len: usize) -> Result<Self> {
        let nothing = vec![0; len];
        for offset in offsets.iter().rev() {
            tagged(SUPERBLOCK, || device.write_at(*offset, &[&nothing]))?;
        }
        device.flush()?;
        let held = offsets.iter().map(|offset| (*offset, nothing.clone())).collect();
        let end = |offset: u64| offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        let places = offsets.iter().map(|offset| (*offset, end(*offset))).collect();
        Ok(Self { device, held: RwLock::new(held), places })
    }

    /// Makes all writes durable, the superblocks last.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(crate) fn finish(&self) -> Result<()> {
        self.device.flush()?;
        for (offset, bytes) in &*self.held.read() {
            tagged(SUPERBLOCK, || self.device.write_at(*offset, &[bytes]))?;
        }
        self.device.flush()
    }

    /// How much of a request from `at` on is of one kind: the bytes, and the place that they are in.
    fn piece(&self, at: u64, len: usize) -> (usize, Option<u64>) {
        let Some((start, end)) = self.places.iter().find(|(_, end)| *end > at) else { return (len, None) };
        let (until, place) = if *start <= at { (*end, Some(*start)) } else { (*start, None) };
        (usize::try_from(until - at).map_or(len, |most| len.min(most)), place)
    }

    /// True where a request concerns no superblock.
    fn passes(&self, offset: u64, len: usize) -> bool {
        self.piece(offset, len) == (len, None)
    }
}

/// The place of a byte in the contents that begin at `start`.
fn index(at: u64, start: u64) -> usize {
    usize::try_from(at - start).unwrap_or(usize::MAX)
}

fn after(at: u64, len: usize) -> u64 {
    at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX))
}

impl Device for LateSuper {
    fn name(&self) -> &str {
        self.device.name()
    }
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut left) = (offset, buf);
        while !left.is_empty() {
            let (len, place) = self.piece(at, left.len());
            let (own, rest) = left.split_at_mut(len);
            match place {
                Some(start) => own.copy_from_slice(&self.held.read()[&start][index(at, start)..][..len]),
                None => self.device.read_at(at, own)?,
            }
            (at, left) = (after(at, len), rest);
        }
        Ok(())
    }
    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        if self.passes(offset, parts.iter().map(|part| part.len()).sum()) {
            return self.device.read_parts_at(offset, parts);
        }
        let mut at = offset;
        for part in parts {
            self.read_at(at, part)?;
            at = after(at, part.len());
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        if self.passes(offset, parts.iter().map(|part| part.len()).sum()) {
            return self.device.write_at(offset, parts);
        }
        let whole = parts.concat();
        let (mut at, mut left) = (offset, whole.as_slice());
        while !left.is_empty() {
            let (len, place) = self.piece(at, left.len());
            let (own, rest) = left.split_at(len);
            match place {
                Some(start) => {
                    let mut held = self.held.write();
                    held.entry(start).and_modify(|bytes| bytes[index(at, start)..][..len].copy_from_slice(own));
                }
                None => self.device.write_at(at, &[own])?,
            }
            (at, left) = (after(at, len), rest);
        }
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn check_room(&self, offset: u64, len: u64, spare: u64) -> Result<()> {
        self.device.check_room(offset, len, spare)
    }
    fn grow(&self, size_bytes: u64) -> Result<()> {
        self.device.grow(size_bytes)
    }
    fn shrink(&self, size_bytes: u64) -> Result<()> {
        self.device.shrink(size_bytes)
    }
}
