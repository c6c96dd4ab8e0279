//! Wraps a device so that the superblocks of f2fs are written last, for `mkfs -t f2fs`.
//!
//! A crash while a file system is being made must not leave one that looks whole and is not. The first two blocks have
//! the superblocks and nothing else: they are overwritten first, and then kept in memory until [`LateSuper::finish`].

use std::sync::Arc;

use parking_lot::RwLock;
use spinney::blockdev::{Device, Kind, Result, Tag, tagged};

/// Bytes of the two blocks.
const HEAD: usize = 8192;
/// The same, as an offset.
const HEAD_END: u64 = 8192;
/// Tag of its own writes.
const SUPERBLOCK: Tag = Tag { kind: Kind::Superblock, mirror: 0 };

/// Passes all requests on except for those of the first two blocks.
#[derive(Debug)]
pub(super) struct LateSuper {
    device: Arc<dyn Device>,
    head: RwLock<[u8; HEAD]>,
}

impl LateSuper {
    /// Wraps a device and overwrites its first two blocks.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(super) fn new(device: Arc<dyn Device>) -> Result<Self> {
        let nothing = [0; HEAD];
        tagged(SUPERBLOCK, || device.write_at(0, &[&nothing]))?;
        device.flush()?;
        Ok(Self { device, head: RwLock::new(nothing) })
    }

    /// Makes all writes durable, the superblocks last.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(super) fn finish(&self) -> Result<()> {
        self.device.flush()?;
        let head = *self.head.read();
        tagged(SUPERBLOCK, || self.device.write_at(0, &[&head]))?;
        self.device.flush()
    }
}

/// The place of an offset in the first two blocks.
fn in_head(offset: u64) -> Option<usize> {
    usize::try_from(offset).ok().filter(|at| *at < HEAD)
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
        let Some(at) = in_head(offset) else { return self.device.read_at(offset, buf) };
        let (own, rest) = buf.split_at_mut(buf.len().min(HEAD - at));
        own.copy_from_slice(&self.head.read()[at..at + own.len()]);
        if rest.is_empty() { Ok(()) } else { self.device.read_at(HEAD_END, rest) }
    }
    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        if in_head(offset).is_none() {
            return self.device.read_parts_at(offset, parts);
        }
        let mut whole = vec![0; parts.iter().map(|part| part.len()).sum()];
        self.read_at(offset, &mut whole)?;
        let mut left = whole.as_slice();
        for part in parts {
            let (own, rest) = left.split_at(part.len());
            part.copy_from_slice(own);
            left = rest;
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let Some(at) = in_head(offset) else { return self.device.write_at(offset, parts) };
        let whole = parts.concat();
        let (own, rest) = whole.split_at(whole.len().min(HEAD - at));
        self.head.write()[at..at + own.len()].copy_from_slice(own);
        if rest.is_empty() { Ok(()) } else { self.device.write_at(HEAD_END, &[rest]) }
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
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
