//! Simulates crashes while Spinney replays a log, and checks that each image that results replays to the same state.
//! Called by `log_replay` for each dirty image.

use super::dirty_image::Dirty;
use super::same;
use crate::diff_walk::library;
use crate::diff_walk::record::Walk;
use anyhow::{Context, Result};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{TreeId, Volume};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use testkit::Random;
use testkit::faults::{Event, RecordingDevice};

const PIECE_BYTES: usize = 1 << 20;
/// Offset of the primary superblock.
const PRIMARY_AT: u64 = 64 << 10;

/// Tries `count` crashes; returns the number tried.
pub(super) fn run(dirty: &Dirty, expected: &Walk, count: u64) -> Result<u64> {
    if count == 0 {
        return Ok(0);
    }
    let device = Arc::new(RecordingDevice::new(load(&dirty.path)?));
    Volume::options().open_device(Arc::<RecordingDevice>::clone(&device))?.close()?;
    let events = device.event_count();
    let supers = superblock_writes(&device.events());
    let mut random = Random::new(u64::try_from(events)?);
    for number in 0..count {
        // Half of the crashes are in the middle of a superblock.
        let after = match random.pick(&supers) {
            Some(after) if number.is_multiple_of(2) => *after,
            _ => random.index(events.saturating_add(1)),
        };
        let left: Arc<dyn Device> = Arc::new(device.crash_after(after, &mut random)?);
        let context = format!("after a crash behind {after} of {events} writes and flushes");
        let options = Volume::options().subvolume_id(TreeId::FS);
        let volume = options.open_device(left).with_context(|| context.clone())?;
        let walk = library::walk_volume(&volume)?;
        same(expected, &walk, dirty.made, &context)?;
        volume.close()?;
    }
    Ok(count)
}

/// For each write of the primary superblock, the number of events up to and including it.
fn superblock_writes(events: &[Event]) -> Vec<usize> {
    let is_super = |event: &Event| matches!(event, Event::Write { offset, .. } if *offset == PRIMARY_AT);
    let writes = events.iter().enumerate().filter(|(_, event)| is_super(event));
    writes.map(|(index, _)| index.saturating_add(1)).collect()
}

/// Loads an image into memory. `hostile` calls it, too.
pub(super) fn load(path: &Path) -> Result<MemoryDevice> {
    let mut file = std::fs::File::open(path)?;
    let device = MemoryDevice::new(file.metadata()?.len());
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0u64;
    loop {
        let count = file.read(&mut piece)?;
        let bytes = piece.get(..count).unwrap_or_default();
        if count == 0 {
            return Ok(device);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            device.write_at(offset, &[bytes])?;
        }
        offset = offset.saturating_add(u64::try_from(count)?);
    }
}
