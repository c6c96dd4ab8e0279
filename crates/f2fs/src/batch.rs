//! Writes the blocks of fsyncs: submits placed blocks, flushes, then writes the commit block, without the volume's
//! lock. Called by `change/fsync`.
//!
//! ```text
//!    with the volume's lock: blocks are allocated, and readers find them (`in_flight`) -> the lock is released
//!      -> submit -> barrier (flush) -> write the commit block -> barrier -> finished
//! ```
//!
//! One batch is written at a time; every other write or flush waits for its end (`InFlight::wait`). So the device sees
//! all writes and flushes in the order in which the volume was changed, as if the lock had been held all the while:
//! other threads change the volume in memory meanwhile.
//!
//! Failure: the caller gets the error, and so does every later write.

use std::sync::Arc;

use f2fs_disk::{Block, BlockAddr};

use crate::blocks::{Blocks, Run};
use crate::error::{Error, Result};

/// The writes of a batch, in their order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) runs: Vec<Run>,
    /// The commit block: written over one of these blocks once all are on the disk, it makes them count.
    pub(crate) commit_block: Option<(BlockAddr, Arc<Block>)>,
    /// Whether the device is flushed behind the runs, and behind the commit block.
    pub(crate) has_barriers: bool,
}

/// Guard from block allocation to completion; dropped without [`BatchGuard::end`] it poisons the volume, because a
/// checkpoint would lead to blocks that were never written.
#[derive(Debug)]
#[must_use = "it guards the allocation that follows"]
pub(crate) struct BatchGuard(Option<Arc<Blocks>>);

impl BatchGuard {
    pub(crate) fn new(blocks: &Arc<Blocks>) -> Self {
        Self(Some(Arc::clone(blocks)))
    }

    /// The blocks are allocated. The caller holds the volume's lock until this returns; no other batch is written.
    pub(crate) fn begin(self, batch: Batch) -> PendingBatch {
        if let Some(blocks) = &self.0 {
            blocks.in_flight().begin();
        }
        PendingBatch { guard: self, batch }
    }

    /// The blocks are on the device, or the caller reports why not.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for BatchGuard {
    fn drop(&mut self) {
        if let Some(blocks) = &self.0 {
            blocks.in_flight().finish(&Err(Error::LostBatch));
        }
    }
}

/// A batch that other writers wait for.
#[derive(Debug)]
#[must_use = "other writers wait for it"]
pub(crate) struct PendingBatch {
    guard: BatchGuard,
    batch: Batch,
}

impl PendingBatch {
    /// Writes all of it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write(self) -> Result<()> {
        let Self { guard, batch } = self;
        let Some(blocks) = &guard.0 else { return Ok(()) };
        let written = batch.write(blocks);
        blocks.in_flight().finish(&written);
        guard.end();
        written
    }
}

impl Batch {
    fn write(&self, blocks: &Blocks) -> Result<()> {
        blocks.submit(&self.runs)?;
        if let Some((at, block)) = &self.commit_block {
            self.barrier(blocks)?;
            blocks.submit(&[Run { at: *at, blocks: vec![Arc::clone(block)] }])?;
        }
        self.barrier(blocks)
    }

    fn barrier(&self, blocks: &Blocks) -> Result<()> {
        if self.has_barriers { blocks.flush_submitted() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::backends::MemoryDevice;
    use f2fs_disk::BLOCK_SIZE;

    fn blocks() -> Arc<Blocks> {
        Arc::new(Blocks::new(Arc::new(MemoryDevice::new(1 << 20))))
    }

    fn batch() -> Batch {
        let run = Run { at: BlockAddr(3), blocks: vec![Arc::new([7; BLOCK_SIZE])] };
        Batch { runs: vec![run], commit_block: None, has_barriers: true }
    }

    #[test]
    fn a_batch_dropped_before_its_end_refuses_later_writes() {
        let placed = blocks();
        BatchGuard::new(&placed).end();
        assert!(placed.flush().is_ok());
        drop(BatchGuard::new(&placed));
        assert!(placed.flush().is_err() && placed.write(BlockAddr(1), &[&[0; BLOCK_SIZE]]).is_err());

        let sent = blocks();
        BatchGuard::new(&sent).begin(batch()).write().unwrap();
        assert!(sent.flush().is_ok() && sent.read(BlockAddr(3)).unwrap() == [7; BLOCK_SIZE]);
        drop(BatchGuard::new(&sent).begin(batch()));
        assert!(sent.flush().is_err(), "no writer waits for ever, and none goes on");
    }
}
