//! Writes a commit to the devices: blocks, flush, superblock, flush, its mirrors. Called by `commit`; `log/sync` writes
//! its blocks with it.

use btrfs_disk::verify;
use btrfs_disk::{Generation, Logical};
use btrfs_pool::FsSuper;

use crate::Result;
use crate::ablation::{Mutation, mutated};
use crate::tree::{Block, prepare_for_write};

use super::engine::Engine;
use super::settled_txn::SettledTxn;

/// Blocks that one worker seals and writes in one go.
const BATCH_BLOCKS: usize = 128;
/// Batches that are copied out of the cache at a time: the memory this takes is
/// `WAVE_BATCHES * BATCH_BLOCKS` blocks.
const WAVE_BATCHES: usize = 8;

/// Copies of consecutive blocks, so that the originals can be read and copied while these are written.
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The blocks' addresses, and the generations that wrote them first: the running one, but for moved blocks.
    places: Vec<(Logical, Generation)>,
}

impl Engine {
    /// Writes a settled transaction, in the order that a crash at any point allows: blocks are on the device before the
    /// superblock that points to them. `on_device` is the superblock that it replaces.
    pub(super) fn write_out(&self, settled: &SettledTxn, on_device: &FsSuper) -> Result<()> {
        for wave in settled.blocks.chunks(BATCH_BLOCKS * WAVE_BATCHES) {
            let mut batches: Vec<Batch> = wave.chunks(BATCH_BLOCKS).map(|blocks| self.copy(blocks)).collect();
            let write = |batch| self.write_batch(batch, settled.generation);
            let written = self.pool().workers().map(batches.iter_mut().collect(), write);
            batches.into_iter().for_each(|batch| self.end(batch));
            written.into_iter().collect::<Result<()>>()?;
        }
        if let Some(before) = settled.before.as_ref().filter(|_| !mutated(Mutation::MirrorsWithoutLog)) {
            // Syncs of the log write the primary superblock alone. If writing it below tears it, its mirrors have to
            // replace it, and lead to the log.
            self.write_mirrors(before)?;
        } else if settled.superblock.fields().total_bytes > on_device.fields().total_bytes {
            // Where the device was too short for a mirror before, other data may lie, or an old mirror.
            self.write_mirrors(on_device)?;
        } else {
            self.renew_mirrors(on_device)?;
        }
        self.pool().flush()?;
        Ok(self.pool().write_superblock(&settled.superblock)?)
    }

    /// Copies blocks, to be written and given to [`Self::end`].
    pub(crate) fn copy(&self, blocks: &[Block]) -> Batch {
        let nodesize = self.pool().node_bytes();
        let mut bytes = self.buffers.take(blocks.len() * nodesize, BATCH_BLOCKS * nodesize);
        let mut places = Vec::with_capacity(blocks.len());
        for block in blocks {
            let locked = block.read_own();
            bytes.extend_from_slice(&locked.data);
            places.push((locked.at, block.generation()));
        }
        Batch { bytes, places }
    }

    /// Keeps the memory of a batch for the next one.
    pub(crate) fn end(&self, batch: Batch) {
        self.buffers.give_back(batch.bytes);
    }

    pub(crate) fn write_batch(&self, batch: &mut Batch, generation: Generation) -> Result<()> {
        let nodesize = self.pool().node_bytes();
        for (bytes, (at, written)) in batch.bytes.chunks_mut(nodesize).zip(&batch.places) {
            // Zero unused bytes, seal, and check the block as a reader would.
            prepare_for_write(bytes);
            verify::seal(bytes, self.pool().csum_type());
            verify::content(bytes, &self.reader.expect_for_write(*at, generation, *written))?;
        }
        let blocks = batch.places.iter().map(|(at, _)| *at).zip(batch.bytes.chunks(nodesize));
        Ok(self.pool().write_blocks(blocks)?)
    }
}
