//! The ranks of this crate's locks, outermost first; debug builds assert the order ([`host::locks`]).

pub(crate) use host::locks::Mutex;

host::ranks! {
    /// Position in the lock order.
    pub(crate) enum Rank {
        /// The decompressed cluster that was read last.
        Cluster = 0,
        /// The cache of blocks.
        Cache = 1,
        /// Failures that were logged.
        Logged = 2,
    }
    nests: []
}
