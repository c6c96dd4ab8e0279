//! Holds freed space for [`super::views`], and releases it. Called by the commit, `store/view` and `store/growth`.

use std::sync::Arc;

use btrfs_disk::convert::to_u64;
use btrfs_disk::{DevId, Generation, Logical};

use crate::Result;
use crate::space::{Pinned, Run};
use btrfs_pool::{Chunk, FsSuper};

use super::engine::Engine;
use super::views::{Held, View};

impl Engine {
    /// Begins a view of the durable state; its superblock leads to no log.
    pub(crate) fn open_view(&self) -> (Arc<View>, FsSuper) {
        // With the gate held no commit ends.
        let _serial = self.gate.serialize();
        let mut superblock = self.log.lock_superblock().clone();
        let fields = superblock.fields_mut();
        fields.log_root = 0.into();
        fields.log_root_level = 0;
        (self.views.open(superblock.generation()), superblock)
    }

    /// Ends a view: space held for it alone becomes free.
    pub(crate) fn close_view(&self, view: &View) {
        // A failure poisons the store, and the next write reports it.
        let _ = self.release(self.views.close(view));
    }

    /// Writes good bytes over one bad copy in a view. Nothing (false) where the place may have another use: the view
    /// was given up, its chunk was moved, or a superblock lies there.
    ///
    /// # Errors
    /// The device's; `ReadOnly`.
    pub(crate) fn mend(&self, view: &View, chunk: &Chunk, at: Logical, good: &[u8], mirror: u32) -> Result<bool> {
        if !self.has_chunk(chunk, (at, to_u64(good.len()))) {
            return Ok(false);
        }
        let written = self.views.while_whole(view, || self.pool().write_copy(chunk, at, good, mirror));
        Ok(written.transpose()?.unwrap_or(false))
    }

    /// True if this range belongs to the same chunk as in a view.
    pub(crate) fn has_chunk(&self, chunk: &Chunk, (at, len): (Logical, u64)) -> bool {
        let is_it = |now: Arc<Chunk>| now.start() == chunk.start() && now.stripes() == chunk.stripes();
        self.pool().chunks().lookup(at, len).is_ok_and(is_it)
    }

    /// Gives up all views, for they may read a device that has left.
    ///
    /// # Errors
    /// As [`Self::give_up_view`].
    pub(crate) fn give_up_views(&self) -> Result<()> {
        let needless = self.views.give_up_all();
        self.release(needless)
    }

    /// Gives up the oldest view, where that frees anything; false where it cannot.
    ///
    /// # Errors
    /// `Corrupt` when something was free already; the store is poisoned then.
    pub(crate) fn give_up_view(&self) -> Result<bool> {
        let Some(needless) = self.views.give_up_oldest() else { return Ok(false) };
        self.release(needless)?;
        Ok(true)
    }

    /// Holds extents freed by a transaction that is durable now, where views may read them; returns the rest.
    ///
    /// # Errors
    /// As [`Self::give_up_view`].
    pub(super) fn hold_back(&self, freed_in: Generation, mut freed: Pinned) -> Result<Pinned> {
        let extents = self.views.split_off(&mut freed);
        if extents.count() > 0 {
            self.space.hold(&extents);
            self.release(self.views.keep(Held { freed_in, extents, places: Vec::new() }))?;
            self.bound_views()?;
        }
        Ok(freed)
    }

    /// Holds the device ranges of a chunk that the running transaction removes.
    ///
    /// # Errors
    /// As [`Self::give_up_view`].
    pub(crate) fn hold_places(&self, places: Vec<(DevId, Run)>) -> Result<()> {
        let (freed_in, extents) = (self.gate.running(), Pinned::default());
        self.release(self.views.keep(Held { freed_in, extents, places }))
    }

    /// Gives up views until the rest hold no more than allowed.
    fn bound_views(&self) -> Result<()> {
        let device_bytes = self.pool().devices().iter().map(|device| device.total_bytes()).fold(0, u64::saturating_add);
        while self.views.is_too_much(device_bytes) && self.give_up_view()? {}
        Ok(())
    }

    fn release(&self, needless: Vec<Held>) -> Result<()> {
        for Held { extents, places, .. } in needless {
            if self.options.discard {
                self.discard_pinned(&extents);
            }
            let released = self.space.release(extents);
            released.inspect_err(|error| self.health.poison(error))?;
            self.space.give_places(&places);
        }
        Ok(())
    }
}
