//! Lists the ranks of this crate's locks, outermost first; debug builds assert the order ([`host::locks`]). All modules
//! that make a lock name its rank here.

pub(crate) use host::locks::{Condvar, Mutex, ReadGuard, RwLock};

host::ranks! {
    /// Position in the lock order.
    pub(crate) enum Rank {
        /// The time of the last periodic commit.
        Due = 0,
        /// A volume that is open for writing.
        Volume = 1,
        /// Fsyncs that wait for the thread that leads them.
        Syncs = 2,
        /// Nodes that servers refer to.
        Refs = 3,
        /// The decompressed cluster that was read last.
        Cluster = 4,
        /// Writes in flight.
        InFlight = 5,
        /// The cache of blocks.
        Cache = 6,
        /// Logged failures, and openings that were told why writing ended.
        Logged = 7,
    }
    nests: []
}
