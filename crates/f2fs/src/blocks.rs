//! Reads and writes blocks of the device, with a cache of blocks of metadata and the writes in flight. `read_volume`,
//! `batch` and all of `change` read and write through it.

use std::collections::HashMap;
use std::sync::Arc;

use blockdev::{Device, Tag, Write};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr};

use crate::error::Result;
use crate::in_flight::{self, InFlight};
use crate::locks::{Mutex, Rank};

/// Blocks of one generation of the cache: 8 MiB. There are two generations.
const GENERATION_BLOCKS: usize = 2048;

/// Blocks of a device.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: Arc<dyn Device>,
    cache: Mutex<Cache>,
    in_flight: InFlight,
}

/// Consecutive blocks.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) at: BlockAddr,
    pub(crate) blocks: Vec<Arc<Block>>,
}

impl Run {
    /// The block behind it.
    pub(crate) fn end(&self) -> BlockAddr {
        self.at.plus(f2fs_disk::convert::u32_len(self.blocks.len()))
    }

    /// Adds a block to the last run if it follows that, or as another run.
    pub(crate) fn add(runs: &mut Vec<Self>, at: BlockAddr, block: Arc<Block>) {
        match runs.last_mut() {
            Some(last) if last.end() == at => last.blocks.push(block),
            _ => runs.push(Self { at, blocks: vec![block] }),
        }
    }

    /// Adds runs, the same way.
    pub(crate) fn append(runs: &mut Vec<Self>, more: Vec<Self>) {
        for mut run in more {
            match runs.last_mut() {
                Some(last) if last.end() == run.at => last.blocks.append(&mut run.blocks),
                _ => runs.push(run),
            }
        }
    }
}

/// Blocks read since the older generation was full, and that generation; other blocks are read again. A used block
/// moves to the younger one, so those used often stay.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<BlockAddr, Arc<Block>>,
    old: HashMap<BlockAddr, Arc<Block>>,
}

impl Cache {
    fn get(&mut self, at: BlockAddr) -> Option<Arc<Block>> {
        if let Some(block) = self.young.get(&at) {
            return Some(Arc::clone(block));
        }
        let block = self.old.remove(&at)?;
        self.put(at, &block);
        Some(block)
    }

    fn forget(&mut self, at: BlockAddr) {
        self.young.remove(&at);
        self.old.remove(&at);
    }

    fn put(&mut self, at: BlockAddr, block: &Arc<Block>) {
        if self.young.len() >= GENERATION_BLOCKS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(at, Arc::clone(block));
    }
}

impl Blocks {
    pub(crate) fn new(device: Arc<dyn Device>) -> Self {
        Self { device, cache: Mutex::new(Rank::Cache, Cache::default()), in_flight: InFlight::default() }
    }

    pub(crate) const fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    /// A block of metadata.
    pub(crate) fn get(&self, at: BlockAddr) -> Result<Arc<Block>> {
        if let Some(block) = self.cache.lock().get(at) {
            return Ok(block);
        }
        let block = match self.in_flight.get(at) {
            Some(block) => block,
            None => Arc::new(self.read(at)?),
        };
        self.put(at, &block);
        Ok(block)
    }

    /// True where [`Self::get`] needs no device.
    pub(crate) fn has(&self, at: BlockAddr) -> bool {
        self.cache.lock().get(at).is_some() || self.in_flight.get(at).is_some()
    }

    /// Puts a block of metadata into the cache, which the caller has read.
    pub(crate) fn put(&self, at: BlockAddr, block: &Arc<Block>) {
        self.cache.lock().put(at, block);
    }

    /// Reads a block without caching it.
    pub(crate) fn read(&self, at: BlockAddr) -> Result<Block> {
        let mut block = [0; BLOCK_SIZE];
        self.read_bytes(at.byte(), &mut block)?;
        Ok(block)
    }

    /// Writes consecutive blocks, without caching them.
    pub(crate) fn write(&self, at: BlockAddr, blocks: &[&[u8]]) -> Result<()> {
        self.in_flight.wait()?;
        self.forget(at, blocks.len());
        Ok(self.device.write_at(at.byte(), blocks)?)
    }

    /// As [`Self::write`], for several runs at a time.
    pub(crate) fn write_runs(&self, runs: &[Run]) -> Result<()> {
        self.in_flight.wait()?;
        runs.iter().for_each(|run| self.forget(run.at, run.blocks.len()));
        self.submit(runs)
    }

    /// Writes consecutive blocks of metadata, and caches them.
    pub(crate) fn write_metadata(&self, at: BlockAddr, blocks: &[Arc<Block>]) -> Result<()> {
        let parts: Vec<&[u8]> = blocks.iter().map(|block| block.as_slice()).collect();
        self.write(at, &parts)?;
        self.cached(at, blocks);
        Ok(())
    }

    /// Readers find the contents of a run from now on; the caller submits them later.
    pub(crate) fn add_in_flight(&self, run: &Run) {
        self.forget(run.at, run.blocks.len());
        self.in_flight.add(run.at, &run.blocks);
    }

    /// The same for a block of metadata.
    pub(crate) fn add_metadata_in_flight(&self, at: BlockAddr, block: &Arc<Block>) {
        let block = std::slice::from_ref(block);
        self.cached(at, block);
        self.in_flight.add(at, block);
    }

    /// Submits runs to the device without waiting for a batch in flight.
    pub(crate) fn submit(&self, runs: &[Run]) -> Result<()> {
        let parts: Vec<Vec<&[u8]>> =
            runs.iter().map(|run| run.blocks.iter().map(|block| block.as_slice()).collect()).collect();
        let writes = runs.iter().zip(&parts);
        let writes: Vec<Write<'_>> =
            writes.map(|(run, parts)| Write { offset: run.at.byte(), parts, tag: Tag::default() }).collect();
        match writes.as_slice() {
            [] => Ok(()),
            [one] => Ok(self.device.write_at(one.offset, one.parts)?),
            several => Ok(self.device.submit(several).into_iter().collect::<blockdev::Result<()>>()?),
        }
    }

    /// Makes durable what was submitted, without waiting for a batch in flight.
    pub(crate) fn flush_submitted(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    /// Makes all that was written durable.
    pub(crate) fn flush(&self) -> Result<()> {
        self.in_flight.wait()?;
        self.flush_submitted()
    }

    /// Discards a range.
    pub(crate) fn discard(&self, at: BlockAddr, count: u32) -> Result<()> {
        self.in_flight.wait()?;
        let block_bytes = f2fs_disk::convert::to_u64(BLOCK_SIZE);
        Ok(self.device.discard(at.byte(), u64::from(count).saturating_mul(block_bytes))?)
    }

    fn forget(&self, at: BlockAddr, count: usize) {
        let mut cache = self.cache.lock();
        let end = at.0.saturating_add(f2fs_disk::convert::u32_len(count));
        (at.0..end).for_each(|at| cache.forget(BlockAddr(at)));
    }

    fn cached(&self, at: BlockAddr, blocks: &[Arc<Block>]) {
        let mut cache = self.cache.lock();
        for (at, block) in (at.0..).zip(blocks) {
            cache.put(BlockAddr(at), block);
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    /// Reads bytes without caching them, as of file data.
    pub(crate) fn read_bytes(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        // First: a block that leaves the in-flight writes after this is read from the device.
        let in_flight = self.in_flight.within(offset, buf.len());
        if !in_flight::is_all(offset, buf.len(), &in_flight) {
            self.device.read_at(offset, buf)?;
        }
        in_flight::lay_over(buf, offset, &in_flight);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        let block = Arc::new([0; BLOCK_SIZE]);
        cache.put(BlockAddr(0), &block);
        for number in 1..20_000 {
            cache.put(BlockAddr(number), &block);
            assert!(cache.get(BlockAddr(0)).is_some(), "{number}");
        }
        assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION_BLOCKS);
        assert!(cache.get(BlockAddr(1)).is_none());
    }
}
