//! Defines the options of opening a store. The crate `btrfs` passes them to `Store::open`.

use btrfs_disk::Generation;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::{Mode, TooShort};

use crate::Env;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// No byte is written, not even a repair.
    pub read_only: bool,
    /// Bound on idle tree blocks kept in memory, bytes.
    pub cache_bytes: usize,
    /// Threads for checksums; 0: as many as processors.
    pub worker_count: usize,
    /// Bytes of changed tree blocks after which a reservation commits.
    pub dirty_bytes_max: u64,
    /// Open the state that this transaction committed instead of the last one (read-only): as long as the superblock
    /// lists it, and as its blocks were not written over.
    pub generation: Option<Generation>,
    /// If the last commit cannot be opened, open the newest backup root of the superblock that can (read-only).
    pub uses_backup_roots: bool,
    /// Take this copy of the superblock (0: the primary), and no other. The first commit of a
    /// writable store then puts it in place of the others.
    pub superblock: Option<usize>,
    /// Which devices have to be there.
    pub mode: Mode,
    /// How a volume is opened for writing when its device is shorter than the superblock says.
    pub too_short: TooShort,
    /// Each commit sends discards for the space it freed.
    pub discard: bool,
    /// Block groups with parity, which are only read, do not keep the store from being written: they can be emptied,
    /// and new groups have these profiles. Otherwise they do.
    pub leaves_parity: Option<NewProfiles>,
    /// Clock and randomness.
    pub env: Env,
}

/// The profile of new block groups of each kind, without the bit of the kind; `None` where a kind keeps what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewProfiles {
    /// Of data.
    pub data: Option<BlockGroupFlags>,
    /// Of tree blocks.
    pub metadata: Option<BlockGroupFlags>,
    /// Of the chunk tree.
    pub system: Option<BlockGroupFlags>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            cache_bytes: 64 << 20,
            worker_count: 0,
            dirty_bytes_max: 64 << 20,
            generation: None,
            uses_backup_roots: false,
            superblock: None,
            mode: Mode::Strict,
            too_short: TooShort::Refused,
            discard: false,
            leaves_parity: None,
            env: Env::system(),
        }
    }
}
