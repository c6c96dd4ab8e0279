//! Holds an open volume, shared by its handles: the names, and the subvolume that paths start in. `volume` and
//! `vfs_impl` work on one.
//!
//! `walk` turns paths into inodes, across symbolic links and subvolumes; `paths` caches where long ones led; `status`
//! has the numbers of `df`, `usage` the use of space, `sharing` the shared extents of a file. Several [`OpenVolume`]
//! may share a volume, each with paths that start elsewhere. The last owner of a writable volume syncs when it is
//! dropped, and cannot report a failure of that.

mod lines;
mod paths;
mod quotas;
mod sharing;
mod status;
mod usage;
mod walk;

use std::sync::Arc;

use btrfs_disk::TreeId;

use crate::dir::Namespace;
use crate::error::Result;
use crate::inode::Core;
use crate::writeback::{self, Flusher};

pub use quotas::{NotQuotas, QuotaPage};
pub use sharing::FileSharing;
pub use usage::{DeviceShare, DeviceUsage, GroupUsage, SpaceUsage};
pub(crate) use walk::{Follow, Walker};

/// An open volume.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) namespace: Arc<Namespace>,
    /// The subvolume that paths start in.
    pub(crate) top: TreeId,
    paths: paths::PathCache,
    /// Owner and group of inodes created by paths.
    pub(crate) owner: (u32, u32),
    /// Paths start below those of another one, which may have given nodes to a server.
    pub(crate) is_part: bool,
    closing: Arc<Closing>,
}

impl OpenVolume {
    pub(crate) fn new(namespace: Arc<Namespace>, top: TreeId, owner: (u32, u32)) -> Self {
        let flusher = Flusher::start(&namespace.core);
        let closing = Arc::new(Closing { namespace: Arc::clone(&namespace), _flusher: flusher });
        Self { namespace, top, paths: paths::PathCache::default(), owner, is_part: false, closing }
    }

    /// The same volume, with paths that start in another subvolume.
    pub(crate) fn part(&self, top: TreeId) -> Self {
        Self {
            namespace: Arc::clone(&self.namespace),
            top,
            paths: paths::PathCache::default(),
            owner: self.owner,
            is_part: true,
            closing: Arc::clone(&self.closing),
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.namespace.core
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.core().store.is_read_only()
    }

    /// Makes everything that was changed before the call durable.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Poisoned`. After an error that [`crate::Error::is_device_full`], unwritten data is kept, and
    /// the next call tries again.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.namespace.stage_late_accesses();
        let synced = sync_all(self.core());
        self.log_quotas();
        synced
    }

    /// The same, and returns the space of deleted files to all kinds: empty and almost empty block groups are removed,
    /// which the next commit makes durable.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub(crate) fn sync_and_gather(&self) -> Result<()> {
        self.sync()?;
        if !self.is_read_only() {
            self.core().store.gather_groups()?;
        }
        Ok(())
    }

    /// Logs why the numbers of quota groups are inconsistent, where that was found since the last call.
    pub(crate) fn log_quotas(&self) {
        if let Some(reason) = self.core().store.why_quotas_inconsistent() {
            tracing::warn!("quotas are inconsistent until they are counted anew: {reason}");
        }
    }
}

/// The shutdown of a volume, when its last owner is dropped.
#[derive(Debug)]
struct Closing {
    namespace: Arc<Namespace>,
    _flusher: Flusher,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let core = &self.namespace.core;
        if core.store.is_read_only() || core.store.poisoned().is_some() {
            return;
        }
        self.namespace.stage_late_accesses();
        // A failure cannot be reported; earlier syncs are durable in any case. The volume may be opened next by the
        // kernel, which does not use almost empty groups for other kinds of space.
        let synced = sync_all(core).and_then(|()| Ok(core.store.gather_groups()?));
        if synced.is_ok_and(|gone| gone > 0) {
            let _ = core.store.commit();
        }
    }
}

/// Writes all dirty data, and commits. Where some files have no room, the rest is committed all the same, and the space
/// that frees is returned to the host for another attempt.
fn sync_all(core: &Core) -> Result<()> {
    let flushed = core.with_room(|| writeback::flush_all(core));
    let has_failed = matches!(&flushed, Err(error) if !error.is_device_full());
    if !has_failed {
        core.store.commit()?;
    }
    flushed
}
