//! Finds a superblock on any device or mirror, or guesses the format if none is left. Called by `rescue`.

use std::sync::Arc;

use blockdev::Device;
use btrfs_check::{Disk, Media};
use btrfs_disk::flags::Incompat;
use btrfs_disk::superblock::DiskSuperblock;
use btrfs_disk::verify::{Format, SEEDS_MAX};
use btrfs_disk::{DevId, Logical, Uuid};
use btrfs_pool::{Chunk, Members};

use crate::error::Error;
use crate::scan::guess;
use crate::watch::Watch;

/// Default sector size of mkfs, used if no superblock records it.
const SECTOR_BYTES: u32 = 4096;

/// The devices, superblock and format for a rescue.
pub(crate) struct Opened {
    pub(crate) media: Media,
    pub(crate) fields: Option<Box<DiskSuperblock>>,
    /// Damage found.
    pub(crate) notes: Vec<String>,
}

/// Finds superblocks on all devices, or guesses the format from tree blocks.
///
/// # Errors
/// Where there is no trace of a file system, or there are traces of two.
pub(crate) fn open(devices: &[Arc<dyn Device>], watch: &dyn Watch) -> Result<Opened, Error> {
    let members = Members::salvage(devices)?;
    let mut notes = Vec::new();
    for member in members.iter().filter(|member| member.copies().primary().is_none()) {
        for (offset, copy) in member.copies().iter() {
            if let Err(error) = copy {
                notes.push(format!("{}: superblock at byte {offset}: {error}", member.device().name()));
            }
        }
    }
    notes.extend(members.stale().map(|stale| stale.to_string()));
    let chosen = members.counting().map(|(_, superblock)| superblock);
    let fields = chosen.map(|chosen| Box::new(*chosen.fields()));
    let disks = disks(&members);
    let format = match &fields {
        Some(fields) => Format::of(fields).ok_or_else(|| Error::Unsupported("this checksum type".to_owned()))?,
        None => {
            let (fsid, nodesize, csum_type) = guess(&disks, watch).ok_or(Error::NothingFound)?;
            notes
                .push(format!("no superblock is left: {nodesize} bytes a tree block, {csum_type}, as tree blocks say"));
            let incompat = Incompat::from_bits_retain(0);
            let seeds = [Uuid::NIL; SEEDS_MAX];
            Format { fsid, nodesize, sectorsize: SECTOR_BYTES, csum_type, incompat, checks_csum_items: false, seeds }
        }
    };
    let mut media = Media::new(disks, format.with_seeds(&members.seed_fsids()), u64::MAX);
    if let Some(chosen) = chosen {
        for (key, item) in chosen.system_chunks().flatten() {
            if let Ok(chunk) = Chunk::from_item(Logical(key.offset), &item) {
                // A chunk that overlaps another cannot be trusted.
                let _ = media.add_chunk(chunk);
            }
        }
        let expected = chosen.fields().num_devices.get();
        if expected > u64::try_from(devices.len()).unwrap_or(u64::MAX) {
            notes.push(format!("the file system has {expected} devices, {} are given (--device)", devices.len()));
        }
    }
    Ok(Opened { media, fields, notes })
}

/// The devices with their ids. A device without a superblock gets the next free id.
fn disks(members: &Members) -> Vec<Disk> {
    let mut taken: Vec<u64> = members.iter().filter_map(|member| member.id()).map(|id| id.0).collect();
    let with = members.iter().map(|member| {
        let device = member.device();
        let (id, uuid, total_bytes) = match member.superblock() {
            Some(copy) => {
                let item = &copy.fields().dev_item;
                (item.devid.get(), item.uuid, item.total_bytes.get())
            }
            None => {
                let free = (1..).find(|id| !taken.contains(id)).unwrap_or(1);
                taken.push(free);
                (free, Uuid::NIL, device.size_bytes())
            }
        };
        Disk { id: DevId(id), uuid, total_bytes, device: Arc::clone(device) }
    });
    with.collect()
}
