//! Moves everything away from a device, so that it can be removed. Called by `volume/devices`.

use std::ops::ControlFlow;

use btrfs_disk::DevId;
use btrfs_pool::Profile;
use btrfs_store::{GroupState, SpaceKind};

use super::evacuation::empty;
use crate::error::{CallerError, Result};
use crate::inode::Core;

/// Moves all block groups that have a part of the device; false if `watch`, which gets the bytes that were moved, broke
/// it off.
///
/// # Errors
/// `FewDevices` where a profile in use needs this many devices; `NoSpace` where there is no room elsewhere, and `Busy`
/// where new data kept arriving: finished moves stay. Damage, I/O.
pub(crate) fn clear_device(core: &Core, id: DevId, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<bool> {
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
    let left = devices.iter().filter(|device| device.id != id && !device.is_missing).count();
    let needs = |group: &GroupState| Profile::from_flags(group.flags).map_or(1, Profile::devices_min);
    let needed = core.store.groups().iter().map(needs).max().unwrap_or(1);
    if needed > left {
        return Err(CallerError::FewDevices { needed, found: left }.into());
    }
    Ok(())
}

fn clear(core: &Core, id: DevId, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<bool> {
    let mut moved = 0u64;
    loop {
        core.store.give_back_groups()?;
        let groups = core.store.groups();
        let is_there = |group: &&GroupState| group.stripes.iter().any(|stripe| stripe.device == id);
        let Some(group) = groups.iter().rev().find(is_there) else { return Ok(true) };
        if watch(moved).is_break() {
            return Ok(false);
        }
        // New blocks of this kind need a group to go to, also where this one is empty and the only one.
        let kind = kind_of(group);
        let is_other = |other: &GroupState| kind_of(other) == kind && !is_there(&other);
        if !groups.iter().any(is_other) {
            core.store.add_group(kind)?;
        }
        moved = moved.saturating_add(empty(core, group.start)?);
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
