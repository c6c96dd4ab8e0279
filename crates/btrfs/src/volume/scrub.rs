//! Scrubs a volume, by the methods of `Volume`. Called by the command `scrub` and by `spinney::btrfs::scrub`.

use std::ops::ControlFlow;

use btrfs_store::HeldState;

use super::Volume;
use crate::scrub::{self, DeviceErrors, ScrubOptions, ScrubProgress, ScrubReport};
use vfs::Result;

impl Volume {
    /// Reads and checks all copies of the last committed state; bad ones are rewritten from good ones. `watch` receives
    /// the progress before each step, and may stop it.
    ///
    /// Concurrent writes continue: changes made before the call are scrubbed, later ones are not.
    ///
    /// # Errors
    /// `ReadOnly` where it is to repair, and may not; damage of the extent and checksum trees without a good copy; I/O;
    /// as [`vfs::Volume::sync`].
    pub fn scrub(
        &self,
        options: ScrubOptions,
        watch: &mut dyn FnMut(&ScrubProgress) -> ControlFlow<()>,
    ) -> Result<ScrubReport> {
        if !self.is_read_only() {
            self.open.sync()?;
        }
        Ok(scrub::run(self.namespace(), options, watch)?)
    }

    /// Holds the present state, for a reader that opens the device by itself, such as a checker. Where writers would
    /// find no room otherwise it is given up ([`HeldState::is_whole`]).
    ///
    /// # Errors
    /// As [`vfs::Volume::sync`].
    pub fn hold_committed(&self) -> Result<HeldState> {
        if !self.is_read_only() {
            self.open.sync()?;
        }
        Ok(self.core().store.hold_committed())
    }

    /// The error counters of the devices that the volume writes to, by their numbers; the kernel keeps them too.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn device_errors(&self) -> Result<Vec<DeviceErrors>> {
        Ok(scrub::device_errors(self.namespace())?)
    }

    /// Resets the devices' error counters; returns the old ones.
    ///
    /// # Errors
    /// `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn reset_device_errors(&self) -> Result<Vec<DeviceErrors>> {
        Ok(scrub::reset_device_errors(self.namespace())?)
    }
}
