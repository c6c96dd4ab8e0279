//! What lies too far back on the device is moved to its front, so that the volume can end there.

use btrfs_store::GroupState;

use super::empty::{Leaving, Left};
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;

/// Moves everything that lies beyond `bytes` of the device.
///
/// # Errors
/// `NoSpace` where there is not room enough in front, and `Busy` where new data kept arriving: what was moved by then
/// stays where it is now. Damage, I/O.
pub(crate) fn clear_from(core: &Core, bytes: u64) -> Result<()> {
    core.store.set_ceiling(Some(bytes));
    let result = clear(core, bytes);
    core.store.set_ceiling(None);
    result
}

fn clear(core: &Core, bytes: u64) -> Result<()> {
    loop {
        if core.store.least_bytes()? <= bytes {
            return Ok(());
        }
        let groups = core.store.groups();
        let Some(last) = groups.iter().filter(|group| end_of(group) > bytes).max_by_key(|group| end_of(group)) else {
            return Ok(());
        };
        empty(core, last)?;
    }
}

/// Moves groups to the front of the device for as long as that makes the volume smaller; returns the least size, in
/// bytes.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn gather(core: &Core) -> Result<u64> {
    let mut least = core.store.least_bytes()?;
    loop {
        let groups = core.store.groups();
        let Some(last) = groups.iter().max_by_key(|group| end_of(group)) else { return Ok(least) };
        core.store.set_ceiling(Some(start_of(last)));
        let emptied = empty(core, last);
        core.store.set_ceiling(None);
        match emptied {
            Ok(()) => {}
            Err(Error::NoSpace) => return Ok(least),
            Err(error) if error.caller_error() == Some(CallerError::Busy) => return Ok(least),
            Err(error) => return Err(error),
        }
        core.store.commit()?;
        let now = core.store.least_bytes()?;
        if now >= least {
            return Ok(least.min(now));
        }
        least = now;
    }
}

fn empty(core: &Core, group: &GroupState) -> Result<()> {
    let mut leaving = Leaving::begin(core, group.start)?;
    loop {
        match leaving.step(core) {
            Ok(Left::Moved(_)) => {}
            Ok(Left::Gone) => return Ok(()),
            Err(error) => {
                leaving.stop(core);
                return Err(error);
            }
        }
    }
}

/// The byte of the device behind the last that the group has of it.
fn end_of(group: &GroupState) -> u64 {
    let ends = group.stripes.iter().map(|stripe| stripe.offset.saturating_add(group.stripe_bytes));
    ends.max().unwrap_or(0)
}

/// The first byte of the device that the group has.
fn start_of(group: &GroupState) -> u64 {
    group.stripes.iter().map(|stripe| stripe.offset).min().unwrap_or(0)
}
