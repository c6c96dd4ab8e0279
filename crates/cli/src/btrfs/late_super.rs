//! A device that becomes a file system in its last moment.
//!
//! While a file system is being made, nothing on the device is worth keeping: a crash leaves
//! rubbish either way. What must not be left is a file system that looks whole and is not. So the superblocks that were
//! there are overwritten first, new ones are held back, and so are the flushes of the commits in between;
//! [`LateSuper::finish`] flushes everything, then writes the superblocks, then flushes those.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use spinney::blockdev::{Device, Kind, Result, Tag, tagged};
use spinney::btrfs::disk::superblock::{SUPERBLOCK_SIZE, mirror_offsets};

/// What its own writes are for.
const SUPERBLOCK: Tag = Tag { kind: Kind::Superblock, mirror: 0 };

/// Passes everything on but flushes and superblocks.
#[derive(Debug)]
pub(super) struct LateSuper<D> {
    device: D,
    /// Superblocks by their offset.
    held: RwLock<BTreeMap<u64, Vec<u8>>>,
}

impl<D: Device> LateSuper<D> {
    /// Wraps a device whose contents are given up: it has no superblock from here on.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(super) fn new(device: D) -> Result<Self> {
        let nothing = [0; SUPERBLOCK_SIZE];
        for offset in mirror_offsets(device.size_bytes()) {
            tagged(SUPERBLOCK, || device.write_at(offset, &[&nothing]))?;
        }
        device.flush()?;
        Ok(Self { device, held: RwLock::default() })
    }

    /// Makes everything durable that was written, the superblocks last.
    pub(super) fn finish(&self) -> Result<()> {
        self.device.flush()?;
        for (offset, bytes) in std::mem::take(&mut *self.held.write()) {
            tagged(SUPERBLOCK, || self.device.write_at(offset, &[&bytes]))?;
        }
        self.device.flush()
    }
}

impl<D: Device> Device for LateSuper<D> {
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
        match self.held.read().get(&offset) {
            Some(bytes) if bytes.len() == buf.len() => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            _ => self.device.read_at(offset, buf),
        }
    }
    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        self.device.read_parts_at(offset, parts)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len == SUPERBLOCK_SIZE && mirror_offsets(self.size_bytes()).any(|held| held == offset) {
            self.held.write().insert(offset, parts.concat());
            return Ok(());
        }
        self.device.write_at(offset, parts)
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
