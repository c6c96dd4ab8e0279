//! Holds a transaction between its last change and its superblock on the device. Used by `commit` and `write_out`.

use btrfs_disk::Generation;
use btrfs_pool::FsSuper;

use crate::locks::{Mutex, Rank};
use crate::space::Pinned;
use crate::tree::Block;

/// A settled transaction: the blocks and superblock to write.
pub(super) struct SettledTxn {
    pub(super) generation: Generation,
    pub(super) blocks: Vec<Block>,
    pub(super) superblock: FsSuper,
    /// The superblock on the device, when it leads to a log.
    pub(super) before: Option<FsSuper>,
    /// Space that is freed when it is durable.
    pub(super) pinned: Pinned,
}

/// The transaction that settled and is not written: the host was full, or other handles were not to wait for it.
pub(crate) struct UnwrittenTxn(Mutex<Option<SettledTxn>>);

impl UnwrittenTxn {
    pub(crate) fn none() -> Self {
        Self(Mutex::new(Rank::Counters, None))
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.lock().is_none()
    }

    pub(super) fn keep(&self, settled: SettledTxn) {
        *self.0.lock() = Some(settled);
    }

    pub(super) fn take(&self) -> Option<SettledTxn> {
        self.0.lock().take()
    }
}
