//! The ranks of this crate's locks, outermost first; debug builds assert the order ([`host::locks`]).

pub(crate) use host::locks::{Condvar, Mutex, RwLock};

host::ranks! {
    /// Position in the lock order.
    pub(crate) enum Rank {
        /// When the volume was written last.
        Due = 0,
        /// All that is known of the volume.
        Store = 1,
        /// Fsyncs that wait for who has the volume.
        Syncs = 2,
        /// Nodes that servers refer to.
        Refs = 3,
        /// The decompressed cluster that was read last.
        Cluster = 4,
        /// Writes in flight.
        InFlight = 5,
        /// The cache of blocks.
        Cache = 6,
        /// Failures that were logged, and who was told of what stopped writing.
        Logged = 7,
    }
    nests: []
}
