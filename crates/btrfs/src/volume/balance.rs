//! Balancing a volume.

use std::ops::ControlFlow;

use super::Volume;
use crate::balance::{self, BalanceEnd, BalanceProgress, BalanceSpec, Pace, Running};
use vfs::Result;

impl Volume {
    /// Writes block groups anew, as `spec` says. `watch` hears before each step how far that has come, and may stop it;
    /// [`Self::resume_balance`], or the kernel, goes on then, as after a crash.
    ///
    /// # Errors
    /// `Exists` where another balance has not ended, `Busy` where new data kept arriving; `FewerCopies` where that was
    /// not asked for; `InvalidArgument` where data and metadata lie together and are not balanced alike; `Unsupported`
    /// without a free-space tree; `ReadOnly`. `NoSpace` where there was no room for some groups: the others are done.
    /// As [`vfs::Volume::sync`].
    pub fn balance(
        &self,
        spec: BalanceSpec,
        watch: &mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>,
    ) -> Result<BalanceEnd> {
        Ok(balance::go_on(self.namespace(), Running::begin(self.namespace(), spec, Pace::WHOLE)?, watch)?)
    }

    /// Goes on with a balance that has not ended.
    ///
    /// # Errors
    /// `NotFound` where there is none; as [`Self::balance`].
    pub fn resume_balance(&self, watch: &mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>) -> Result<BalanceEnd> {
        Ok(balance::go_on(self.namespace(), Running::resume(self.namespace(), Pace::WHOLE)?, watch)?)
    }

    /// Forgets a balance that has not ended: what it did stays done.
    ///
    /// # Errors
    /// `NotFound` where there is none; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn cancel_balance(&self) -> Result<()> {
        Ok(balance::cancel(self.namespace())?)
    }

    /// What the balance is to do that has not ended, if there is one.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn paused_balance(&self) -> Result<Option<BalanceSpec>> {
        Ok(balance::status(self.core())?)
    }
}
