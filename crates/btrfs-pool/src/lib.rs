//! Many devices as one logical address space, checked and mended.
//!
//! ```text
//! Logical --chunk_map--> Chunk --plan (profile)--> (device, offset) parts --> blockdev
//!                                   read: any copy that verifies    write: every copy
//! ```
//!
//! A [`Pool`] is opened from the superblock of its devices ([`supers`]) and at first knows
//! the system chunks alone, from the superblock's array; the code that reads the chunk tree adds the
//! others. It knows nothing of trees: what a range must be is told by the caller as a
//! value ([`Expect`]), and the pool answers with bytes that are so, or an error.
//!
//! Invariants:
//! - chunks do not overlap, in logical addresses or on devices, and lie inside their devices;
//! - bytes that fail their check are never handed out: the buffer is zeros after an error;
//! - a copy is mended only with bytes that passed their check, on a writable pool;
//! - there is no lock over I/O; the chunk map's is held for one search.
//!
//! How it fails: `Corrupt` for addresses outside every chunk and chunk maps that contradict
//! themselves, `NoGoodCopy` with what was wrong with each copy, `Device` for writes and
//! flushes (which the caller must treat as the end of writing), `Unsupported` at open.
//! Read errors of one copy are counted, and are no failure as long as another is good.
//!
//! Who calls it: bootstrap and make open it; the tree cache reads blocks; commit writes
//! blocks, flushes and writes superblocks; data passes through the store.

// An index outside its array is a panic, which no bytes of a disk and no caller may cause (STYLE 30).
#![deny(clippy::indexing_slicing)]

pub mod chunk;
pub mod chunk_map;
pub mod devices;
pub mod error;
pub mod locks;
pub mod plan;
pub mod profile;
mod read;
pub mod supers;
pub mod workers;
mod write;

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::convert::usize_from;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use btrfs_disk::{At, Corrupt, Detail, DevId, Logical};
use codec::ChecksumType;

pub use chunk::{Chunk, Stripe};
pub use chunk_map::ChunkMap;
pub use devices::{DeviceCounts, Devices, PoolDevice};
pub use error::{BadCopy, Cause, Error, Result};
pub use plan::{Part, Purpose};
pub use profile::Profile;
pub use read::{BlockCheck, Expect, check_sector};
pub use supers::Access;
pub use workers::Workers;
pub use write::DataRun;

/// How a pool is opened for writing when a device is shorter than its device item says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooShort {
    /// The open fails.
    #[default]
    Refused,
    /// The real size of the device is used, and the next resize records it. A chunk beyond it is an error.
    Cut,
}

/// Devices as one logical address space.
#[derive(Debug)]
pub struct Pool {
    devices: Devices,
    chunks: ChunkMap,
    layout: Layout,
    access: Access,
    workers: Arc<Workers>,
}

/// Sizes and checksum of a file system; fixed when it is made.
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
    /// Opens the file system on `devices`, and returns its superblock. The pool knows the
    /// system chunks then.
    ///
    /// # Errors
    /// `Unsupported` for what cannot be had with this access, `Corrupt`, `Device`,
    /// `ReadOnly` for a device that cannot be written.
    pub fn open(devices: Vec<Arc<dyn Device>>, access: Access, workers: Arc<Workers>) -> Result<(Self, Superblock)> {
        Self::open_at(devices, access, None, TooShort::Refused, workers)
    }

    /// As [`Self::open`], with one copy of the superblock, by its number from 0, and no other.
    ///
    /// # Errors
    /// As [`Self::open`]; `Unsupported` for a copy that the device has no room for.
    pub fn open_at(
        devices: Vec<Arc<dyn Device>>,
        access: Access,
        copy: Option<usize>,
        too_short: TooShort,
        workers: Arc<Workers>,
    ) -> Result<(Self, Superblock)> {
        let device = the_only(devices)?;
        if access == Access::ReadWrite && device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let superblock = match copy {
            None => supers::read(&*device, access)?,
            Some(copy) => supers::read_one(&*device, copy)?,
        };
        let pool = Self::open_as(device, access, &superblock, too_short, workers)?;
        Ok((pool, superblock))
    }

    /// As [`Self::open`], by this superblock.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as(
        device: Arc<dyn Device>,
        access: Access,
        superblock: &Superblock,
        too_short: TooShort,
        workers: Arc<Workers>,
    ) -> Result<Self> {
        supers::check_features(superblock, access)?;
        let fields = superblock.fields();
        let item = &fields.dev_item;
        let mut total_bytes = item.total_bytes.get();
        match (access, too_short) {
            // A read beyond the end of the device fails.
            (Access::ReadOnly, _) => {}
            (Access::ReadWrite, TooShort::Refused) => check_device_size(&*device, total_bytes)?,
            (Access::ReadWrite, TooShort::Cut) => {
                let sector = u64::from(fields.sectorsize.get()).max(1);
                total_bytes = total_bytes.min(device.size_bytes() - device.size_bytes() % sector);
            }
        }
        let id = DevId(item.devid.get());
        let device = PoolDevice::new(id, item.uuid, device, total_bytes);
        let layout = Layout {
            node_bytes: usize_from(fields.nodesize.get()),
            sector_bytes: usize_from(fields.sectorsize.get()),
            csum_type: superblock.csum_type(),
        };
        let chunks = ChunkMap::new();
        let pool = Self { devices: Devices::new(vec![device]), chunks, layout, access, workers };
        pool.add_system_chunks(superblock)?;
        Ok(pool)
    }

    /// A writable pool without chunks, for a file system that is being made.
    #[must_use]
    pub fn create(devices: Vec<PoolDevice>, layout: Layout, workers: Arc<Workers>) -> Self {
        let (devices, chunks) = (Devices::new(devices), ChunkMap::new());
        Self { devices, chunks, layout, access: Access::ReadWrite, workers }
    }

    /// Adds a chunk; one that is there already changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when it contradicts the others or its devices.
    pub fn add_chunk(&self, chunk: Chunk) -> Result<()> {
        self.chunks.add(chunk, &self.devices)
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

    /// Whether it may be written, and bad copies are mended.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// Threads for work on bytes.
    #[must_use]
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Writes every copy of the superblock to the device that its device item names. The
    /// caller flushes before; the primary copy is durable after.
    ///
    /// # Errors
    /// `Corrupt` for a superblock that must not reach a disk, or the device's.
    pub fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        supers::write(self.device_of(superblock)?, superblock)
    }

    /// Writes the primary copy alone, which is durable after: for a superblock that differs from
    /// the one before in the place of the log, which mirrors do not lead to.
    ///
    /// # Errors
    /// As [`Self::write_superblock`].
    pub fn write_primary_superblock(&self, superblock: &Superblock) -> Result<()> {
        supers::write_primary(self.device_of(superblock)?, superblock)
    }

    /// Writes the mirrors of a superblock whose primary copy is on the device already.
    ///
    /// # Errors
    /// As [`Self::write_superblock`].
    pub fn write_superblock_mirrors(&self, superblock: &Superblock) -> Result<()> {
        supers::write_mirrors(self.device_of(superblock)?, superblock)
    }

    fn device_of(&self, superblock: &Superblock) -> Result<&PoolDevice> {
        self.check_writable()?;
        let id = DevId(superblock.fields().dev_item.devid.get());
        self.devices.get(id).ok_or_else(|| {
            let expected = Detail::Text("a device of this file system");
            let found = Detail::Number(id.0);
            let at = At::Superblock(SUPERBLOCK_OFFSET);
            Corrupt::new("device of the superblock", expected, found).at(at).into()
        })
    }

    /// The device of a chunk's stripe.
    fn device(&self, id: DevId) -> &PoolDevice {
        self.devices.get(id).expect("the chunk map refuses devices that the pool does not have")
    }

    fn add_system_chunks(&self, superblock: &Superblock) -> Result<()> {
        for chunk in superblock.system_chunks() {
            let (key, item) = chunk?;
            self.add_chunk(Chunk::from_item(Logical(key.offset), &item)?)?;
        }
        Ok(())
    }
}

fn the_only(devices: Vec<Arc<dyn Device>>) -> Result<Arc<dyn Device>> {
    let count = devices.len();
    match <[_; 1]>::try_from(devices) {
        Ok([device]) => Ok(device),
        Err(_) => Err(Error::unsupported(format!("{count} devices"))),
    }
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
