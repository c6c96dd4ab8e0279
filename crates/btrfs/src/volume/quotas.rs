//! Reads and changes the quota groups of a volume, by the methods of `Volume`. Called by the command line.

use btrfs_store::{QuotaChange, QuotaKind, QuotaReport};

use super::Volume;
use crate::error::CallerError;
use crate::writeback;
use vfs::Result;

impl Volume {
    /// The quota groups as the last commit left them; none where quotas are off.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn quotas(&self) -> Result<Option<QuotaReport>> {
        Ok(self.open.quotas()?)
    }

    /// Turns quotas on, with a group for each subvolume, and counts the existing extents, which takes as long as
    /// reading the extent tree. Simple quotas count extents allocated from now on, and need Linux 6.7.
    ///
    /// # Errors
    /// `Quota` where they are on; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn enable_quotas(&self, kind: QuotaKind) -> Result<()> {
        self.prepare_quotas()?;
        self.core().store.enable_quotas(kind).map_err(crate::Error::from)?;
        self.open.log_quotas();
        Ok(())
    }

    /// Turns quotas off: groups and limits are forgotten.
    ///
    /// # Errors
    /// `Quota` where they are off; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn disable_quotas(&self) -> Result<()> {
        self.prepare_quotas()?;
        Ok(self.core().store.disable_quotas().map_err(crate::Error::from)?)
    }

    /// Changes quota groups, and makes that durable. Where the sharing between a group's members has to be determined,
    /// all is counted anew, which takes as long as reading the extent tree.
    ///
    /// # Errors
    /// `Quota` where the change contradicts the existing groups; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn change_quotas(&self, change: QuotaChange) -> Result<()> {
        self.prepare_quotas()?;
        self.core().store.change_quotas(change).map_err(crate::Error::from)?;
        self.open.log_quotas();
        Ok(())
    }

    fn prepare_quotas(&self) -> Result<()> {
        if self.is_read_only() {
            return Err(CallerError::ReadOnly.into());
        }
        Ok(writeback::flush_all(self.core())?)
    }
}
