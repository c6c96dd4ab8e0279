//! Changes the set of devices of a volume, by the methods of `Volume`. Called by the command `device`.
//!
//! The volume has the devices that it was opened with: after a change it is opened anew.

use std::ops::ControlFlow;
use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::{DevId, Generation};
use btrfs_store::DeviceState;

use super::Volume;
use crate::balance::clear_device;
use crate::error::Error;
use vfs::{Errno, Result};

/// Lost ranges that are listed.
const LOST_RANGES_MAX: usize = 1 << 16;

/// The progress and the result of writing a device anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Bytes that were there already.
    pub same_bytes: u64,
    /// Bytes compared with the other copies afterwards.
    pub compared_bytes: u64,
    /// Logical addresses and lengths, in bytes, of ranges that no device has a good copy of; at most 65,536.
    pub lost: Vec<(u64, u64)>,
}

impl Volume {
    /// The devices, present or missing.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        self.core().store.devices()
    }

    /// Adds an empty device; returns its number. The volume uses it from the next opening on. Old contents of the
    /// device are lost.
    ///
    /// # Errors
    /// `NoSpace` for a device that is too small, `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn add_device(&self, device: &Arc<dyn Device>) -> Result<u64> {
        self.open.sync()?;
        Ok(self.core().store.add_device(device).map_err(crate::Error::from)?.0)
    }

    /// Moves everything from a device to the others, and removes it; its superblocks are overwritten if it is there.
    /// `watch` receives the bytes that were moved, and may stop it between two block groups: they stay moved.
    ///
    /// # Errors
    /// `NoSpace` where the others have no room; `FewDevices` where a profile in use needs this many devices;
    /// `ECANCELED`; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn remove_device(&self, id: u64, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        self.open.sync()?;
        let core = self.core();
        if !clear_device(core, DevId(id), watch)? {
            return Err(Errno::ECANCELED.into());
        }
        Ok(core.store.remove_device(DevId(id)).map_err(crate::Error::from)?)
    }

    /// Writes to `target` what device `id` holds, from the copies that are there, and makes it that device. Extents
    /// that are not newer than generation `since` are written only where they differ. With `compares`, it is read back
    /// and compared before that. The volume may not be changed meanwhile.
    ///
    /// # Errors
    /// `NoSpace` for a target that is too small; `EIO` where `compares` finds a difference; `ECANCELED`; damage, I/O.
    pub fn rebuild_device(
        &self,
        id: u64,
        target: Arc<dyn Device>,
        (since, compares): (Generation, bool),
        watch: &mut dyn FnMut(&RebuildReport) -> ControlFlow<()>,
    ) -> Result<RebuildReport> {
        if !self.is_read_only() {
            self.open.sync()?;
        }
        let store = |error: btrfs_store::Error| Error::from(error);
        let mut rebuild = self.core().store.rebuild(DevId(id), target, since).map_err(store)?;
        let mut report = RebuildReport::default();
        while let Some(step) = rebuild.step().map_err(store)? {
            report.written_bytes = report.written_bytes.saturating_add(step.bytes);
            report.same_bytes = report.same_bytes.saturating_add(step.same_bytes);
            let room = LOST_RANGES_MAX.saturating_sub(report.lost.len());
            report.lost.extend(step.lost.into_iter().take(room).map(|(at, len)| (at.0, len)));
            if watch(&report).is_break() {
                return Err(Errno::ECANCELED.into());
            }
        }
        if compares {
            rebuild.compare().map_err(store)?;
            let known = report.lost.len();
            while let Some(step) = rebuild.step().map_err(store)? {
                report.compared_bytes = report.compared_bytes.saturating_add(step.bytes);
                if step.lost.iter().any(|(at, _)| !report.lost.iter().take(known).any(|(lost, _)| *lost == at.0)) {
                    let text = "the new device does not return what was written to it";
                    return Err(vfs::Error::new(Errno::EIO, vfs::Blame::Device, std::io::Error::other(text)));
                }
                if watch(&report).is_break() {
                    return Err(Errno::ECANCELED.into());
                }
            }
        }
        rebuild.finish().map_err(store)?;
        Ok(report)
    }
}
