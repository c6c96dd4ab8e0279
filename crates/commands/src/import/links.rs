//! Files with several names: which of their names was made first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rustix::fs::Stat;

/// Where each file with several names went, by device and inode number.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<HashMap<(u64, u64), PathBuf>>);

impl Links {
    /// Calls `link` with the first name where the file is known, else `make`, and remembers
    /// `target`. The lock is held, so that no second thread links to what is not there yet.
    pub(crate) fn make_or_link<T>(
        &self,
        stat: &Stat,
        target: &Path,
        make: impl FnOnce() -> Result<T>,
        link: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        if stat.st_nlink < 2 {
            return make();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = (stat.st_dev, stat.st_ino);
        if let Some(first) = known.get(&id) {
            return link(first);
        }
        let made = make()?;
        known.insert(id, target.to_owned());
        Ok(made)
    }
}
