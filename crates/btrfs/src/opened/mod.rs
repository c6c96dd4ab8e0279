//! An open volume as its handles share it: the names, the subvolume that paths start in, and what every way in needs.
//!
//! `walk` turns paths into inodes, across symbolic links and subvolumes; `paths` remembers where long ones led;
//! `status` is what `df` shows, `usage` what takes the space, `sharing` what of a file others have,
//! too. Several [`Opened`] may share a volume, each with paths that start elsewhere. The last owner of a writable
//! volume syncs when it is dropped, and has nobody to tell when that fails.

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
pub use usage::{GroupUsage, SpaceUsage};
pub(crate) use walk::{Follow, Walker};

/// An open volume.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) namespace: Arc<Namespace>,
    /// The subvolume that paths start in.
    pub(crate) top: TreeId,
    paths: paths::PathCache,
    /// Owner and group of what is created by paths.
    pub(crate) owner: (u32, u32),
    /// Paths start below those of another one, which may have given nodes to a server.
    pub(crate) is_part: bool,
    closing: Arc<Closing>,
}

impl Opened {
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
    /// `Io`, `NoSpace`, `Poisoned`. After an error that [`crate::Error::is_device_full`], what was not written is
    /// kept, and the next call tries again.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.namespace.stage_late_accesses();
        let synced = sync_all(self.core());
        self.tell_quotas();
        synced
    }

    /// The same, and what was deleted is room for everything: block groups with nothing or next to nothing left in
    /// them are given back, which the next commit makes durable.
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

    /// Logs why the numbers of quota groups are not to be trusted, where that was found out since the last time.
    pub(crate) fn tell_quotas(&self) {
        if let Some(reason) = self.core().store.why_quotas_inconsistent() {
            tracing::warn!("quotas are inconsistent until they are counted anew: {reason}");
        }
    }
}

/// What is done when the last one goes.
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
        // Nobody is left to hear of a failure; what was synced before is safe in any case. Who opens the volume next
        // may be the kernel, which does not take groups that are all but empty for other kinds of space.
        let synced = sync_all(core).and_then(|()| Ok(core.store.gather_groups()?));
        if synced.is_ok_and(|gone| gone > 0) {
            let _ = core.store.commit();
        }
    }
}

/// Writes all that is dirty, and commits. Where the data of some files has no room, the rest is committed all the same,
/// and what that frees is given back to the host for another attempt.
fn sync_all(core: &Core) -> Result<()> {
    let flushed = core.with_room(|| writeback::flush_all(core));
    let has_failed = matches!(&flushed, Err(error) if !error.is_device_full());
    if !has_failed {
        core.store.commit()?;
    }
    flushed
}
