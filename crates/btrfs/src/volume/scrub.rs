//! Scrubbing a volume.

use std::ops::ControlFlow;

use btrfs_store::HeldState;

use super::Volume;
use crate::scrub::{self, DeviceErrors, ScrubOptions, ScrubProgress, ScrubReport};
use vfs::Result;

impl Volume {
    /// Reads all copies of all that the last commit has, and checks them; bad ones are written anew from good ones.
    /// `watch` hears before each step how far that has come, and may stop it.
    ///
    /// Others may write meanwhile: what was changed before the call is scrubbed, what comes later is not.
    ///
    /// # Errors
    /// `ReadOnly` where it is to mend, and may not; damage of trees that say what there is, where no copy of them is
    /// good; I/O; as [`vfs::Volume::sync`].
    pub fn scrub(
        &self,
        options: ScrubOptions,
        watch: &mut dyn FnMut(&ScrubProgress) -> ControlFlow<()>,
    ) -> Result<ScrubReport> {
        if !self.is_read_only() {
            self.opened.sync()?;
        }
        Ok(scrub::run(self.namespace(), options, watch)?)
    }

    /// Keeps the state that holds everything of before the call from being written over, for who reads the device by
    /// itself, such as a checker. Where writers would find no room otherwise it is given up
    /// ([`HeldState::is_whole`]).
    ///
    /// # Errors
    /// As [`vfs::Volume::sync`].
    pub fn hold_committed(&self) -> Result<HeldState> {
        if !self.is_read_only() {
            self.opened.sync()?;
        }
        Ok(self.core().store.hold_committed())
    }

    /// What the device's error counters say, which the kernel keeps too.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn device_errors(&self) -> Result<DeviceErrors> {
        Ok(scrub::device_errors(self.namespace())?)
    }

    /// Sets the device's error counters to zero; what they were.
    ///
    /// # Errors
    /// `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn reset_device_errors(&self) -> Result<DeviceErrors> {
        Ok(scrub::reset_device_errors(self.namespace())?)
    }
}
