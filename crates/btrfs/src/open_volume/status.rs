//! Reports the numbers of `df`, and changes the volume's size. Called by `vfs_impl` and by `volume`.

use btrfs_disk::DevId;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::Profile;
use btrfs_store::{ProfileSpace, SpaceReport};
use vfs::file_system::{Size, VolumeStatus};

use super::OpenVolume;
use crate::balance;
use crate::dir::NAME_BYTES_MAX;
use crate::error::{CallerError, Error, Result};

/// The least global reserve of the kernel, in tree blocks: 22 items, each a path of eight blocks that are copied and
/// split.
const KEPT_BLOCKS_MIN: u64 = 22 * 16;
/// The largest.
const KEPT_BYTES_MAX: u64 = 512 << 20;
/// With less free for tree blocks than this beyond the global reserve, and no room for more chunks, the kernel reports
/// nothing available.
const METADATA_BYTES_MIN: u64 = 4 << 20;
/// Chunks are made of stripes of this length.
const STRIPE_BYTES: u64 = 64 << 10;

impl OpenVolume {
    /// The numbers of `statfs`, as the kernel's btrfs computes them. Sizes are those of file data, as if everything
    /// were stored with its profile; unallocated space counts as available for it.
    pub(crate) fn status(&self) -> VolumeStatus {
        let store = &self.core().store;
        let sizes = store.sizes();
        let sector = u64::from(sizes.sector);
        let report = store.space();
        let total = store.superblock().fields().total_bytes.get();
        let kept = report.global_reserve.1.max(KEPT_BLOCKS_MIN * u64::from(sizes.node)).min(KEPT_BYTES_MAX);
        let mut status = status_of(&report, total, kept, sector);
        status.name_bytes_max = u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX);
        status
    }

    /// [`crate::Volume::device_bytes`].
    pub(crate) fn device_bytes(&self) -> u64 {
        self.core().store.devices().iter().fold(0, |sum, device| device.device_bytes.saturating_add(sum))
    }

    /// [`crate::Volume::least_bytes`].
    pub(crate) fn least_bytes(&self) -> Result<u64> {
        if self.is_read_only() {
            return Err(CallerError::ReadOnly.into());
        }
        // Deleted data is free when a commit without it is durable, and its groups are empty then.
        self.sync()?;
        let store = &self.core().store;
        let device = store.default_device();
        Ok(store.least_bytes(device)?.saturating_add(self.bytes_beside(device)))
    }

    /// Bytes of the volume on other devices than this one.
    fn bytes_beside(&self, device: DevId) -> u64 {
        let devices = self.core().store.devices();
        devices.iter().filter(|other| other.id != device).fold(0, |sum, other| other.total_bytes.saturating_add(sum))
    }

    /// Sets the size of the volume and its image file, rounded down to whole sectors: the file grows before the volume
    /// does, and shrinks when the volume's size is durable. Returns the new size.
    ///
    /// # Errors
    /// `NoSpace`, and the size stays, where data beyond the new end has no room before it; `Io` where a device is
    /// smaller; `ReadOnly`; as [`vfs::Volume::sync`].
    pub(crate) fn resize(&self, size: Size) -> Result<u64> {
        let least = self.least_bytes()?;
        let (core, store) = (self.core(), &self.core().store);
        let device = store.default_device();
        let beside = self.bytes_beside(device);
        let bytes = match size {
            Size::Least => balance::gather(core, device)?,
            Size::Bytes(bytes) => {
                // The size of the volume changes by that of one device.
                let own = bytes.saturating_sub(beside);
                if bytes < least {
                    balance::clear_from(core, device, own - own % u64::from(store.sizes().sector))?;
                }
                own
            }
        };
        store.resize(device, bytes)?;
        Ok(store.superblock().fields().total_bytes.get())
    }
}

impl OpenVolume {
    /// As [`Self::resize`], of one device: the size is that of the device, which is returned.
    ///
    /// # Errors
    /// `NotFound` for a device that the volume does not have; `Unsupported` for one that is missing, or a seed; as
    /// [`Self::resize`].
    pub(crate) fn resize_device(&self, id: DevId, size: Size) -> Result<u64> {
        let (core, store) = (self.core(), &self.core().store);
        if self.is_read_only() {
            return Err(CallerError::ReadOnly.into());
        }
        self.sync()?;
        let devices = store.devices();
        let device = devices.iter().find(|device| device.id == id).ok_or(CallerError::NotFound)?;
        if device.is_missing || device.is_seed {
            return Err(Error::Unsupported("a new size of a device that is missing, or a seed".into()));
        }
        let bytes = match size {
            Size::Least => balance::gather(core, id)?,
            Size::Bytes(bytes) => {
                let bytes = bytes - bytes % u64::from(store.sizes().sector);
                if bytes < store.least_bytes(id)? {
                    balance::clear_from(core, id, bytes)?;
                }
                bytes
            }
        };
        store.resize(id, bytes)?;
        let devices = store.devices();
        Ok(devices.iter().find(|device| device.id == id).map_or(0, |device| device.total_bytes))
    }
}

fn status_of(report: &SpaceReport, total: u64, kept: u64, sector: u64) -> VolumeStatus {
    let data = |space: &&ProfileSpace| space.flags.contains(BlockGroupFlags::DATA);
    let mixed = |space: &ProfileSpace| {
        let both = BlockGroupFlags::DATA | BlockGroupFlags::METADATA;
        space.flags.contains(both)
    };
    let is_mixed = report.profiles.iter().any(mixed);
    // A profile that is being converted to another counts as the one with fewer copies.
    let copies = report.profiles.iter().filter(data).map(copies_of).min();
    let copies = copies.unwrap_or(1);
    let used: u64 = report.profiles.iter().map(|space| space.used.saturating_mul(copies_of(space))).sum();
    let free_in = |space: &ProfileSpace| {
        let free = space.total.saturating_sub(space.used);
        free.saturating_mul(copies_of(space))
    };
    let free_data: u64 = report
        .profiles
        .iter()
        .filter(data)
        .map(|space| {
            let read_only = space.read_only.saturating_mul(copies_of(space));
            free_in(space).saturating_sub(read_only)
        })
        .sum();
    let free_metadata: u64 =
        report.profiles.iter().filter(|space| space.flags.contains(BlockGroupFlags::METADATA)).map(free_in).sum();
    let growable = report.addable.saturating_mul(copies);
    let growable = match growable - growable % STRIPE_BYTES {
        bytes if bytes > STRIPE_BYTES * copies => bytes,
        _ => 0,
    };
    let blocks = total / copies / sector;
    let is_exhausted = !is_mixed && report.is_metadata_full && free_metadata.saturating_sub(METADATA_BYTES_MIN) < kept;
    VolumeStatus {
        block_bytes: u32::try_from(sector).unwrap_or(u32::MAX),
        blocks,
        blocks_free: blocks.saturating_sub(used / copies / sector).saturating_sub(kept / sector),
        blocks_available: match is_exhausted {
            true => 0,
            false => (free_data / copies + growable / copies) / sector,
        },
        ..VolumeStatus::default()
    }
}

/// How many copies of each byte a profile stores.
fn copies_of(space: &ProfileSpace) -> u64 {
    Profile::from_flags(space.flags).map_or(1, |profile| profile.mirror_count().into())
}
