//! The refusal of every change.

use vfs::file_system::Answer;

use super::F2fs;
use crate::error::Unsupported;

impl F2fs {
    /// What every change is answered.
    pub(super) fn refuse<T>(&self) -> Answer<T> {
        Err(self.faults.told(Unsupported::Change.into()))
    }
}
