//! Moves everything away from a device, so that it can be removed. Called by `volume/devices`.

use std::ops::ControlFlow;

use btrfs_disk::DevId;
use btrfs_pool::Profile;
use btrfs_store::{GroupState, SpaceKind};

use super::evacuation::empty_unless;
use crate::error::{CallerError, Result};
use crate::inode::Core;

/// The progress of moving everything away from a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovalProgress {
    /// Bytes of data and tree blocks that were moved.
    pub moved_bytes: u64,
    /// Bytes in the block groups that had a part of the device at the beginning.
    pub total_bytes: u64,
}

/// Receives the progress, and decides whether to continue.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&RemovalProgress) -> ControlFlow<()>;

/// Moves all block groups that have a part of the device; false if `watch` broke it off: finished moves stay.
///
/// # Errors
/// `FewDevices` where a profile in use needs this many devices; `NoSpace` where there is no room elsewhere, and `Busy`
/// where new data kept arriving: finished moves stay. Damage, I/O.
pub(crate) fn clear_device(core: &Core, id: DevId, watch: Watch<'_>) -> Result<bool> {
    if core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    check(core, id)?;
    core.store.set_ceiling(id, Some(0));
    let cleared = clear(core, id, watch);
    core.store.set_ceiling(id, None);
    cleared
}

/// Refuses to go below the devices that a profile needs.
fn check(core: &Core, id: DevId) -> Result<()> {
    let devices = core.store.devices();
    if !devices.iter().any(|device| device.id == id) {
        return Err(CallerError::NotFound.into());
    }
    let is_left = |device: &&btrfs_store::DeviceState| device.id != id && !device.is_missing && !device.is_seed;
    let left = devices.iter().filter(is_left).count();
    let needs = |group: &GroupState| Profile::from_flags(group.flags).map_or(1, Profile::devices_min);
    // The contents of a seed get the profile of the newest group of its kind.
    let groups = core.store.groups();
    let needed = groups.iter().filter(|group| !group.is_on_seed).map(needs).max().unwrap_or(1);
    if needed > left {
        return Err(CallerError::FewDevices { needed, found: left }.into());
    }
    Ok(())
}

fn clear(core: &Core, id: DevId, watch: Watch<'_>) -> Result<bool> {
    let is_there = |group: &&GroupState| group.stripes.iter().any(|stripe| stripe.device == id);
    let used = |group: &GroupState| group.used;
    let total_bytes = core.store.groups().iter().filter(is_there).map(used).fold(0, u64::saturating_add);
    let mut moved = 0u64;
    loop {
        core.store.give_back_groups()?;
        let groups = core.store.groups();
        let Some(group) = groups.iter().rev().find(is_there) else { return Ok(true) };
        if group.is_fixed && core.store.erase_empty_group(group.start)? {
            core.store.commit()?;
            continue;
        }
        // New blocks of this kind need a group to go to, also where this one is empty and the only one.
        let kind = kind_of(group);
        let is_other =
            |other: &GroupState| kind_of(other) == kind && !is_there(&other) && !other.is_fixed && !other.is_on_seed;
        if !groups.iter().any(is_other) {
            core.store.add_group(kind)?;
        }
        let before = moved;
        let mut watch_all =
            |bytes: u64| watch(&RemovalProgress { moved_bytes: before.saturating_add(bytes), total_bytes });
        let Some(bytes) = empty_unless(core, group.start, &mut watch_all)? else {
            core.store.commit()?;
            return Ok(false);
        };
        moved = moved.saturating_add(bytes);
        core.store.commit()?;
    }
}

fn kind_of(group: &GroupState) -> SpaceKind {
    use super::spec::Use;
    match Use::of(group.flags) {
        Use::Data => SpaceKind::Data,
        Use::Metadata => SpaceKind::Metadata,
        Use::System => SpaceKind::System,
    }
}
