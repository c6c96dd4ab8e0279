//! Reads the blocks of a volume, with a cache for tables and summaries. All passes read through it; `run` makes it.

use std::collections::HashMap;
use std::sync::Arc;

use blockdev::Device;
use checking::Watch;
use f2fs_disk::checkpoint::Checkpoint;
use f2fs_disk::convert::to_u64;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::superblock::Superblock;
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Geometry, Nid};

/// Blocks of one generation of the cache: 8 MiB. There are two generations.
const GENERATION_BLOCKS: usize = 2048;

/// A device.
pub(crate) struct Media<'a> {
    device: &'a dyn Device,
    watch: &'a dyn Watch,
    bytes: u64,
    young: HashMap<BlockAddr, Arc<Block>>,
    old: HashMap<BlockAddr, Arc<Block>>,
}

impl<'a> Media<'a> {
    pub(crate) fn new(device: &'a dyn Device, watch: &'a dyn Watch) -> Self {
        Self { device, watch, bytes: 0, young: HashMap::new(), old: HashMap::new() }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    /// Bytes that were read so far.
    pub(crate) const fn bytes_read(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn read_bytes(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), blockdev::Error> {
        self.device.read_at(offset, buf)?;
        self.bytes = self.bytes.saturating_add(to_u64(buf.len()));
        self.watch.add_bytes(to_u64(buf.len()));
        Ok(())
    }

    /// Reads a block without caching it.
    pub(crate) fn read(&mut self, at: BlockAddr) -> Result<Block, blockdev::Error> {
        let mut block = [0; BLOCK_SIZE];
        self.read_bytes(at.byte(), &mut block)?;
        Ok(block)
    }

    /// Reads a block through the cache.
    pub(crate) fn get(&mut self, at: BlockAddr) -> Result<Arc<Block>, blockdev::Error> {
        if let Some(block) = self.young.get(&at) {
            return Ok(Arc::clone(block));
        }
        let block = match self.old.remove(&at) {
            Some(block) => block,
            None => Arc::new(self.read(at)?),
        };
        if self.young.len() >= GENERATION_BLOCKS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(at, Arc::clone(&block));
        Ok(block)
    }

    pub(crate) fn add_inodes(&self, count: u64) {
        self.watch.add_inodes(count);
    }
}

/// A volume whose superblock and checkpoint were verified.
pub(crate) struct Volume<'a> {
    pub(crate) media: Media<'a>,
    pub(crate) superblock: Superblock,
    pub(crate) checkpoint: Checkpoint,
    /// Entries that replace those of NAT blocks.
    pub(crate) nat_journal: HashMap<Nid, NatEntry>,
}

impl Volume<'_> {
    pub(crate) const fn geometry(&self) -> &Geometry {
        self.superblock.geometry()
    }

    /// The entry of a node; an unreadable one counts as empty, and was reported by the reader of the table.
    pub(crate) fn nat_entry(&mut self, nid: Nid) -> NatEntry {
        if let Some(entry) = self.nat_journal.get(&nid) {
            return *entry;
        }
        if nid.0 >= self.geometry().nid_count {
            return NatEntry::default();
        }
        let (at, index) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        let block = self.media.get(at);
        block.ok().and_then(|block| nat::entry(&block, index).ok()).unwrap_or_default()
    }

    /// Segments of the main area.
    pub(crate) const fn segment_count(&self) -> u32 {
        self.geometry().main_blocks / f2fs_disk::SEGMENT_BLOCKS
    }
}
