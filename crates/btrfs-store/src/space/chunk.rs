//! Plans and adds a new chunk: its ranges on devices, and its items. Called by `store/growth` and `make`.
//!
//! The plan is pure and follows the kernel (`btrfs_create_chunk`): a chunk is as long as
//! its kind allows and no longer than a tenth of all devices, and shrinks to the longest
//! hole that is left, so that a small image can be filled to the end. A device's holes are
//! kept in memory, computed from its DEV_EXTENT items.
//!
//! Where devices are missing, a new chunk keeps its profile: if too few are there, it gets the place of a copy on a
//! missing device, as far as the profile tolerates that loss. (The kernel makes a chunk with fewer copies instead,
//! which stays when the device is back.)

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{self, BlockGroupItem, ChunkItem, DevExtent, DevItem, OnDisk, STRIPE_LEN};
use btrfs_disk::key::{DiskKey, item_type, objectid};
use btrfs_disk::superblock::mirror_offsets;
use btrfs_disk::{At, Corrupt, Detail, DevId, Key, Logical, TreeId, Uuid};
use zerocopy::IntoBytes;

use super::Space;
use super::changes::Place;
use super::free_map::{FreeMap, Run};
use super::free_space_tree;
use super::group::{BlockGroup, GroupInfo};
use super::load::excluded;
use crate::error::{Error, Result, SpaceKind};
use crate::tree::{Edit, Scan, Tree};
use btrfs_pool::{Chunk, Profile, Stripe};

/// The start of every device belongs to boot loaders and the first superblock.
const DEVICE_RESERVED: u64 = 1 << 20;

/// Where the logical address space begins in a new file system.
const FIRST_CHUNK_START: u64 = 1 << 20;

/// Shortest range of a device worth a chunk.
const STRIPE_MIN: u64 = 1 << 20;

/// Longest range of a device in one chunk, and longest chunks by kind.
const STRIPE_MAX: u64 = 1 << 30;
const DATA_CHUNK_MAX: u64 = 10 << 30;
const METADATA_CHUNK_MAX: u64 = 256 << 20;
const METADATA_CHUNK_MAX_LARGE: u64 = 1 << 30;
const SYSTEM_CHUNK_MAX: u64 = 32 << 20;

/// From this size of all devices on, metadata chunks are of the larger kind.
const LARGE_FROM: u64 = 50 << 30;

/// No chunk takes more than this part of all devices...
const CHUNK_SHARE: u64 = 10;

/// ... rounded up to this.
const STRIPE_ROUND: u64 = 16 << 20;

/// Most devices of a system chunk: the superblock has to hold it.
const SYSTEM_STRIPES_MAX: usize = 31;

/// The unused part of one device.
#[derive(Clone, Debug)]
pub struct DeviceSpace {
    id: DevId,
    uuid: Uuid,
    total_bytes: u64,
    bytes_used: u64,
    free: FreeMap,
    /// New chunks end before this byte.
    ceiling: u64,
    /// The device is missing. New chunks get copies there only where the profile needs more devices than are there.
    is_missing: bool,
    /// The device is a seed: it gets no chunk.
    is_seed: bool,
}

impl DeviceSpace {
    /// A device without chunks.
    #[must_use]
    pub fn new(id: DevId, uuid: Uuid, total_bytes: u64) -> Self {
        let mut free = FreeMap::default();
        let len = total_bytes.saturating_sub(DEVICE_RESERVED);
        // An empty map takes any run that ends within 64 bits, and this one does.
        let _ = free.insert(Run { start: DEVICE_RESERVED, len });
        Self { id, uuid, total_bytes, bytes_used: 0, free, ceiling: u64::MAX, is_missing: false, is_seed: false }
    }

    /// A device with the chunks that the device tree lists.
    ///
    /// # Errors
    /// `Corrupt` when two of its ranges overlap, or one leaves the device.
    pub fn load(tree: &Tree, id: DevId, uuid: Uuid, total_bytes: u64) -> Result<Self> {
        let mut device = Self::new(id, uuid, total_bytes);
        let from = Key::new(id.0, item_type::DEV_EXTENT, 0);
        let to = Key::new(id.0, item_type::DEV_EXTENT, u64::MAX);
        let mut end = 0;
        tree.scan(&from, &to, |key, bytes| {
            let at = At::Key(TreeId::DEV, *key);
            let len = DevExtent::parse(bytes).map_err(|error| error.at(at))?.length.get();
            end = device.note_extent(Run { start: key.offset, len }, end).map_err(|error| error.at(at))?;
            Ok(Scan::Continue)
        })?;
        Ok(device)
    }

    /// The same, of a device that is a seed: it gets no chunk.
    #[must_use]
    pub fn of_seed(self, is_seed: bool) -> Self {
        if is_seed { Self { free: FreeMap::default(), ceiling: 0, is_seed, ..self } } else { self }
    }

    /// The same, of a device that is missing.
    #[must_use]
    pub fn missing(self, is_missing: bool) -> Self {
        Self { is_missing, ..self }
    }

    /// Sets whether the device is missing.
    pub(crate) fn set_missing(&mut self, is_missing: bool) {
        self.is_missing = is_missing;
    }

    fn note_extent(&mut self, run: Run, previous_end: u64) -> Result<u64, Corrupt> {
        let end = run.start.checked_add(run.len).filter(|end| *end <= self.total_bytes);
        match end {
            Some(end) if run.start >= previous_end && run.len > 0 => {
                self.free.subtract(run);
                self.bytes_used += run.len;
                Ok(end)
            }
            _ => {
                let expected = Detail::Range(previous_end, self.total_bytes);
                Err(Corrupt::new("place of the device extent", expected, Detail::Number(run.start)))
            }
        }
    }

    /// Number of the device.
    #[must_use]
    pub fn id(&self) -> DevId {
        self.id
    }

    /// Bytes that chunks take (`bytes_used` of its DEV_ITEM).
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.bytes_used
    }

    /// Bytes that the file system has of it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes that a chunk could take.
    #[must_use]
    pub fn unallocated(&self) -> u64 {
        self.free.bytes()
    }

    /// The byte after the last range that a chunk has.
    pub(crate) fn used_end(&self) -> u64 {
        let last = self.free.iter().next_back().filter(|run| run.end() == self.total_bytes);
        last.map_or(self.total_bytes, |run| run.start)
    }

    /// Changes the size of the device that the file system uses.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where chunks lie beyond.
    pub(crate) fn resize(&mut self, total_bytes: u64) -> Result<()> {
        let end = self.used_end();
        if total_bytes < end {
            return Err(Error::NoSpace { kind: SpaceKind::System, needed: end, available: total_bytes });
        }
        if total_bytes < self.total_bytes {
            self.free.subtract(Run { start: total_bytes, len: self.total_bytes - total_bytes });
        } else {
            let more = Run { start: self.total_bytes, len: total_bytes - self.total_bytes };
            // Nothing was free beyond the end.
            let _ = self.free.insert(more);
        }
        self.total_bytes = total_bytes;
        Ok(())
    }

    /// Frees a range of a removed chunk; false when no chunk had it.
    pub(crate) fn give(&mut self, run: Run, place: Place) -> bool {
        let is_used = run.end() <= self.total_bytes
            && run.len <= self.bytes_used
            && (place == Place::Held || self.is_seed || self.free.insert(run).is_ok());
        self.bytes_used -= if is_used { run.len } else { 0 };
        is_used
    }

    /// Frees a range that was held.
    fn give_held(&mut self, run: Run) {
        // The file system may have become smaller; ranges that are free already stay free.
        if run.end() <= self.total_bytes && !self.is_seed {
            let _ = self.free.insert(run);
        }
    }

    /// New chunks end before this byte.
    pub(crate) fn set_ceiling(&mut self, ceiling: u64) {
        if !self.is_seed {
            self.ceiling = ceiling;
        }
    }

    /// The first hole of at least `len` bytes, else the longest.
    fn hole(&self, len: u64) -> Option<Run> {
        if self.ceiling >= self.total_bytes {
            return self.free.first_of(len).or_else(|| self.free.longest_run());
        }
        let mut free = self.free.clone();
        free.subtract(Run { start: self.ceiling, len: self.total_bytes - self.ceiling });
        free.first_of(len).or_else(|| free.longest_run())
    }
}

/// The device ranges of a chunk.
pub(crate) fn device_runs(chunk: &Chunk) -> impl Iterator<Item = (DevId, Run)> + '_ {
    let len = chunk.stripe_bytes();
    chunk.stripes().iter().map(move |stripe| (stripe.device, Run { start: stripe.offset, len }))
}

/// A chunk that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPlan {
    /// The chunk, as the pool wants it.
    pub chunk: Chunk,
    /// Its CHUNK_ITEM; the superblock repeats that of a system chunk.
    pub item: Vec<u8>,
}

impl ChunkPlan {
    /// Its entry in the superblock's array of system chunks.
    pub(crate) fn array_entry(&self) -> Vec<u8> {
        let mut entry = DiskKey::from(self.chunk.key()).as_bytes().to_vec();
        entry.extend_from_slice(&self.item);
        entry
    }

    fn group(&self) -> Run {
        Run { start: self.chunk.start().0, len: self.chunk.len_bytes() }
    }
}

/// The trees that a new chunk gets items in.
#[derive(Clone, Copy, Debug)]
pub struct ChunkTrees<'a> {
    /// Chunk tree.
    pub chunk: &'a Tree,
    /// Device tree.
    pub device: &'a Tree,
    /// The tree of the block group items: the extent tree or the block-group tree.
    pub block_group: &'a Tree,
    /// The free-space tree, if there is one.
    pub free_space: Option<&'a Tree>,
    /// UUID of the chunk tree, as in the headers of tree blocks.
    pub chunk_tree_uuid: Uuid,
}

impl Space {
    /// Adds a device.
    pub fn add_device(&self, device: DeviceSpace) {
        let mut devices = self.devices.lock();
        devices.push(device);
        devices.sort_by_key(|device| device.id);
    }

    /// Bytes that chunks take of a device.
    #[must_use]
    pub fn device_bytes_used(&self, id: DevId) -> Option<u64> {
        let devices = self.devices.lock();
        devices.iter().find(|device| device.id == id).map(|device| device.bytes_used)
    }

    /// Frees held device ranges of removed chunks.
    pub(crate) fn give_places(&self, places: &[(DevId, Run)]) {
        for (id, run) in places {
            if let Some(device) = self.devices.lock().iter_mut().find(|device| device.id() == *id) {
                device.give_held(*run);
            }
        }
        if !places.is_empty() {
            self.accounts.set_none_full();
        }
    }

    /// The unallocated ranges of a device, without the places of the superblock's copies.
    pub(crate) fn unallocated_runs(&self, id: DevId) -> Vec<Run> {
        let devices = self.devices.lock();
        let Some(device) = devices.iter().find(|device| device.id == id) else { return Vec::new() };
        let mut free = device.free.clone();
        for start in mirror_offsets(u64::MAX) {
            free.subtract(Run { start, len: STRIPE_LEN });
        }
        free.iter().collect()
    }

    /// Use and profile for a new chunk: the target of a running conversion, else those of the group that tolerates most
    /// losses, of these the newest. (The kernel makes groups with fewer copies while a device is missing, and others
    /// are left from old programs.)
    #[must_use]
    pub fn chunk_flags(&self, kind: SpaceKind) -> Option<BlockGroupFlags> {
        let account = self.accounts.index(kind);
        let target = self.targets.lock().get(account).copied().flatten();
        if target.is_some() {
            return target;
        }
        let groups = self.groups.all();
        let same = groups.iter().filter(|group| self.accounts.index(group.kind()) == account);
        let copies = |group: &&Arc<BlockGroup>| {
            Profile::from_flags(group.flags()).map_or((0, 0), |profile| (profile.losses_max(), profile.mirror_count()))
        };
        // Groups of a seed may need more devices than its sprout has.
        let own = same.clone().filter(|group| !group.is_only_left()).max_by_key(copies);
        own.or_else(|| same.last()).map(|group| group.flags())
    }

    /// Plans a chunk and takes its device ranges; `None` when no device has room. One at a
    /// time: the caller holds the lock for that.
    ///
    /// # Errors
    /// `Unsupported` for profiles that are refused by name.
    pub fn plan_chunk(&self, flags: BlockGroupFlags) -> Result<Option<ChunkPlan>> {
        let longest = self.chunk_bytes_max.load(Relaxed).min(self.chunk_bytes_limit.load(Relaxed));
        self.plan_chunk_up_to(flags, longest)
    }

    /// Like [`Self::plan_chunk`], with a chunk of a new file system: no longer than `len_max`
    /// (a multiple of 64 KiB).
    ///
    /// # Errors
    /// As [`Self::plan_chunk`].
    pub fn plan_chunk_up_to(&self, flags: BlockGroupFlags, len_max: u64) -> Result<Option<ChunkPlan>> {
        let last = self.groups.all().last().map(|group| group.range().end());
        let mut devices = self.devices.lock();
        let request = PlanRequest {
            flags,
            start: Logical(last.unwrap_or(FIRST_CHUNK_START)),
            sector_size: self.config.sector_size,
            len_max,
        };
        let Some(plan) = plan(&request, &devices)? else {
            return Ok(None);
        };
        for (id, run) in device_runs(&plan.chunk) {
            if let Some(device) = devices.iter_mut().find(|device| device.id == id) {
                device.bytes_used += device.free.subtract(run);
            }
        }
        Ok(Some(plan))
    }

    /// Writes the items of a planned chunk. The caller then adds it to the pool, to the superblock if it is a system
    /// chunk, and to [`Self::adopt_chunk`].
    ///
    /// # Errors
    /// Whatever editing a tree fails with; the transaction cannot continue then.
    pub fn write_chunk(&self, edit: &Edit<'_>, trees: &ChunkTrees<'_>, plan: &ChunkPlan) -> Result<()> {
        let chunk = &plan.chunk;
        for (id, run) in device_runs(&plan.chunk) {
            let extent = DevExtent {
                chunk_tree: TreeId::CHUNK.0.into(),
                chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                chunk_offset: chunk.start().0.into(),
                length: run.len.into(),
                chunk_tree_uuid: trees.chunk_tree_uuid,
            };
            let key = Key::new(id.0, item_type::DEV_EXTENT, run.start);
            edit.insert(trees.device, &key, extent.bytes())?;
            self.write_device_use(edit, trees.chunk, id)?;
        }
        edit.insert(trees.chunk, &chunk.key(), &plan.item)?;
        let group = plan.group();
        let item = BlockGroupItem::new(0, chunk.flags());
        edit.insert(trees.block_group, &group_key(group), item.bytes())?;
        match trees.free_space {
            Some(tree) => free_space_tree::add_group(edit, tree, group),
            None => Ok(()),
        }
    }

    pub(super) fn write_device_use(&self, edit: &Edit<'_>, tree: &Tree, id: DevId) -> Result<()> {
        let used = self.device_bytes_used(id).unwrap_or(0);
        change_device(edit, tree, id, |item| item.bytes_used = used.into())
    }

    /// Notes in the item of a missing device the running transaction, from which on it misses writes.
    pub(crate) fn note_missing(&self, edit: &Edit<'_>, tree: &Tree, id: DevId) -> Result<()> {
        change_device(edit, tree, id, |item| item.generation = edit.generation().0.into())
    }

    /// Opens the group of a chunk whose items are written, for allocation.
    ///
    /// # Errors
    /// `Corrupt` when another group is there.
    pub fn adopt_chunk(&self, plan: &ChunkPlan) -> Result<Arc<BlockGroup>> {
        self.add_new_group(GroupInfo {
            start: plan.chunk.start(),
            len: plan.chunk.len_bytes(),
            flags: plan.chunk.flags(),
            used: 0,
            excluded: excluded(&plan.chunk),
            read_only: false,
            is_only_left: false,
        })
    }

    /// Writes the items of groups whose use changed since the last call; returns how many.
    /// Editing may itself have caused further changes.
    ///
    /// # Errors
    /// [`Error::NotFound`] when a group has no item, and whatever editing a tree fails with.
    pub fn write_group_items(&self, edit: &Edit<'_>, tree: &Tree) -> Result<u64> {
        let mut count = 0;
        for group in self.touched_groups() {
            let Some(change) = group.take_use() else { continue };
            let key = group_key(change.group);
            let mut parsed = Ok(());
            let found = edit.update(tree, &key, |bytes| {
                parsed = BlockGroupItem::parse_mut(bytes).map(|item| item.used = change.used.into());
            })?;
            parsed.map_err(|error| error.at(At::Key(tree.id(), key)))?;
            if !found {
                return Err(Error::NotFound { tree: tree.id(), key });
            }
            count += 1;
        }
        Ok(count)
    }
}

/// Changes the item of a device in the chunk tree.
pub(super) fn change_device(edit: &Edit<'_>, tree: &Tree, id: DevId, change: impl FnOnce(&mut DevItem)) -> Result<()> {
    let key = Key::new(objectid::DEV_ITEMS, item_type::DEV_ITEM, id.0);
    let mut parsed = Ok(());
    let found = edit.update(tree, &key, |bytes| parsed = DevItem::parse_mut(bytes).map(change))?;
    parsed.map_err(|error| error.at(At::Key(TreeId::CHUNK, key)))?;
    if found { Ok(()) } else { Err(Error::NotFound { tree: tree.id(), key }) }
}

pub(super) const fn group_key(group: Run) -> Key {
    Key::new(group.start, item_type::BLOCK_GROUP_ITEM, group.len)
}

/// The parameters of a chunk to plan.
#[derive(Clone, Copy, Debug)]
struct PlanRequest {
    flags: BlockGroupFlags,
    start: Logical,
    sector_size: u64,
    /// Bytes that the chunk must not exceed, beside the limits of its kind.
    len_max: u64,
}

/// How a profile uses devices (the kernel's `btrfs_raid_array`).
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// Ranges on each device.
    per_device: usize,
    devices_max: usize,
    /// The number of devices is a multiple of this.
    devices_step: usize,
    sub_stripes: u16,
}

const fn spread(profile: Profile) -> Spread {
    let one = Spread { per_device: 1, devices_max: 1, devices_step: 1, sub_stripes: 1 };
    match profile {
        // Chunks with parity are not made.
        Profile::Single | Profile::Raid5 | Profile::Raid6 => one,
        Profile::Dup => Spread { per_device: 2, ..one },
        Profile::Raid0 => Spread { devices_max: usize::MAX, ..one },
        Profile::Raid1 => mirrors(2),
        Profile::Raid1c3 => mirrors(3),
        Profile::Raid1c4 => mirrors(4),
        Profile::Raid10 => Spread { devices_max: usize::MAX, sub_stripes: 2, ..mirrors(2) },
    }
}

const fn mirrors(count: usize) -> Spread {
    Spread { per_device: 1, devices_max: count, devices_step: count, sub_stripes: 1 }
}

/// The chunk to make, or `None` when the devices have no room for it.
fn plan(request: &PlanRequest, devices: &[DeviceSpace]) -> Result<Option<ChunkPlan>> {
    let profile = Profile::from_flags(request.flags)?;
    if profile.parity_count() > 0 {
        return Err(btrfs_pool::Error::unsupported(format!("writing {profile} block groups")).into());
    }
    let (spread, devices_min) = (spread(profile), profile.devices_min());
    let per_device = u64::try_from(spread.per_device).unwrap_or(1);
    // Nothing is allocated on a seed, whose ceiling is 0: its size is no reason for large chunks.
    let written = devices.iter().filter(|device| device.ceiling > 0);
    let total = written.fold(0u64, |sum, device| sum.saturating_add(device.total_bytes));
    let chunk_max = chunk_len_max(request.flags, total).min(request.len_max);
    let round = STRIPE_ROUND.min(request.len_max);
    let wanted = chunk_max.min(STRIPE_MAX).next_multiple_of(round) * per_device;

    let mut holes: Vec<(&DeviceSpace, Run)> = devices
        .iter()
        .filter_map(|device| device.hole(wanted).map(|hole| (device, hole)))
        .filter(|(_, hole)| hole.len / per_device >= STRIPE_MIN)
        .collect();
    holes.sort_by_key(|(device, hole)| {
        let len = hole.len.min(wanted);
        (device.is_missing, std::cmp::Reverse((len, device.free.bytes())), device.id)
    });
    let present = holes.iter().filter(|(device, _)| !device.is_missing).count();
    if present >= devices_min {
        holes.truncate(present);
    } else {
        // The missing copies are written when the device is back or another one in its place.
        holes.truncate(devices_min);
        if holes.len() - present > profile.losses_max() {
            return Ok(None);
        }
    }
    let is_system = request.flags.contains(BlockGroupFlags::SYSTEM);
    let most = if is_system { SYSTEM_STRIPES_MAX } else { usize::MAX };
    let count = holes.len().min(spread.devices_max).min(most);
    let count = count - count % spread.devices_step;
    let Some(shortest) = count.checked_sub(1).and_then(|last| holes.get(last)).map(|(_, hole)| hole.len) else {
        return Ok(None);
    };
    if count < devices_min {
        return Ok(None);
    }
    holes.truncate(count);
    let stripe_count = u64::try_from(count).unwrap_or(1) * per_device;
    let data_stripes = stripe_count / u64::from(profile.mirror_count());
    let stripe_bytes = stripe_len(shortest.min(wanted) / per_device, data_stripes, chunk_max);
    let stripes = holes.iter().flat_map(|(device, hole)| {
        (0..per_device).map(|index| Stripe {
            device: device.id,
            offset: hole.start + index * stripe_bytes,
            device_uuid: device.uuid,
        })
    });
    let chunk = Chunk::new(request.start, stripe_bytes * data_stripes, request.flags, stripes.collect())?;
    let item = chunk_item(&chunk, spread.sub_stripes, request.sector_size);
    Ok(Some(ChunkPlan { chunk, item }))
}

fn stripe_len(longest: u64, data_stripes: u64, chunk_max: u64) -> u64 {
    let mut len = longest;
    if len.saturating_mul(data_stripes) > chunk_max {
        len = len.min((chunk_max / data_stripes).next_multiple_of(STRIPE_ROUND));
    }
    len - len % STRIPE_LEN
}

fn chunk_len_max(flags: BlockGroupFlags, total: u64) -> u64 {
    let by_kind = if flags.contains(BlockGroupFlags::SYSTEM) {
        SYSTEM_CHUNK_MAX
    } else if flags.contains(BlockGroupFlags::DATA) {
        DATA_CHUNK_MAX
    } else if total > LARGE_FROM {
        METADATA_CHUNK_MAX_LARGE
    } else {
        METADATA_CHUNK_MAX
    };
    by_kind.min(total / CHUNK_SHARE)
}

fn chunk_item(chunk: &Chunk, sub_stripes: u16, sector_size: u64) -> Vec<u8> {
    let stripe_len = u32::try_from(STRIPE_LEN).unwrap_or(u32::MAX);
    let head = items::Chunk {
        length: chunk.len_bytes().into(),
        owner: TreeId::EXTENT.0.into(),
        stripe_len: STRIPE_LEN.into(),
        chunk_type: chunk.flags().bits().into(),
        io_align: stripe_len.into(),
        io_width: stripe_len.into(),
        sector_size: u32::try_from(sector_size).unwrap_or(u32::MAX).into(),
        num_stripes: 0.into(),
        sub_stripes: sub_stripes.into(),
    };
    let stripes: Vec<items::Stripe> = chunk
        .stripes()
        .iter()
        .map(|stripe| items::Stripe {
            devid: stripe.device.0.into(),
            offset: stripe.offset.into(),
            dev_uuid: stripe.device_uuid,
        })
        .collect();
    ChunkItem::build(&head, &stripes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn devices(sizes: &[u64]) -> Vec<DeviceSpace> {
        let ids = 1u64..;
        ids.zip(sizes).map(|(id, size)| DeviceSpace::new(DevId(id), Uuid::NIL, *size)).collect()
    }

    fn planned(flags: BlockGroupFlags, devices: &[DeviceSpace]) -> Option<(u64, Vec<(u64, u64)>)> {
        let request = PlanRequest { flags, start: Logical(16 * MIB), sector_size: 4096, len_max: u64::MAX };
        let plan = plan(&request, devices).unwrap()?;
        let parsed = ChunkItem::parse(&plan.item).unwrap();
        assert_eq!(Chunk::from_item(Logical(16 * MIB), &parsed).unwrap(), plan.chunk);
        let stripes = plan.chunk.stripes().iter().map(|s| (s.device.0, s.offset)).collect();
        Some((plan.chunk.len_bytes(), stripes))
    }

    #[test]
    fn lengths_follow_kind_and_device_size() {
        let (data, metadata) = (BlockGroupFlags::DATA, BlockGroupFlags::METADATA);
        let len = |flags, size| planned(flags, &devices(&[size])).map(|(len, _)| len);
        assert_eq!(len(data, 100 * GIB), Some(GIB));
        assert_eq!(len(data, 5 * GIB), Some(512 * MIB));
        assert_eq!(len(data, GIB), Some(112 * MIB), "a tenth, rounded up to 16 MiB");
        assert_eq!(len(data, 10 * MIB), Some(9 * MIB), "what is there");
        assert_eq!(len(metadata, 20 * GIB), Some(256 * MIB));
        assert_eq!(len(metadata, 100 * GIB), Some(GIB));
        assert_eq!(len(BlockGroupFlags::SYSTEM, 20 * GIB), Some(32 * MIB));
        assert_eq!(len(data, 2 * MIB - 1), None);
    }

    #[test]
    fn dup_lies_twice_in_one_hole() {
        let dup = BlockGroupFlags::METADATA | BlockGroupFlags::DUP;
        let small = devices(&[128 * MIB]);
        assert_eq!(planned(dup, &small), Some((16 * MIB, vec![(1, MIB), (1, 17 * MIB)])));
        let rest = devices(&[5 * MIB + 65536]);
        assert_eq!(planned(dup, &rest), Some((2 * MIB, vec![(1, MIB), (1, 3 * MIB)])));
    }

    #[test]
    fn a_chunk_takes_the_first_hole_that_suffices_else_the_longest() {
        let mut devices = devices(&[GIB]);
        devices[0].free.subtract(Run { start: 3 * MIB, len: MIB });
        devices[0].free.subtract(Run { start: 500 * MIB, len: MIB });
        let (len, stripes) = planned(BlockGroupFlags::DATA, &devices).unwrap();
        assert_eq!((len, stripes[0].1), (112 * MIB, 4 * MIB));
        devices[0].free.subtract(Run { start: 60 * MIB, len: GIB });
        let (len, stripes) = planned(BlockGroupFlags::DATA, &devices).unwrap();
        assert_eq!((len, stripes[0].1), (56 * MIB, 4 * MIB));
    }

    #[test]
    fn profiles_of_several_devices_take_the_emptiest() {
        let three = devices(&[GIB, 2 * GIB, 3 * GIB]);
        let raid1 = BlockGroupFlags::METADATA | BlockGroupFlags::RAID1;
        let (len, stripes) = planned(raid1, &three).unwrap();
        assert_eq!((len, stripes), (256 * MIB, vec![(3, MIB), (2, MIB)]));
        let raid0 = BlockGroupFlags::DATA | BlockGroupFlags::RAID0;
        let (len, stripes) = planned(raid0, &three).unwrap();
        assert_eq!((len, stripes.len()), (3 * 208 * MIB, 3));
        let raid10 = BlockGroupFlags::DATA | BlockGroupFlags::RAID10;
        assert_eq!(planned(raid10, &three).unwrap().1.len(), 2);
        assert_eq!(planned(raid1, &three[..1]), None);
    }

    #[test]
    fn device_extents_must_not_overlap_or_leave_the_device() {
        let mut device = devices(&[GIB]).remove(0);
        let run = |start, len| Run { start, len };
        let end = device.note_extent(run(MIB, MIB), 0).unwrap();
        assert!(device.note_extent(run(MIB + 4096, MIB), end).is_err());
        assert!(device.note_extent(run(GIB - 4096, MIB), end).is_err());
        assert!(device.note_extent(run(u64::MAX, 2), end).is_err());
        assert_eq!((device.bytes_used(), device.unallocated()), (MIB, GIB - 2 * MIB));
    }
}
