//! Locks that serialize changes of one node.

use parking_lot::{Mutex, MutexGuard};
use vfs::NodeId;

/// Number of locks; nodes share them.
const LOCK_COUNT: usize = 64;
/// Multiplier of Fibonacci hashing (2^64 divided by the golden ratio): spreads adjacent node numbers over the locks.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A fixed number of locks; each node hashes to one.
pub(super) struct Order {
    locks: [Mutex<()>; LOCK_COUNT],
}

impl Default for Order {
    fn default() -> Self {
        Self { locks: [const { Mutex::new(()) }; LOCK_COUNT] }
    }
}

impl Order {
    /// Locks one node.
    pub(super) fn lock(&self, node: NodeId) -> MutexGuard<'_, ()> {
        self.locks[index(node)].lock()
    }

    /// Locks two nodes, which may be the same. Takes the locks in order of their index, so that two renames cannot
    /// deadlock.
    pub(super) fn lock_two(&self, one: NodeId, other: NodeId) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (index(one), index(other));
        let first = self.locks[one.min(other)].lock();
        (first, (one != other).then(|| self.locks[one.max(other)].lock()))
    }
}

fn index(node: NodeId) -> usize {
    let hash = node.0.wrapping_mul(SPREAD) >> 58;
    usize::try_from(hash).unwrap_or_default() % LOCK_COUNT
}
