//! Reads tree blocks from the pool, and verifies each. The tree cache reads through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::verify::{self, Format};
use btrfs_disk::{At, Corrupt, Detail, Generation, Logical, TreeId};

use crate::Result;
use crate::tree::{BlockSource, ReadExpect};
use btrfs_pool::{Expect, Pool};

/// The pool as a source of tree blocks.
#[derive(Debug)]
pub(crate) struct BlockReader {
    pool: Arc<Pool>,
    pub(crate) format: Format,
    /// The running generation: nothing on the device is newer, and only log blocks are of it.
    generation_max: AtomicU64,
}

impl BlockReader {
    pub(crate) fn new(pool: Arc<Pool>, format: Format, running: Generation) -> Self {
        Self { pool, format, generation_max: AtomicU64::new(running.0) }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn set_running(&self, running: Generation) {
        self.generation_max.store(running.0, Ordering::Relaxed);
    }

    /// Reads a committed block by its place and level only.
    ///
    /// # Errors
    /// When no copy is a valid block of that level.
    pub(crate) fn read_any(&self, at: Logical, level: u8) -> Result<Box<[u8]>> {
        let running = Generation(self.generation_max.load(Ordering::Relaxed));
        let wanted = verify::Expect { level: Some(level), ..verify::Expect::at(&self.format, at, running) };
        let mut data = vec![0; self.pool.node_bytes()].into_boxed_slice();
        self.pool.read(at, &mut data, Expect::Block(&|bytes| verify::block(bytes, &wanted)))?;
        Ok(data)
    }

    /// True for a valid block of these properties.
    pub(crate) fn is_valid(&self, bytes: &[u8], expect: &ReadExpect) -> bool {
        verify::block(bytes, &self.wanted(expect)).is_ok()
    }

    /// The check of a block that is not of the running transaction.
    fn wanted(&self, expect: &ReadExpect) -> verify::Expect<'_> {
        let running = Generation(self.generation_max.load(Ordering::Relaxed));
        verify::Expect {
            level: Some(expect.level),
            owner: expect.owner,
            generation: Some(expect.generation),
            first_key: expect.first_key,
            ..verify::Expect::at(&self.format, expect.at, running)
        }
    }

    /// The check before a write, for a block first written by `written` and written again by `generation`.
    pub(crate) fn expect_for_write(
        &self,
        at: Logical,
        generation: Generation,
        written: Generation,
    ) -> verify::Expect<'_> {
        verify::Expect { generation: Some(written), ..verify::Expect::at(&self.format, at, generation) }
    }
}

impl BlockSource for BlockReader {
    fn read_block(&self, expect: &ReadExpect) -> Result<Box<[u8]>> {
        let running = Generation(self.generation_max.load(Ordering::Relaxed));
        if expect.generation >= running && expect.owner != Some(TreeId::TREE_LOG) {
            // Blocks of the running transaction are in memory until they are written.
            let (expected, found) = (Detail::AtMost(running.0.saturating_sub(1)), Detail::Number(expect.generation.0));
            return Err(Corrupt::new("tree block generation", expected, found).at(At::Block(expect.at)).into());
        }
        let wanted = self.wanted(expect);
        let mut data = vec![0; self.pool.node_bytes()].into_boxed_slice();
        self.pool.read(expect.at, &mut data, Expect::Block(&|bytes| verify::block(bytes, &wanted)))?;
        Ok(data)
    }
}
