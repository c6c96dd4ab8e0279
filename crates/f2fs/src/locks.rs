//! The ranks of this crate's locks, outermost first; debug builds assert the order ([`host::locks`]).

pub(crate) use host::locks::{Mutex, RwLock};

host::ranks! {
    /// Position in the lock order.
    pub(crate) enum Rank {
        /// When the volume was written last.
        Due = 0,
        /// All that is known of the volume.
        Store = 1,
        /// Nodes that servers refer to.
        Refs = 2,
        /// The decompressed cluster that was read last.
        Cluster = 3,
        /// The cache of blocks.
        Cache = 4,
        /// Failures that were logged, and who was told of what stopped writing.
        Logged = 5,
    }
    nests: []
}
