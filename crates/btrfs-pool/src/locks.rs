//! Ranks the pool's locks, the innermost of btrfs: see `btrfs_store::locks` for the whole order. `chunk_map` and
//! `workers` use them.

pub use host::locks::{Guard, Mutex, RwLock};

host::ranks! {
    /// Position in the lock order, outermost first.
    pub enum Rank {
        /// A job of the worker pool. The thread that waits for it may hold any lock of the store, so the job takes none
        /// of them. See [`enter_worker_job`].
        WorkerJob = 46,
        /// Shared by threads that write to devices, exclusive for the thread that has another device take part in
        /// writes, or stops that. Nothing else is waited for under it than the devices, so worker jobs may take it.
        Writes = 47,
        /// Chunk map and devices. A thread never blocks while it holds one, so worker jobs may do I/O.
        Device = 48,
    }
    nests: []
}

/// Until the guard is dropped, this thread takes no store lock except those of devices; debug builds assert it.
#[inline]
pub fn enter_worker_job() -> Guard<()> {
    host::locks::hold(Rank::WorkerJob)
}
