//! Several devices as one logical address space, with verification and repair.
//!
//! ```text
//! Logical --chunk_map--> Chunk --plan (profile)--> (device, offset) parts --> blockdev
//!                                   read: any copy that verifies    write: every copy
//! ```
//!
//! A [`Pool`] is opened from the superblocks of its devices ([`supers`]). At first it knows only the system chunks of
//! the superblock's array; the reader of the chunk tree adds the others. The pool knows no trees: the caller passes the
//! required check of a range as a value ([`Expect`]), and the pool returns bytes that pass it, or an error.
//!
//! Invariants:
//! - chunks do not overlap, in logical addresses or on devices, and lie inside their devices;
//! - bytes that fail their check are never returned: after an error the buffer is zeroed;
//! - a copy is repaired only with bytes that passed their check, on a writable pool;
//! - no lock is held during I/O; the chunk map's is held for one search.
//!
//! Failures: `Corrupt` for addresses outside every chunk and contradictory chunk maps, `NoGoodCopy` with the error of
//! each copy, `Device` for writes and flushes (after which the caller must stop writing), `Unsupported` at open. Read
//! errors of one copy are counted, and do not fail the read if another copy is good.
//!
//! Callers: bootstrap and make open it; the tree cache reads blocks; commit writes blocks, flushes and writes
//! superblocks; data passes through the store.

// An index out of bounds panics, which neither disk data nor a caller may cause (STYLE 30).
#![deny(clippy::indexing_slicing)]

pub mod chunk;
pub mod chunk_map;
pub mod devices;
pub mod error;
pub mod locks;
pub mod members;
pub mod parity;
pub mod plan;
pub mod profile;
mod read;
pub mod supers;
mod twin;
pub mod workers;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use blockdev::Device;
use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::flags::{Incompat, SuperFlags};
use btrfs_disk::items::DevItem;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use btrfs_disk::{At, Corrupt, Detail, DevId, Logical, Uuid};
use codec::ChecksumType;

use locks::{Rank, RwLock};
use twin::Twin;

pub use chunk::{Chunk, Stripe};
pub use chunk_map::{ChunkMap, Occupancy};
pub use devices::{DeviceCounts, Devices, PoolDevice};
pub use error::{BadCopy, Cause, Error, MemberError, Result};
pub use members::{Member, Members, Mode, open_list};
pub use plan::{Part, Purpose};
pub use profile::Profile;
pub use read::{BlockCheck, Expect, check_sector};
pub use supers::{FsSuper, Intent};
pub use twin::Twinned;
pub use workers::Workers;
pub use write::DataRun;

/// Handling of a device that is shorter than its device item, when opening for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooShort {
    /// The open fails.
    #[default]
    Refused,
    /// Uses the real size of the device, which the next resize records. A chunk beyond it is an error.
    Cut,
}

/// Options for opening a pool. The default requires all devices and is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// For reading, or for writing as well.
    pub access: Intent,
    /// The devices that must be present.
    pub mode: Mode,
    /// Index of the only superblock copy to read, from 0.
    pub copy: Option<usize>,
    /// Handling of a device that is shorter than its device item.
    pub too_short: TooShort,
    /// Chunks with parity are accepted in a writable pool, too. They are not written.
    pub leaves_parity: bool,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            access: Intent::ReadOnly,
            mode: Mode::Strict,
            copy: None,
            too_short: TooShort::Refused,
            leaves_parity: false,
        }
    }
}

/// A file system's devices as one logical address space.
#[derive(Debug)]
pub struct Pool {
    devices: Devices,
    chunks: ChunkMap,
    layout: Layout,
    access: Intent,
    mode: Mode,
    /// Members one generation behind, and the error for each that was absent at the last commit.
    lagging: Vec<(DevId, MemberError)>,
    workers: Arc<Workers>,
    /// The device that gets what another one gets, if there is one.
    twin: RwLock<Option<Twin>>,
    /// Devices that failed since the pool was opened.
    losses: AtomicU64,
    leaves_parity: bool,
    /// No superblock is written.
    withholds_superblocks: AtomicBool,
}

/// Sizes and checksum type of a file system; fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a tree block.
    pub node_bytes: usize,
    /// Bytes of a data sector.
    pub sector_bytes: usize,
    /// Checksum of blocks and sectors.
    pub csum_type: ChecksumType,
}

impl Pool {
    /// Opens the file system on `devices`, and returns its superblock. The pool has only the system chunks then;
    /// missing devices are known after [`Self::settle_members`].
    ///
    /// # Errors
    /// `Unsupported` for features not supported with this access, `Corrupt`, `Device`, `Members` for devices that
    /// cannot be used together, `ReadOnly` for a read-only device.
    pub fn open(devices: &[Arc<dyn Device>], how: &Opening, workers: Arc<Workers>) -> Result<(Self, FsSuper)> {
        // Beside others it may be a seed.
        if how.access == Intent::ReadWrite && matches!(devices, [only] if only.is_read_only()) {
            return Err(Error::ReadOnly);
        }
        let members = Members::read(devices, how.access, how.copy, how.mode)?;
        let is_closed = |member: &Member| member.device().is_read_only() && members.seed_fsid_of(member).is_none();
        let (_, counting) = members.counting().ok_or(MemberError::None)?;
        supers::check_features(counting, how.access)?;
        if how.access == Intent::ReadWrite && members.iter().any(is_closed) {
            return Err(Error::ReadOnly);
        }
        let own = members.iter().filter(|member| members.seed_fsid_of(member).is_none());
        let items = own.filter_map(|member| Some(member.superblock()?.fields().dev_item));
        let superblock = FsSuper::new(counting.clone(), items);
        let mut pooled = Vec::new();
        for member in members.iter() {
            let Some(own) = member.superblock() else { continue };
            let item = &own.fields().dev_item;
            let total_bytes = size_in_use(&**member.device(), own, how, members.len())?;
            let device = PoolDevice::new(DevId(item.devid.get()), item.uuid, Arc::clone(member.device()), total_bytes);
            pooled.push(device.of_seed(members.seed_fsid_of(member).map(|_| own.fields().tree_fsid())));
        }
        if counting.fields().num_devices.get() > 1 {
            pooled.extend(missing_of_system(counting, &pooled)?);
        }
        let lagging = members.lagging().collect();
        Ok((Self { lagging, ..Self::new(pooled, how, &superblock, workers)? }, superblock))
    }

    /// A pool for another state of the file system on the same devices, each of them wrapped.
    ///
    /// # Errors
    /// `Corrupt` for invalid system chunks.
    pub fn view(&self, superblock: &Superblock, wrap: impl Fn(Arc<dyn Device>) -> Arc<dyn Device>) -> Result<Self> {
        let wrapped = |device: &PoolDevice| {
            let (id, uuid, total_bytes) = (device.id(), device.uuid(), device.total_bytes());
            match device.is_missing() {
                true => PoolDevice::missing(id, uuid, total_bytes),
                false => PoolDevice::new(id, uuid, wrap(Arc::clone(device.device())), total_bytes)
                    .of_seed(device.seed_fsid()),
            }
        };
        let devices = self.devices.iter().map(wrapped).collect();
        let how = Opening { mode: self.mode, ..Opening::default() };
        Self::new(devices, &how, superblock, Arc::clone(&self.workers))
    }

    fn new(devices: Vec<PoolDevice>, how: &Opening, superblock: &Superblock, workers: Arc<Workers>) -> Result<Self> {
        let fields = superblock.fields();
        let layout = Layout {
            node_bytes: usize_from(fields.nodesize.get()),
            sector_bytes: usize_from(fields.sectorsize.get()),
            csum_type: superblock.csum_type(),
        };
        let (devices, chunks, mode) = (Devices::new(devices), ChunkMap::new(), how.mode);
        let pool = Self::with(devices, chunks, layout, (how.access, mode), workers);
        let pool = Self { leaves_parity: how.leaves_parity, ..pool };
        pool.add_system_chunks(superblock)?;
        Ok(pool)
    }

    /// Compares the members with the devices in the chunk tree (`items`), and adds the missing ones. Call it before
    /// adding other chunks.
    ///
    /// # Errors
    /// `Members` for missing devices that the mode does not allow, and for an unlisted member; `Corrupt` if the
    /// superblock disagrees.
    pub fn settle_members(&self, superblock: &Superblock, items: &[DevItem]) -> Result<()> {
        for device in self.devices.present() {
            let id = device.id();
            let Some(item) = items.iter().find(|item| item.devid.get() == id.0) else {
                return Err(MemberError::Removed { device: device.device().name().to_owned(), id }.into());
            };
            if item.uuid != device.uuid() {
                let (expected, found) = (Detail::Uuid(item.uuid.0), Detail::Uuid(device.uuid().0));
                return Err(Corrupt::new("UUID of a device", expected, found)
                    .at(At::Superblock(SUPERBLOCK_OFFSET))
                    .into());
            }
        }
        self.settle_seeds(superblock, items)?;
        let (listed, count) = (to_u64(items.len()), superblock.fields().num_devices.get());
        if listed != count {
            let (expected, found) = (Detail::Number(listed), Detail::Number(count));
            return Err(Corrupt::new("number of devices", expected, found)
                .at(At::Superblock(SUPERBLOCK_OFFSET))
                .into());
        }
        for item in items {
            // The superblock names missing devices of system chunks without their size.
            let known = self.devices.get(DevId(item.devid.get())).filter(|device| device.is_missing());
            known.into_iter().for_each(|device| device.set_total_bytes(item.total_bytes.get()));
        }
        let is_known = |item: &&DevItem| self.devices.get(DevId(item.devid.get())).is_some();
        let others = items.iter().filter(|item| !is_known(item));
        let own = superblock.fields().dev_item.fsid;
        let missing = others.map(|item| {
            let device = PoolDevice::missing(DevId(item.devid.get()), item.uuid, item.total_bytes.get());
            device.of_seed((item.fsid != own).then_some(item.fsid))
        });
        self.devices.add_missing(missing.collect());
        match self.missing(count) {
            Some(error) if self.mode == Mode::Strict => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Compares the seeds among the members with those that the chunk tree has.
    fn settle_seeds(&self, superblock: &Superblock, items: &[DevItem]) -> Result<()> {
        let own = superblock.fields().dev_item.fsid;
        for item in items {
            let expected = (item.fsid != own).then_some(item.fsid);
            let known = self.devices.get(DevId(item.devid.get())).filter(|device| !device.is_missing());
            let found = known.map_or(expected, PoolDevice::seed_fsid);
            if found.is_some() && found != expected {
                let found = Detail::Uuid(found.unwrap_or(own).0);
                return Err(Corrupt::new("file system of a seed", Detail::Uuid(item.fsid.0), found)
                    .at(At::Superblock(SUPERBLOCK_OFFSET))
                    .into());
            }
        }
        Ok(())
    }

    /// A writable pool for a sprout: the devices of a seed, then those of its own seeds, and a new one, with the
    /// superblock of its first commit. It has only the seed's system chunks.
    ///
    /// # Errors
    /// `Unsupported` for a volume that is no seed, or that has a log or a UUID of its own for metadata; as
    /// [`Self::open`].
    pub fn sprout(
        seeds: &[Arc<dyn Device>],
        new: (Arc<dyn Device>, DevItem),
        workers: Arc<Workers>,
    ) -> Result<(Self, FsSuper)> {
        let (seed, superblock) = Self::open(seeds, &Opening::default(), Arc::clone(&workers))?;
        let mut fields = *superblock.fields();
        let (device, mut item) = new;
        if !fields.super_flags().contains(SuperFlags::SEEDING) {
            return Err(Error::unsupported("a sprout of a volume that is no seed"));
        }
        if fields.log_root.get() != 0 || fields.incompat().contains(Incompat::METADATA_UUID) {
            return Err(Error::unsupported("a sprout of a seed with a log or a metadata UUID"));
        }
        if let Some(error) = seed.missing(fields.num_devices.get()) {
            return Err(error.into());
        }
        let seed_fsid = fields.tree_fsid();
        let of_seed = |known: &PoolDevice| {
            let fsid = known.seed_fsid().unwrap_or(seed_fsid);
            PoolDevice::new(known.id(), known.uuid(), Arc::clone(known.device()), known.total_bytes())
                .of_seed(Some(fsid))
        };
        let (earlier, own): (Vec<_>, Vec<_>) = seed.devices.iter().partition(|known| known.seed_fsid().is_some());
        let mut devices: Vec<PoolDevice> = own.into_iter().chain(earlier).map(of_seed).collect();
        let last = devices.iter().map(|device| device.id().0).max().unwrap_or(0);
        item.devid = last.saturating_add(1).into();
        let id = DevId(item.devid.get());
        devices.push(PoolDevice::new(id, item.uuid, device, item.total_bytes.get()));
        let mut flags = fields.super_flags();
        flags.set(SuperFlags::SEEDING, false);
        fields.flags = flags.bits().into();
        (fields.fsid, fields.dev_item) = (item.fsid, item);
        fields.num_devices = (fields.num_devices.get() + 1).into();
        fields.total_bytes = fields.total_bytes.get().saturating_add(item.total_bytes.get()).into();
        let superblock = FsSuper::new(Superblock::new(fields)?, []);
        let how = Opening { access: Intent::ReadWrite, ..Opening::default() };
        Ok((Self::new(devices, &how, &superblock, workers)?, superblock))
    }

    /// True for a chunk of a seed, which never changes.
    #[must_use]
    pub fn is_on_seed(&self, chunk: &Chunk) -> bool {
        chunk.stripes().iter().any(|stripe| self.device(stripe.device).seed_fsid().is_some())
    }

    /// The file systems whose tree blocks are those of this one too: its seeds.
    #[must_use]
    pub fn seed_fsids(&self) -> Vec<Uuid> {
        let mut fsids: Vec<Uuid> = self.devices.iter().filter_map(PoolDevice::seed_fsid).collect();
        fsids.dedup();
        fsids
    }

    /// The error of writing to a chunk some bytes of which have no copy on a device that is there.
    #[must_use]
    pub fn loss_of(&self, chunk: &Chunk) -> Option<MemberError> {
        let is_missing = |stripe: &Stripe| self.device(stripe.device).is_missing();
        if chunk.is_whole_without(is_missing) {
            return None;
        }
        let missing = chunk.stripes().iter().filter(|stripe| is_missing(stripe)).map(|stripe| stripe.device);
        let (at, profile) = (chunk.start(), chunk.profile().to_string());
        Some(MemberError::Lost { at, profile, missing: missing.collect() })
    }

    /// The missing devices out of `count`, as far as known.
    #[must_use]
    pub fn missing(&self, count: u64) -> Option<MemberError> {
        let present = self.devices.present().count();
        let missing: Vec<DevId> =
            self.devices.iter().filter(|device| device.is_missing()).map(PoolDevice::id).collect();
        (to_u64(present) < count).then_some(MemberError::Missing { present, count, missing })
    }

    /// A writable pool without chunks, for a new file system.
    #[must_use]
    pub fn create(devices: Vec<PoolDevice>, layout: Layout, workers: Arc<Workers>) -> Self {
        let (devices, chunks) = (Devices::new(devices), ChunkMap::new());
        let (access, mode) = (Intent::ReadWrite, Mode::Strict);
        Self::with(devices, chunks, layout, (access, mode), workers)
    }

    fn with(
        devices: Devices,
        chunks: ChunkMap,
        layout: Layout,
        (access, mode): (Intent, Mode),
        workers: Arc<Workers>,
    ) -> Self {
        let (twin, losses) = (RwLock::new(Rank::Writes, None), AtomicU64::new(0));
        let withholds_superblocks = AtomicBool::new(false);
        let (lagging, leaves_parity) = (Vec::new(), false);
        Self {
            devices,
            chunks,
            layout,
            access,
            mode,
            lagging,
            workers,
            twin,
            losses,
            leaves_parity,
            withholds_superblocks,
        }
    }

    /// Adds a chunk; an existing equal one is ignored.
    ///
    /// # Errors
    /// `Corrupt` if it contradicts other chunks or its devices; `Unsupported` for parity in a writable pool.
    pub fn add_chunk(&self, chunk: Chunk) -> Result<()> {
        if self.is_writable() && chunk.is_parity() && !self.leaves_parity {
            let what = format!("writing with {} block groups (reading is possible)", chunk.profile());
            return Err(Error::unsupported(what));
        }
        self.chunks.add(chunk, &self.devices)
    }

    /// The members one generation behind, and the error that refuses each if it was absent at the last commit.
    #[must_use]
    pub fn lagging(&self) -> &[(DevId, MemberError)] {
        &self.lagging
    }

    /// The copy of a tree block that lies on a device, unverified; `None` where none lies there as a whole.
    #[must_use]
    pub fn block_on(&self, device: DevId, at: Logical) -> Option<blockdev::Result<Vec<u8>>> {
        let len = self.node_bytes();
        let chunk = self.chunks().lookup(at, to_u64(len)).ok()?;
        let is_there = |mirror: &u32| {
            let parts = plan::plan(&chunk, at, to_u64(len), Purpose::Read(*mirror));
            parts.iter().all(|part| part.device == device)
        };
        let mirror = (0..chunk.profile().mirror_count()).find(is_there)?;
        let mut bytes = vec![0; len];
        Some(self.read_parts(&chunk, at, &mut bytes, mirror).map(|()| bytes))
    }

    /// The chunks.
    #[must_use]
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Sizes and checksum.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Checksum of blocks and sectors.
    #[must_use]
    pub fn csum_type(&self) -> ChecksumType {
        self.layout.csum_type
    }

    /// Bytes of a data sector.
    #[must_use]
    pub fn sector_bytes(&self) -> usize {
        self.layout.sector_bytes
    }

    /// Bytes of a tree block.
    #[must_use]
    pub fn node_bytes(&self) -> usize {
        self.layout.node_bytes
    }

    /// Whether it is writable, so that bad copies are repaired.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.access == Intent::ReadWrite
    }

    /// Worker threads for CPU-bound work.
    #[must_use]
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Writes every copy of the superblock to every member. The caller flushes before, since superblocks refer to
    /// blocks written until then. On return the primaries are durable; the mirrors become durable with the next flush,
    /// before primaries are written again.
    ///
    /// # Errors
    /// `Corrupt` for an invalid superblock, or the device's error.
    pub fn write_superblock(&self, superblock: &FsSuper) -> Result<()> {
        self.write_primary_superblock(superblock)?;
        self.write_superblock_mirrors(superblock)
    }

    /// Writes the primary copies only, which are durable on return: for a superblock that differs from the last only in
    /// the log root, which mirrors do not refer to.
    ///
    /// # Errors
    /// As [`Self::write_superblock`].
    pub fn write_primary_superblock(&self, superblock: &FsSuper) -> Result<()> {
        self.check_writable()?;
        if self.withholds_superblocks.load(Ordering::Acquire) {
            return Ok(());
        }
        for device in supers::members(&self.devices, superblock) {
            self.or_without(device, supers::write_primary(device, superblock))?;
        }
        for device in supers::members(&self.devices, superblock) {
            self.or_without(device, device.flush().map_err(Error::from))?;
        }
        Ok(())
    }

    /// Has superblocks written from now on, or not: those of a file system that is still being made must not be found.
    pub fn withhold_superblocks(&self, withholds: bool) {
        self.withholds_superblocks.store(withholds, Ordering::Release);
    }

    /// Writes the mirrors of a superblock whose primaries are written.
    ///
    /// # Errors
    /// As [`Self::write_superblock`].
    pub fn write_superblock_mirrors(&self, superblock: &FsSuper) -> Result<()> {
        self.check_writable()?;
        if self.withholds_superblocks.load(Ordering::Acquire) {
            return Ok(());
        }
        for device in supers::members(&self.devices, superblock) {
            self.or_without(device, supers::write_mirrors(device, superblock))?;
        }
        Ok(())
    }

    /// The device of a chunk's stripe.
    fn device(&self, id: DevId) -> &PoolDevice {
        self.devices.get_any(id).expect("the chunk map refuses devices that the pool does not have")
    }

    fn add_system_chunks(&self, superblock: &Superblock) -> Result<()> {
        for chunk in superblock.system_chunks() {
            let (key, item) = chunk?;
            self.add_chunk(Chunk::from_item(Logical(key.offset), &item)?)?;
        }
        Ok(())
    }
}

/// Bytes of a member that the file system uses.
fn size_in_use(device: &dyn Device, own: &Superblock, how: &Opening, members: usize) -> Result<u64> {
    let fields = own.fields();
    let total_bytes = fields.dev_item.total_bytes.get();
    match (how.access, how.too_short) {
        // A read beyond the end of the device fails.
        (Intent::ReadOnly, _) if members == 1 || how.mode == Mode::Degraded => Ok(total_bytes),
        (Intent::ReadWrite, TooShort::Cut) => {
            let sector = u64::from(fields.sectorsize.get()).max(1);
            Ok(total_bytes.min(device.size_bytes() - device.size_bytes() % sector))
        }
        _ if members > 1 && device.size_bytes() < total_bytes => {
            let (id, found) = (DevId(fields.dev_item.devid.get()), device.size_bytes());
            Err(MemberError::CutShort { device: device.name().to_owned(), id, found, expected: total_bytes }.into())
        }
        _ => check_device_size(device, total_bytes).map(|()| total_bytes),
    }
}

/// The missing devices of system chunks; the chunk tree has the others.
fn missing_of_system(superblock: &Superblock, present: &[PoolDevice]) -> Result<Vec<PoolDevice>> {
    let mut missing: Vec<PoolDevice> = Vec::new();
    for chunk in superblock.system_chunks() {
        let (_, item) = chunk?;
        for stripe in item.stripes {
            let id = DevId(stripe.devid.get());
            if !present.iter().chain(&missing).any(|known| known.id() == id) {
                missing.push(PoolDevice::missing(id, stripe.dev_uuid, u64::MAX));
            }
        }
    }
    Ok(missing)
}

fn check_device_size(device: &dyn Device, total_bytes: u64) -> Result<()> {
    let found = device.size_bytes();
    if found >= total_bytes {
        return Ok(());
    }
    let error = Corrupt::new("size of the device", Detail::AtLeast(total_bytes), Detail::Number(found));
    Err(error.at(At::Superblock(SUPERBLOCK_OFFSET)).into())
}

#[cfg(test)]
mod tests;
