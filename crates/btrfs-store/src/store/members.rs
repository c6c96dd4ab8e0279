//! Adds devices to the file system, and removes empty ones. The crate `btrfs` calls it.
//!
//! A device gets a superblock before the file system lists it, and loses its superblocks after that. So a crash in
//! between leaves a device that the file system does not have, which is refused by name when it is given, or one that
//! has no blocks yet; never a file system that lacks a device with contents.
//!
//! The volume is in use meanwhile: the pool, the space and the superblock take the change, in the order that no chunk
//! ever lies on a device that the pool does not have.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blockdev::Device;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{DevItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{DevId, Key, Logical, Uuid};
use btrfs_pool::{MemberError, PoolDevice, Profile, supers};

use super::Store;
use crate::error::SpaceKind;
use crate::options::StoreOptions;
use crate::space::{ChunkPlace as Place, DeviceSpace, Extent, Reservation};
use crate::tree::Scan;
use crate::{Error, Result, make};

impl Store {
    /// Makes a sprout on a new device: a volume of its own that begins with the contents of a seed, and refers to them.
    /// It is durable on return. The time does not depend on what the seed holds.
    ///
    /// # Errors
    /// `Unsupported` for a volume that is no seed; `NoSpace` for a device that is too small; those of opening the seed.
    pub fn sprout(seeds: &[Arc<dyn Device>], new: Arc<dyn Device>, options: &StoreOptions) -> Result<Self> {
        let store = Self(Arc::new(make::sprout(seeds, new, options)?));
        // The state of the first commit still refers to system chunks of the seed, which the kernel does not look for:
        // no superblock leads to it.
        store.0.pool().withhold_superblocks(true);
        store.begin_sprout()?;
        store.commit()?;
        store.leave_system_groups_of_seed()?;
        store.0.pool().withhold_superblocks(false);
        store.commit()?;
        Ok(store)
    }

    /// Adds a device, and makes that durable. Not to be called with an open handle.
    ///
    /// # Errors
    /// `Members` for a device that is too small; `ReadOnly`; as [`Self::commit`].
    pub fn add_device(&self, device: &Arc<dyn Device>) -> Result<DevId> {
        let engine = &self.0;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        let sector = u64::from(engine.reader.format.sectorsize);
        let total_bytes = device.size_bytes() - device.size_bytes() % sector;
        if total_bytes < make::DEVICE_BYTES_MIN {
            let (device, least) = (device.name().to_owned(), make::DEVICE_BYTES_MIN);
            let too_small = MemberError::TooSmall { device, found: total_bytes, least };
            return Err(Error::Members(Box::new(too_small)));
        }
        self.commit()?;
        let id = DevId(engine.pool().devices().last_id().0.saturating_add(1));
        let uuid = Uuid(engine.options.env.uuid());
        let item = make::device_item(self.superblock().fields().fsid, id.0, uuid, total_bytes);
        let mut before = engine.log.lock_superblock().clone();
        before.add_item(item);
        supers::enlist(Arc::clone(device), id, &before)?;
        {
            let _room = self.reserve_if_there_is_room()?;
            let _one = engine.space.lock_growth();
            engine.pool().add_device(id, uuid, Arc::clone(device), total_bytes);
            self.change_chunks(|edit, trees| {
                edit.insert(trees.chunk, &item_key(id), item.bytes())?;
                engine.change_members(|superblock| superblock.add_item(item));
                Ok(())
            })?;
        }
        // It writes the superblock to the new device, too.
        self.commit()?;
        engine.space.add_device(DeviceSpace::new(id, uuid, total_bytes));
        engine.space.accounts().set_none_full();
        Ok(id)
    }

    /// Lists the device of a new sprout, with block groups for its first blocks: they exist before any block is
    /// written, since the groups of the seed take none.
    pub(super) fn begin_sprout(&self) -> Result<()> {
        let engine = &self.0;
        let superblock = self.superblock();
        let item = superblock.fields().dev_item;
        let generation = superblock.generation();
        // The pool of a sprout has the devices of the seed before those of the seed's own seeds.
        let seed = engine.pool().devices().iter().next().and_then(PoolDevice::seed_fsid);
        let _one = engine.space.lock_growth();
        self.change_chunks(|edit, trees| {
            let mut plans = Vec::new();
            for kind in [SpaceKind::System, SpaceKind::Metadata, SpaceKind::Data] {
                let flags = engine.space.chunk_flags(kind).unwrap_or(BlockGroupFlags::SYSTEM);
                let profile = Profile::from_flags(flags)?;
                // Data gets a group only if it could have none later, with its profile, on one device.
                let is_data = flags & BlockGroupFlags::TYPE_MASK == BlockGroupFlags::DATA;
                if kind == SpaceKind::Data && (!is_data || profile.devices_min() <= 1) {
                    continue;
                }
                // One device has two copies of what had more.
                let copies = match profile {
                    Profile::Single => BlockGroupFlags::empty(),
                    Profile::Raid0 if is_data => BlockGroupFlags::empty(),
                    _ => BlockGroupFlags::DUP,
                };
                let plan = engine.space.plan_chunk((flags & BlockGroupFlags::TYPE_MASK) | copies)?;
                let available = item.total_bytes.get();
                let plan = plan.ok_or(Error::NoSpace { kind, needed: make::DEVICE_BYTES_MIN, available })?;
                engine.adopt_chunk(&plan)?;
                plans.push(plan);
            }
            for device in engine.pool().devices().iter().filter(|device| device.seed_fsid() == seed) {
                // By its generation the kernel knows that a seed is as its sprout knows it.
                let mut parsed = Ok(());
                edit.update(trees.chunk, &item_key(device.id()), |bytes| {
                    parsed = DevItem::parse_mut(bytes).map(|item| item.generation = generation.0.into());
                })?;
                parsed?;
            }
            edit.insert(trees.chunk, &item_key(DevId(item.devid.get())), item.bytes())?;
            plans.iter().try_for_each(|plan| engine.space.write_chunk(edit, trees, plan))?;
            // Each leaf of the chunk tree is copied to the new system group.
            let mut keys = Vec::new();
            trees.chunk.scan(&Key::MIN, &Key::MAX, |key, _| {
                keys.push(*key);
                Ok(Scan::Continue)
            })?;
            keys.iter().try_for_each(|key| edit.update(trees.chunk, key, |_| ()).map(drop))
        })
    }

    /// Removes the system block groups of the seed from a sprout whose chunk tree has left them: the kernel looks for
    /// seeds only once it has read the chunk tree.
    pub(super) fn leave_system_groups_of_seed(&self) -> Result<()> {
        let engine = &self.0;
        let _one = engine.space.lock_growth();
        for chunk in engine.pool().chunks().all() {
            if !chunk.flags().contains(BlockGroupFlags::SYSTEM) || !engine.pool().is_on_seed(&chunk) {
                continue;
            }
            self.change_chunks(|edit, trees| {
                engine.space.erase_chunk(edit, trees, &chunk, Place::Free)?;
                engine.forget_chunk(&chunk)
            })?;
        }
        Ok(())
    }

    /// Removes a device that no chunk has a part of, makes that durable, and overwrites its superblocks if it is there
    /// and no seed. Not to be called with an open handle.
    ///
    /// # Errors
    /// `NoSpace` where chunks have parts of it; `ReadOnly`; as [`Self::commit`].
    pub fn remove_device(&self, id: DevId) -> Result<()> {
        let engine = &self.0;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        let device = engine.device(id)?;
        let is_seed = device.seed_fsid().is_some();
        {
            let _room = self.reserve_for_chunks()?;
            let _one = engine.space.lock_growth();
            let used = engine.space.device_bytes_used(id).unwrap_or(0);
            if used > 0 {
                return Err(Error::NoSpace { kind: SpaceKind::System, needed: used, available: 0 });
            }
            self.change_chunks(|edit, trees| {
                edit.remove(trees.chunk, &item_key(id))?;
                edit.remove(trees.device, &Key::new(objectid::DEV_STATS, item_type::PERSISTENT_ITEM, id.0))?;
                engine.space.remove_device(id);
                if is_seed {
                    // The members in the superblock are counted with the seeds of the pool.
                    engine.pool().forget_device(id);
                }
                engine.change_members(|superblock| superblock.remove_item(id));
                Ok(())
            })?;
        }
        self.commit()?;
        engine.pool().forget_device(id);
        engine.give_up_views()?;
        if device.is_missing() {
            return Ok(());
        }
        if is_seed {
            // It never changes, and other sprouts may need it.
            device.device().let_go();
            return Ok(());
        }
        supers::retire(&**device.device())?;
        device.device().let_go();
        Ok(())
    }

    /// Notes the missing devices, and commits, before anything else is written without them: from then on the devices
    /// that are there are ahead of them by their generation, also after a crash that leaves but a log. The notes of two
    /// sides that are written apart differ. Nothing where no device is missing.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn note_missing_devices(&self) -> Result<()> {
        let is_degraded = self.0.pool().devices().iter().any(PoolDevice::is_missing);
        if !is_degraded || self.0.options.read_only {
            return Ok(());
        }
        self.note_losses(self.0.pool().losses())?;
        self.commit()?;
        Ok(())
    }

    /// Notes the missing devices, of which `losses` have failed, in the running transaction: its commit makes the
    /// others newer than them.
    pub(super) fn note_losses(&self, losses: u64) -> Result<()> {
        let engine = &self.0;
        let devices = engine.pool().devices().iter();
        let missing: Vec<DevId> = devices.filter(|device| device.is_missing()).map(PoolDevice::id).collect();
        {
            let _room = self.reserve_if_there_is_room()?;
            let _one = engine.space.lock_growth();
            self.leave_abandoned_groups()?;
            self.change_chunks(|edit, trees| {
                for id in &missing {
                    engine.space.set_missing(*id, true);
                    engine.space.note_missing(edit, trees.chunk, *id)?;
                    let note = |item: &mut DevItem| item.generation = edit.generation().0.into();
                    engine.superblock.lock().change_item(*id, note);
                }
                Ok(())
            })?;
        }
        engine.noted_losses.fetch_max(losses, Ordering::AcqRel);
        Ok(())
    }

    /// Takes the groups out of the accounts that a device had alone that failed, and nothing was in. The caller holds
    /// the lock for growing.
    fn leave_abandoned_groups(&self) -> Result<()> {
        let space = &self.0.space;
        for group in space.all_groups().into_iter().filter(|group| group.is_abandoned()) {
            if !space.close_abandoned(&group) && self.add_chunk(group.kind())? {
                // Where its bytes are reserved still, they stay counted until the next open.
                space.close_abandoned(&group);
            }
        }
        Ok(())
    }

    /// Removes an empty block group that lies on missing devices; false for any other. The next commit makes that
    /// durable. Not to be called with an open handle.
    ///
    /// # Errors
    /// `Corrupt` where there is no such group; as [`Self::commit`].
    pub fn erase_empty_group(&self, start: Logical) -> Result<bool> {
        let engine = &self.0;
        let group = engine.space.group_of(Extent { at: start, len: 1 })?;
        if engine.core.free_space.is_none() || !group.is_fixed_and_empty() {
            return Ok(false);
        }
        let _room = self.reserve_for_chunks()?;
        let _one = engine.space.lock_growth();
        self.erase_group(&group, Place::Free)?;
        Ok(true)
    }

    /// Room for a small change of the chunks' trees. On a full volume it is paid from the global reserve alone.
    fn reserve_if_there_is_room(&self) -> Result<Option<Reservation>> {
        match self.reserve_for_chunks() {
            Err(Error::NoSpace { .. }) => Ok(None),
            reserved => reserved.map(Some),
        }
    }

    /// Adds an empty block group of a kind, without the devices that new chunks may not use.
    ///
    /// # Errors
    /// `NoSpace` where there is no room; as [`Self::commit`].
    pub fn add_group(&self, kind: SpaceKind) -> Result<()> {
        let _room = self.reserve_for_chunks()?;
        let _one = self.0.space.lock_growth();
        match self.add_chunk(kind)? {
            true => Ok(()),
            false => Err(Error::NoSpace { kind, needed: 1, available: 0 }),
        }
    }
}

fn item_key(id: DevId) -> Key {
    Key::new(objectid::DEV_ITEMS, item_type::DEV_ITEM, id.0)
}
