//! Wraps a device so that its superblocks are written last, for `mkfs` of btrfs.
//!
//! A crash while a file system is being made must not leave one that looks whole and is not. So the old superblocks are
//! overwritten first; new superblocks, and the flushes of the commits in between, are held back. [`LateSuper::finish`]
//! flushes everything, writes the superblocks, and flushes again.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use spinney::blockdev::{Device, Kind, Result, Tag, tagged};
use spinney::btrfs::disk::superblock::{SUPERBLOCK_SIZE, mirror_offsets};

/// Tag of its own writes.
const SUPERBLOCK: Tag = Tag { kind: Kind::Superblock, mirror: 0 };

/// Passes all requests on except flushes and writes of superblocks.
#[derive(Debug)]
pub(super) struct LateSuper<D> {
    device: D,
    /// Superblocks by their offset.
    held: RwLock<BTreeMap<u64, Vec<u8>>>,
}

impl<D: Device> LateSuper<D> {
    /// Wraps a device and overwrites its superblocks, the first one last: where that is broken off, the old file system
    /// is found by its first superblock and is whole, and once that one is gone no copy leads to it any more.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub(super) fn new(device: D) -> Result<Self> {
        let nothing = [0; SUPERBLOCK_SIZE];
        for offset in mirror_offsets(device.size_bytes()).rev() {
            tagged(SUPERBLOCK, || device.write_at(offset, &[&nothing]))?;
        }
        device.flush()?;
        Ok(Self { device, held: RwLock::default() })
    }

    /// Makes all writes durable, the superblocks last.
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
