//! Tries logs with wrong values and right checksums: the volume opens, or the log is refused. Called by `log_replay`
//! for each dirty image.

use super::crash::load;
use super::dirty_image::Dirty;
use crate::diff_walk::library;
use anyhow::{Context, Result, bail, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::Volume;
use btrfs_disk::TreeId;
use btrfs_disk::node::{HEADER_SIZE, LeafView, header};
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock};
use btrfs_disk::verify::{Format, seal};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use testkit::Random;

/// Blocks start at multiples of this on the device.
const SECTOR_BYTES: usize = 4096;
/// Most wrong values in one log.
const CHANGES_MAX: u64 = 4;

/// Offsets of the copies of each block of the log, by its address.
type Blocks = BTreeMap<u64, Vec<u64>>;

/// Tries `count` wrong logs; returns the number of refused ones.
pub(super) fn run(dirty: &Dirty, count: u64) -> Result<u64> {
    if count == 0 {
        return Ok(0);
    }
    let image = load(&dirty.path)?;
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    image.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let superblock = UncheckedSuperblock::new(&bytes)?.verify(SUPERBLOCK_OFFSET)?;
    let blocks = log_blocks(&image, &superblock)?;
    ensure!(!blocks.is_empty(), "no block of the log was found");
    let format = Format::of(superblock.fields()).context("unknown checksums")?;
    let mut refused = 0u64;
    for number in 0..count {
        let device = image.duplicate();
        let mut random = Random::new(superblock.generation().0 ^ number << 32);
        for _ in 0..random.between(1, CHANGES_MAX) {
            spoil(&device, &blocks, &format, &mut random)?;
        }
        refused = refused.saturating_add(u64::from(!opens(device, number)?));
    }
    Ok(refused)
}

/// True if the volume opened; errors in it are met by the walk, or not.
fn opens(device: MemoryDevice, number: u64) -> Result<bool> {
    let device: Arc<dyn Device> = Arc::new(device);
    let attempt = || match Volume::options().open_device(Arc::clone(&device)) {
        Ok(volume) => {
            let _ = library::walk_volume(&volume);
            volume.close().is_ok()
        }
        Err(_) => false,
    };
    match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(has_opened) => Ok(has_opened),
        Err(_) => bail!("wrong log {number}: a panic"),
    }
}

fn log_blocks(image: &MemoryDevice, superblock: &Superblock) -> Result<Blocks> {
    let mut blocks = Blocks::new();
    let mut bytes = [0; HEADER_SIZE];
    let running = superblock.generation().0.saturating_add(1);
    for offset in (0..image.size_bytes()).step_by(SECTOR_BYTES) {
        if offset.saturating_add(u64::try_from(HEADER_SIZE)?) > image.size_bytes() {
            break;
        }
        image.read_at(offset, &mut bytes)?;
        let Some(found) = header(&bytes) else {
            continue;
        };
        let is_log = found.fsid == superblock.fields().tree_fsid()
            && found.owner.get() == TreeId::TREE_LOG.0
            && found.generation.get() == running;
        if is_log {
            blocks.entry(found.bytenr.get()).or_default().push(offset);
        }
    }
    Ok(blocks)
}

/// Changes a value in a block of the log, in all its copies.
fn spoil(device: &MemoryDevice, blocks: &Blocks, format: &Format, random: &mut Random) -> Result<()> {
    let all: Vec<&Vec<u64>> = blocks.values().collect();
    let Some(places) = random.pick(&all) else {
        return Ok(());
    };
    let mut block = vec![0; usize::try_from(format.nodesize)?];
    for place in places.iter().take(1) {
        device.read_at(*place, &mut block)?;
    }
    let at = place_in(&block, random);
    let value = match random.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(300),
        3 => random.number(),
        _ => 1 << random.below(64),
    };
    let width = random.pick(&[1, 1, 2, 4, 8]).copied().unwrap_or(1);
    if let Some(bytes) = block.get_mut(at..at.saturating_add(width)) {
        bytes.copy_from_slice(value.to_le_bytes().get(..width).unwrap_or_default());
    }
    seal(&mut block, format.csum_type);
    for place in places.iter() {
        device.write_at(*place, &[&block])?;
    }
    Ok(())
}

/// Offset of a byte of an item's data, of a key, or any.
fn place_in(block: &[u8], random: &mut Random) -> usize {
    let view = LeafView::new(block);
    let slot = random.index(view.nritems());
    let items = view.items();
    let whole = match (random.below(8), items.get(slot)) {
        (0, _) | (_, None) => return random.index(block.len()),
        (1 | 2, Some(_)) => (HEADER_SIZE.saturating_add(slot.saturating_mul(25)), 25),
        (_, Some(item)) => {
            let start = usize::try_from(item.offset.get()).unwrap_or(0);
            let len = usize::try_from(item.size.get()).unwrap_or(0);
            (HEADER_SIZE.saturating_add(start), len)
        }
    };
    whole.0.saturating_add(random.index(whole.1))
}
