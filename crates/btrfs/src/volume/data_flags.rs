//! Sets how the data of a file is stored before it has any, by a method of `Volume`. Called by `mkfs`, which knows it
//! of paths.

use std::path::Path;
use std::sync::Arc;

use btrfs_disk::flags::InodeFlags;
use btrfs_store::Need;
use vfs::Result;

use super::Volume;
use crate::error::{CallerError, Error};
use crate::open_volume::Follow;

/// Items that one change of an inode needs.
const NEED: Need = Need { items: 1, data: 0 };

impl Volume {
    /// Sets `NODATACOW` and `NODATASUM` of an empty file, or of a directory, whose new files then inherit what
    /// [`crate::VolumeOptions::inherits_data_flags`] says. Other flags in `flags` are ignored.
    ///
    /// # Errors
    /// `InvalidArgument` for a file with data and for what has no data; `ReadOnly`; those of looking up the path.
    pub fn set_data_flags(&self, path: impl AsRef<Path>, flags: InodeFlags) -> Result<()> {
        let path = path.as_ref();
        let set = || {
            let inode = self.open.walker().find_then(path, Follow::Last, |inode| Ok(Arc::clone(inode)))?;
            inode.check_writable()?;
            let is_empty_file = inode.kind().is_file() && inode.state().size == 0;
            if !(is_empty_file || inode.kind().is_dir()) {
                return Err(Error::from(CallerError::InvalidArgument));
            }
            let flags = flags & (InodeFlags::NODATACOW | InodeFlags::NODATASUM);
            let store = &self.core().store;
            let txn = store.begin(store.reserve(NEED)?)?;
            inode.change(&txn, |state| state.flags |= flags);
            Ok(())
        };
        Ok(set().map_err(|error| error.at(path))?)
    }
}
