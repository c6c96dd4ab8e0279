//! Moves data to the front of a device, so that the volume can be made smaller. Called by `open_volume::status`
//! before a resize.

use btrfs_disk::DevId;
use btrfs_store::GroupState;

use super::evacuation::empty;
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;

/// Free bytes of a chunk beside the contents moved into it.
const SPARE_BYTES: u64 = 6 << 20;

/// Attempts to empty one group.
const TIMES_MAX: u32 = 3;

/// Chunks are so many bytes long, or a multiple of that.
const CHUNK_UNIT: u64 = 1 << 20;

/// Moves everything that lies beyond `bytes` of the device.
///
/// # Errors
/// `NoSpace` where there is not enough room in front, and `Busy` where new data kept arriving: finished moves stay.
/// Damage, I/O.
pub(crate) fn clear_from(core: &Core, device: DevId, bytes: u64) -> Result<()> {
    core.store.set_ceiling(device, Some(bytes));
    let result = clear(core, device, bytes);
    core.store.set_ceiling(device, None);
    match is_done(result)? {
        true => Ok(()),
        // Chunks of just the needed length, packed together, may fit.
        false if gather(core, device)? <= bytes => Ok(()),
        false => Err(Error::NoSpace(None)),
    }
}

fn clear(core: &Core, device: DevId, bytes: u64) -> Result<()> {
    let (mut emptied, mut times) = (None, 0);
    let end = |group: &GroupState| end_of(group, device);
    loop {
        if core.store.least_bytes(device)? <= bytes {
            return Ok(());
        }
        let groups = core.store.movable_groups();
        let Some(last) = groups.iter().filter(|group| end(group) > bytes).max_by_key(|group| end(group)) else {
            return Ok(());
        };
        times = if emptied.replace(last.start) == Some(last.start) { times + 1 } else { 1 };
        // A group that is still there after it was emptied so often will not go.
        if times > TIMES_MAX {
            return Err(Error::NoSpace(None));
        }
        empty(core, last.start)?;
    }
}

/// Moves groups to the front of the device for as long as that makes the volume smaller; returns the least size, in
/// bytes.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn gather(core: &Core, device: DevId) -> Result<u64> {
    core.store.least_bytes(device)?;
    let is_wasteful = |group: &&GroupState| is_wasteful(group) && end_of(group, device) > 0;
    for group in core.store.movable_groups().iter().filter(is_wasteful) {
        core.store.set_chunk_bytes_max(Some(bytes_for(group)));
        let emptied = empty(core, group.start);
        core.store.set_chunk_bytes_max(None);
        is_done(emptied)?;
    }
    // Chunks that were added but not needed are empty, and are removed.
    let mut least = core.store.least_bytes(device)?;
    loop {
        let groups = core.store.movable_groups();
        let last = groups.iter().max_by_key(|group| end_of(group, device));
        let Some(last) = last.filter(|group| end_of(group, device) > 0) else { return Ok(least) };
        core.store.set_ceiling(device, Some(start_of(last, device)));
        core.store.set_chunk_bytes_max(Some(bytes_for(last)));
        let emptied = empty(core, last.start);
        core.store.set_ceiling(device, None);
        core.store.set_chunk_bytes_max(None);
        let is_done = is_done(emptied)?;
        core.store.commit()?;
        let now = core.store.least_bytes(device)?;
        if !is_done || now >= least {
            return Ok(now);
        }
        least = now;
    }
}

/// False where there is no room to do it.
fn is_done<T>(emptied: Result<T>) -> Result<bool> {
    match emptied {
        Ok(_) => Ok(true),
        Err(Error::NoSpace(_)) => Ok(false),
        Err(error) if error.caller_error() == Some(CallerError::Busy) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True where the group's contents would fit into a chunk of half its length.
fn is_wasteful(group: &GroupState) -> bool {
    bytes_for(group) <= group.len / 2
}

/// Bytes of a chunk for the group's contents: with some room, since blocks are copied while others are moved.
fn bytes_for(group: &GroupState) -> u64 {
    let room = group.used.saturating_add(group.used / 8).saturating_add(SPARE_BYTES);
    room.next_multiple_of(CHUNK_UNIT)
}

/// The byte of the device after the last that the group has of it; 0 where it has none.
fn end_of(group: &GroupState, device: DevId) -> u64 {
    let own = group.stripes.iter().filter(|stripe| stripe.device == device);
    own.map(|stripe| stripe.offset.saturating_add(group.stripe_bytes)).max().unwrap_or(0)
}

/// The first byte of the device that the group has.
fn start_of(group: &GroupState, device: DevId) -> u64 {
    let own = group.stripes.iter().filter(|stripe| stripe.device == device);
    own.map(|stripe| stripe.offset).min().unwrap_or(0)
}
