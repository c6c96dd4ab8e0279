//! Reads devices by logical address, through the chunks that map it, from the mirror that the caller names.
//!
//! Unlike the store's pool it uses whatever is readable: an invalid chunk is skipped, a missing device makes its
//! mirrors unreadable. Used by every pass, by repair and by rescue.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use blockdev::Device;
use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::verify::{self, Expect, Format};
use btrfs_disk::{DevId, Generation, Logical, Uuid};
use btrfs_pool::plan::{Part, plan};
use btrfs_pool::{Chunk, Purpose, parity};

use crate::sort::lock;

/// A present device of the file system.
#[derive(Debug)]
pub struct Disk {
    /// Its number.
    pub id: DevId,
    /// Its UUID, according to its superblock.
    pub uuid: Uuid,
    /// Bytes that the file system uses of it.
    pub total_bytes: u64,
    /// The device itself.
    pub device: Arc<dyn Device>,
}

/// Devices and chunks.
#[derive(Debug)]
pub struct Media {
    /// The present devices.
    pub disks: Vec<Disk>,
    /// Chunks by their first address.
    pub chunks: BTreeMap<u64, Chunk>,
    /// Sizes and checksum type.
    pub format: Format,
    /// No block may be newer.
    pub generation_max: Generation,
    /// Blocks of which some copy is bad.
    bad: Mutex<BTreeSet<u64>>,
}

impl Media {
    /// Devices without chunks.
    #[must_use]
    pub fn new(disks: Vec<Disk>, format: Format, generation: u64) -> Self {
        let generation_max = Generation(generation.saturating_add(1));
        Self { disks, chunks: BTreeMap::new(), format, generation_max, bad: Mutex::default() }
    }

    /// Bytes of a tree block, as a length in memory.
    #[must_use]
    pub fn node_bytes(&self) -> usize {
        usize_from(self.format.nodesize)
    }

    /// Bytes of a tree block.
    #[must_use]
    pub fn node_len(&self) -> u64 {
        u64::from(self.format.nodesize)
    }

    /// The chunk that has all of the range.
    #[must_use]
    pub fn chunk(&self, at: u64, len: u64) -> Option<&Chunk> {
        let (_, chunk) = self.chunks.range(..=at).next_back()?;
        chunk.contains(Logical(at), len).then_some(chunk)
    }

    /// Adds a chunk that overlaps no other.
    ///
    /// # Errors
    /// The range of the one that it overlaps.
    pub fn add_chunk(&mut self, chunk: Chunk) -> Result<(), Range<u64>> {
        if let Some((_, other)) = self.chunks.range(..chunk.end().0).next_back()
            && other.end() > chunk.start()
            && *other != chunk
        {
            return Err(other.start().0..other.end().0);
        }
        self.chunks.insert(chunk.start().0, chunk);
        Ok(())
    }

    /// Copies of the bytes at an address; 0 where no chunk has it.
    #[must_use]
    pub fn copies(&self, at: u64) -> u32 {
        self.chunk(at, 1).map_or(0, |chunk| chunk.profile().mirror_count())
    }

    /// The numbers under which [`Self::read_copy`] reads a range: its copies, and then the ways to compute it from
    /// parity.
    #[must_use]
    pub fn ways(&self, at: u64, len: usize) -> Vec<u32> {
        self.chunk(at, 1).map_or_else(Vec::new, |chunk| parity::ways(chunk, Logical(at), to_u64(len)))
    }

    /// Device and byte of a copy.
    #[must_use]
    pub fn place(&self, at: u64, mirror: u32) -> Option<(u64, u64)> {
        let parts = plan(self.chunk(at, 1)?, Logical(at), 1, Purpose::Read(mirror));
        parts.first().map(|part| (part.device.0, part.device_offset))
    }

    /// Fills `buf` from one copy, or in one of [`Self::ways`].
    ///
    /// # Errors
    /// The failure, as text.
    pub fn read_copy(&self, at: u64, buf: &mut [u8], mirror: u32) -> Result<(), String> {
        let len = to_u64(buf.len());
        let chunk = self.chunk(at, len).ok_or("an address in no chunk")?;
        parity::read(chunk, Logical(at), buf, mirror, &mut |part, buf| self.read_part(part, buf))
    }

    fn read_part(&self, part: &Part, buf: &mut [u8]) -> Result<(), String> {
        let disk = self.disks.iter().find(|disk| disk.id == part.device);
        let disk = disk.ok_or_else(|| format!("device {} is missing", part.device))?;
        disk.device.read_at(part.device_offset, buf).map_err(|error| error.to_string())
    }

    /// Notes that a copy of this block is bad, so that the next reader verifies it.
    pub fn distrust(&self, at: u64) {
        lock(&self.bad).insert(at);
    }

    /// Reads a block that a walk has read, from a good copy where there is one.
    #[must_use]
    pub fn read_block(&self, at: u64) -> Option<Vec<u8>> {
        let mut block = vec![0; self.node_bytes()];
        if !lock(&self.bad).contains(&at) {
            return self.read_copy(at, &mut block, 0).is_ok().then_some(block);
        }
        let mut readable = None;
        for mirror in self.ways(at, block.len()) {
            if self.read_copy(at, &mut block, mirror).is_err() || !self.has_right_checksum(&block) {
                continue;
            }
            if verify::block(&block, &Expect::at(&self.format, Logical(at), self.generation_max)).is_ok() {
                return Some(block);
            }
            readable = Some(block.clone());
        }
        readable
    }

    /// Whether the checksum of a block is that of its contents.
    #[must_use]
    pub fn has_right_checksum(&self, block: &[u8]) -> bool {
        verify::has_right_checksum(block, self.format.csum_type)
    }
}
