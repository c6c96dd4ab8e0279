//! Lists the ranks of the store's locks, outermost first: the whole order in which they may nest. All modules that make
//! a lock name its rank here.
//!
//! Levels between 0 and 20, between 30 and 40, and 48 and 49, are for the crate above, whose locks are taken outside
//! the store's or between them. Tree blocks nest among themselves: parent before child, left before right, which the
//! tree code keeps. Levels 46 and 47 are those of [`btrfs_pool::locks`]. How the order is asserted: [`host::locks`].

pub use host::locks::{
    ArcReadGuard, ArcRwLock, ArcWriteGuard, Condvar, Guard, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard,
};

host::ranks! {
    /// Position in the lock order, outermost first.
    pub enum Rank {
        /// Held by a commit, from closing the gate to its superblock on the device.
        CommitGate = 20,
        /// Held by the thread that allocates a chunk, which joins the running transaction meanwhile.
        ChunkAlloc = 21,
        /// The superblock on the device: a commit holds it while it writes its own.
        LogSuper = 22,
        /// Waiting threads: the state of the gate, and the group of a log's sync.
        Waiting = 23,
        /// Held by log writers (shared) and by the sync that copies their blocks (exclusive).
        LogGate = 24,
        /// A tree block, or a tree's pointer to its root block: the only rank of which a thread may hold several. A
        /// pointer is locked before the blocks of its tree, and also while blocks of another tree are held.
        TreeBlock = 30,
        /// Pending work of the running transaction: reference changes, staged items, dirty blocks.
        RefQueue = 40,
        /// The list of block groups.
        Groups = 41,
        /// One block group's free space.
        Group = 42,
        /// Small tables that are looked up and left: open trees, root items, log trees, devices' space, notes.
        Counters = 43,
        /// The cache of tree blocks.
        Cache = 44,
        /// The queue of removals that wait for space, and the counts of quotas. Reservations are dropped under any lock
        /// above.
        SpaceQueue = 45,
        /// The superblock as it was last committed; as deep as the devices.
        Superblock = 47,
        /// A sum under a lock, only where benchmarks switch to that ([`crate::ablation::Sums`]).
        Sum = 50,
    }
    nests: [TreeBlock]
}

pub use btrfs_pool::locks::enter_worker_job;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order: Cache wanted while WorkerJob is held")]
    fn a_worker_job_takes_no_lock_but_those_of_devices() {
        let (chunks, cache) = (RwLock::new(btrfs_pool::locks::Rank::Device, ()), RwLock::new(Rank::Cache, ()));
        let _job = enter_worker_job();
        drop(chunks.read());
        let _cache = cache.read();
    }
}
