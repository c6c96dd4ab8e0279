//! A transaction between its last change and its superblock on the device.

use btrfs_disk::Generation;
use btrfs_pool::FsSuper;

use crate::locks::{Mutex, Rank};
use crate::space::Pinned;
use crate::tree::Block;

/// A settled transaction: what is to be written.
pub(super) struct Settled {
    pub(super) generation: Generation,
    pub(super) blocks: Vec<Block>,
    pub(super) superblock: FsSuper,
    /// The superblock on the device, when it leads to a log.
    pub(super) before: Option<FsSuper>,
    /// What comes free when it is durable.
    pub(super) pinned: Pinned,
}

/// The transaction that settled and is not written: there was no room on the device, or others were not to wait for it.
pub(crate) struct Unfinished(Mutex<Option<Settled>>);

impl Unfinished {
    pub(crate) fn none() -> Self {
        Self(Mutex::new(Rank::Counters, None))
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.lock().is_none()
    }

    pub(super) fn keep(&self, settled: Settled) {
        *self.0.lock() = Some(settled);
    }

    pub(super) fn take(&self) -> Option<Settled> {
        self.0.lock().take()
    }
}
