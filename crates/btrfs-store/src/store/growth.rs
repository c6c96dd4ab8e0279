//! Adds and removes chunks, and changes the size of the volume. `Store` grows with it when a reservation needs space;
//! the crate `btrfs` calls it to resize.
//!
//! Each change happens in the running transaction, paid from the global reserve, under the lock for growing.
//!
//! Failure: one in the middle of a change ends all writing, since the rest cannot follow.

use btrfs_disk::superblock::Superblock;
use btrfs_disk::{DevId, Logical};

use super::Store;
use crate::ablation::{Mutation, mutated};
use crate::error::SpaceKind;
use crate::space::{
    self, BlockGroup, ChunkPlace, ChunkPlan, ChunkTrees, Reservation, Shortage, Spare, Urgency, device_runs,
};
use crate::tree::Edit;
use crate::txn::{FundingSource, TxnHost};
use crate::{Error, Result, make};
use btrfs_pool::{PoolDevice, supers};

/// Items that one change of a chunk changes at most in the chunk tree, and in the others together: with those of the
/// free space of a group that is kept in bitmaps.
const CHANGE_ITEMS: u64 = 16;

impl Store {
    /// Allocates a chunk of a kind; marks the kind as full when there is no room.
    pub(super) fn grow(&self, kind: SpaceKind, need: space::Need, urgency: Urgency) -> Result<()> {
        let engine = &self.0;
        let _one = engine.space.lock_growth();
        // Another thread may have grown for both.
        if !matches!(engine.space.reserve(need, urgency), Err(Shortage::Chunk(wanted)) if wanted == kind) {
            return Ok(());
        }
        if !self.add_chunk(kind)? {
            engine.space.accounts().set_full(kind, true);
        }
        Ok(())
    }

    /// Adds a chunk for data before space runs out, where no other kind is likely to need the room; or loads the free
    /// space of another group.
    pub(super) fn grow_ahead(&self) -> Result<()> {
        let engine = &self.0;
        if engine.space.wants_data_loaded() {
            self.load_ahead();
            return Ok(());
        }
        if !engine.space.wants_data_ahead() {
            return Ok(());
        }
        let _room = match self.reserve_for_chunks() {
            Err(Error::NoSpace { .. }) => return Ok(()),
            reserved => reserved?,
        };
        let _one = engine.space.lock_growth();
        if !engine.space.wants_data_ahead() {
            return Ok(());
        }
        let Some(flags) = engine.space.chunk_flags(SpaceKind::Data) else { return Ok(()) };
        let Some(plan) = engine.space.plan_chunk(flags)? else {
            engine.space.deny_data_ahead();
            return Ok(());
        };
        self.add_planned(&plan)
    }

    /// Loads the free space of a group for data, unless a commit is running: nothing waits for it.
    fn load_ahead(&self) {
        let engine = &self.0;
        // Reading the extent tree instead takes long.
        let may_load = engine.core.free_space.is_some();
        let Some(_serial) = may_load.then(|| engine.gate.try_serialize()).flatten() else { return };
        let Some(group) = engine.space.unloaded_group(SpaceKind::Data) else { return };
        if engine.load_group(&group).is_err() {
            engine.space.deny_data_loaded();
        }
    }

    /// Allocates a chunk of a kind; false where there is no room. The caller holds the lock for growing.
    pub(super) fn add_chunk(&self, kind: SpaceKind) -> Result<bool> {
        let engine = &self.0;
        let Some(flags) = engine.space.chunk_flags(kind) else { return Ok(false) };
        let mut plan = engine.space.plan_chunk(flags)?;
        while plan.is_none() && self.give_back_one(Spare::For(kind))? {
            plan = engine.space.plan_chunk(flags)?;
        }
        let Some(plan) = plan else { return Ok(false) };
        self.add_planned(&plan)?;
        Ok(true)
    }

    fn add_planned(&self, plan: &ChunkPlan) -> Result<()> {
        let engine = &self.0;
        self.change_chunks(|edit, trees| {
            engine.space.write_chunk(edit, trees, plan)?;
            engine.adopt_chunk(plan)
        })
    }

    /// Removes an empty block group; false where there is none to remove. The caller holds the lock for growing.
    fn give_back_one(&self, which: Spare) -> Result<bool> {
        let engine = &self.0;
        // The older cache of free space has a file for each group, which would be left.
        if engine.core.free_space.is_none() {
            return Ok(false);
        }
        let Some(group) = engine.space.retire_group(which) else { return Ok(false) };
        self.erase_group(&group, ChunkPlace::Free)?;
        Ok(true)
    }

    /// Erases the chunk of a group that was retired. The caller holds the lock for growing.
    pub(super) fn erase_group(&self, group: &BlockGroup, place: ChunkPlace) -> Result<()> {
        let engine = &self.0;
        self.change_chunks(|edit, trees| {
            let chunk = engine.pool().chunks().lookup(Logical(group.range().start), group.range().len)?;
            engine.space.erase_chunk(edit, trees, &chunk, place)?;
            engine.forget_chunk(&chunk)?;
            match place {
                ChunkPlace::Free => Ok(()),
                ChunkPlace::Held => engine.hold_places(device_runs(&chunk).collect()),
            }
        })
    }

    /// A reservation for a change of the chunks' trees. Not to be called under the lock for growing, which it may take.
    pub(super) fn reserve_for_chunks(&self) -> Result<Reservation> {
        let bytes = self.0.space.accounts().bytes_for_items(CHANGE_ITEMS);
        self.reserve_bytes(space::Need { data: 0, metadata: bytes, system: bytes }, Urgency::Normal)
    }

    /// Changes the trees of the chunks in the running transaction, paid from the global reserve.
    pub(super) fn change_chunks(&self, change: impl FnOnce(&Edit<'_>, &ChunkTrees<'_>) -> Result<()>) -> Result<()> {
        let engine = &self.0;
        let generation = engine.gate.enter();
        // A log may not lie in a chunk that the superblock on the device does not know.
        if !mutated(Mutation::NoCommitAfterChunk) {
            engine.log.require_commit(generation);
        }
        let host = TxnHost { engine, generation, funding: FundingSource::Commit, keeps_freed: false };
        let changed = change(&Edit::new(&host), &engine.chunk_trees());
        engine.gate.leave();
        changed.inspect_err(|error| engine.health.poison(error))
    }

    /// Removes empty block groups, but for one of each profile, so that their space is available for every kind;
    /// returns how many. Not to be called with an open handle.
    ///
    /// # Errors
    /// Those of editing trees; the store is poisoned then.
    pub fn give_back_groups(&self) -> Result<usize> {
        self.give_back_all(Spare::ButOne)
    }

    fn give_back_all(&self, which: Spare) -> Result<usize> {
        let engine = &self.0;
        engine.health.check()?;
        let may_write = !engine.options.read_only && !engine.log.unreplayed.is_waiting();
        if !may_write || !engine.space.has_spare_group(which) {
            return Ok(0);
        }
        let _room = match self.reserve_for_chunks() {
            Err(Error::NoSpace { .. }) => return Ok(0),
            reserved => reserved?,
        };
        let _one = engine.space.lock_growth();
        let mut count = 0;
        while self.give_back_one(which)? {
            count += 1;
        }
        Ok(count)
    }

    /// The end of the logical address space: the size of the devices, or the end of the last chunk if balances have
    /// allocated beyond it.
    #[must_use]
    pub fn addresses_end(&self) -> u64 {
        let chunks = self.0.pool().chunks().all();
        let ends = chunks.iter().map(|chunk| chunk.end().0);
        ends.max().unwrap_or(0).max(self.superblock().fields().total_bytes.get())
    }

    /// The least size of a device for [`Self::resize`], in bytes, while nothing else is changed: empty block groups can
    /// be removed, others stay where they are.
    ///
    /// # Errors
    /// As [`Self::give_back_groups`].
    pub fn least_bytes(&self, device: DevId) -> Result<u64> {
        self.give_back_all(Spare::All)?;
        Ok(self.used_bytes_end(device))
    }

    /// The end of the last chunk on a device, in bytes, or the smallest size of any file system.
    fn used_bytes_end(&self, device: DevId) -> u64 {
        let end = self.0.space.used_end(device);
        end.unwrap_or(u64::MAX).max(make::DEVICE_BYTES_MIN)
    }

    /// Makes the file system use `total_bytes` of a device, sets the length of an image file to match, and makes both
    /// durable. Not to be called with an open handle.
    ///
    /// # Errors
    /// [`Error::NoSpace`], and nothing is changed, where block groups lie beyond ([`Self::least_bytes`]); `Device`
    /// where the device is smaller; `ReadOnly`; as [`Self::commit`].
    pub fn resize(&self, device: DevId, total_bytes: u64) -> Result<()> {
        let engine = &self.0;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        engine.health.check()?;
        engine.log.unreplayed.check()?;
        let total_bytes = total_bytes - total_bytes % u64::from(engine.reader.format.sectorsize);
        let device = engine.device(device)?;
        if total_bytes < device.total_bytes() {
            self.give_back_all(Spare::All)?;
            // Held extents of views may lie beyond.
            while engine.give_up_view()? {}
        }
        let (file_bytes, old_bytes) = (device.device().size_bytes(), device.total_bytes());
        // The file is never shorter than the size in a superblock on it.
        if file_bytes < total_bytes {
            device.device().grow(total_bytes)?;
        }
        if let Err(error) = self.set_size(device, total_bytes) {
            let is_as_before = |superblock: Superblock| superblock.fields().dev_item.total_bytes.get() == old_bytes;
            // A commit that only found no room on the host will be written later.
            let is_over = device.total_bytes() == old_bytes || engine.health.reason().is_some();
            if is_over && supers::read_one(&**device.device(), 0).is_ok_and(is_as_before) {
                // A file that stays longer does no harm; the first failure is the one to report.
                let _ = device.device().shrink(file_bytes);
            }
            return Err(error);
        }
        Ok(device.device().shrink(total_bytes)?)
    }

    /// The same, on a device that is long enough.
    fn set_size(&self, device: &PoolDevice, total_bytes: u64) -> Result<()> {
        let engine = &self.0;
        {
            let _room = self.reserve_for_chunks()?;
            let _one = engine.space.lock_growth();
            let least = self.used_bytes_end(device.id());
            if total_bytes < least {
                return Err(Error::NoSpace { kind: SpaceKind::System, needed: least, available: total_bytes });
            }
            self.change_chunks(|edit, trees| {
                engine.space.resize_device(edit, trees.chunk, device.id(), total_bytes)?;
                device.set_total_bytes(total_bytes);
                engine.note_device_size(device.id(), total_bytes);
                Ok(())
            })?;
        }
        self.commit()?;
        Ok(())
    }
}
