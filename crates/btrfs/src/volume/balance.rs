//! Balances an open volume by the methods of `Volume`. Called by the command `balance`.

use std::ops::ControlFlow;

use super::Volume;
use crate::balance::{self, BalanceEnd, BalanceProgress, BalanceSpec, Pace, Running};
use vfs::Result;

impl Volume {
    /// Rewrites the block groups that `spec` selects. `watch` receives the progress before each step, and may stop it;
    /// [`Self::resume_balance`], or the kernel, continues then, as after a crash.
    ///
    /// # Errors
    /// `Exists` where another balance has not ended, `Busy` where new data kept arriving; `FewerCopies` for fewer
    /// metadata copies without `force`; `InvalidArgument` where data and metadata share block groups and are not
    /// selected alike; `Unsupported` without a free-space tree; `ReadOnly`. `NoSpace` where there was no room for some
    /// groups: the others are done. As [`vfs::Volume::sync`].
    pub fn balance(
        &self,
        spec: BalanceSpec,
        watch: &mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>,
    ) -> Result<BalanceEnd> {
        Ok(balance::go_on(self.namespace(), Running::begin(self.namespace(), spec, Pace::WHOLE)?, watch)?)
    }

    /// Resumes a balance that has not ended.
    ///
    /// # Errors
    /// `NotFound` where there is none; as [`Self::balance`].
    pub fn resume_balance(&self, watch: &mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>) -> Result<BalanceEnd> {
        Ok(balance::go_on(self.namespace(), Running::resume(self.namespace(), Pace::WHOLE)?, watch)?)
    }

    /// Cancels a balance that has not ended: finished moves stay.
    ///
    /// # Errors
    /// `NotFound` where there is none; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn cancel_balance(&self) -> Result<()> {
        Ok(balance::cancel(self.namespace())?)
    }

    /// The parameters of the balance that has not ended, if there is one.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn paused_balance(&self) -> Result<Option<BalanceSpec>> {
        Ok(balance::status(self.core())?)
    }
}
