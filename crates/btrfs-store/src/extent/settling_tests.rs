//! The extent tree also counts its own blocks: applying its changes makes further ones, for another round. The rounds
//! have to end wherever the tree has just filled or emptied a block.

use std::sync::atomic::{AtomicU64, Ordering};

use btrfs_disk::{Generation, Logical, TreeId};
use parking_lot::Mutex;

use super::tests::{Fixture, NODESIZE};
use super::*;
use crate::Result;
use crate::tree::{Block, BlockView, Bytes, Edit, Host, Tree, layout};

/// Rounds that suffice on a tree of two levels.
const ROUNDS_MAX: u32 = 6;

/// Queues a change for each block that a tree takes or gives up.
struct Counting {
    queue: RefQueue,
    next: AtomicU64,
    generation: AtomicU64,
    /// The blocks of the tree, in memory only.
    blocks: Mutex<Vec<Block>>,
}

impl Counting {
    fn drop_block(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        let (at, level, owner) = (block.at, block.level, tree.id());
        // The empty leaf that the tree starts with has no item.
        if block.generation > Generation(1) {
            let _ = self.queue.push(RefChange::DropTree { at, level, owner, parent: None })?;
        }
        Ok(())
    }
}

impl Host for Counting {
    fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Relaxed))
    }
    fn owns(&self, block: &Bytes) -> bool {
        layout::generation(&block.data) == self.generation().0
    }
    fn alloc_block(&self, tree: &Tree, level: u8) -> Result<Logical> {
        let at = Logical((1 << 50) + self.next.fetch_add(NODESIZE.into(), Ordering::Relaxed));
        let _ = self.queue.push(RefChange::AddTree { at, level, owner: tree.id(), parent: None, new: true })?;
        Ok(at)
    }
    fn block_cowed(&self, tree: &Tree, old: &BlockView<'_>, _: &mut [u8]) -> Result<()> {
        self.drop_block(tree, old)
    }
    fn block_freed(&self, tree: &Tree, block: &BlockView<'_>) -> Result<()> {
        self.drop_block(tree, block)
    }
    fn block_dirtied(&self, block: &Block) {
        self.blocks.lock().push(block.clone());
    }
}

#[test]
fn rounds_end_at_every_number_of_items() {
    let fixture = Fixture::new(true);
    let host = Counting {
        queue: RefQueue::new(),
        next: AtomicU64::new(0),
        generation: AtomicU64::new(2),
        blocks: Mutex::default(),
    };
    let extent = |index: u64| Logical((1 << 20) + index * u64::from(NODESIZE));
    let settle = |what: &str| {
        let mut rounds = 0;
        loop {
            let heads = host.queue.take_all_sorted();
            if heads.is_empty() {
                host.generation.fetch_add(1, Ordering::Relaxed);
                return;
            }
            rounds += 1;
            assert!(rounds <= ROUNDS_MAX, "{what}: {} changes are left", heads.len());
            fixture.apply_with(Edit::new(&host), &heads).unwrap();
        }
    };
    let counts: Vec<u64> = (0..400).collect();
    for index in &counts {
        let (at, owner) = (extent(*index), TreeId::FS);
        let _ = host.queue.push(RefChange::AddTree { at, level: 0, owner, parent: None, new: true }).unwrap();
        settle(&format!("{} extents", index + 1));
    }
    for index in counts.iter().rev() {
        let (at, owner) = (extent(*index), TreeId::FS);
        let _ = host.queue.push(RefChange::DropTree { at, level: 0, owner, parent: None }).unwrap();
        settle(&format!("{index} extents are left"));
    }
}
