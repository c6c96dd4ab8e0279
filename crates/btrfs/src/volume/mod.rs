//! The front door of the library: an open image or device.
//!
//! A [`Volume`] is used by paths as a volume of any format is: it derefs to [`vfs::Volume`], whose methods mirror
//! `std::fs`. Here is what only btrfs has: how it is opened and made, what it says about itself, its subvolumes, and
//! the file system behind the paths, for a server.
//!
//! Invariants
//! * What was changed is durable after [`vfs::Volume::sync`] (or [`vfs::File::sync_all`]), not before, unless the flags
//!   of the file or directory ask for that (`S` and `D` of chattr(1)). The last handle of a writable volume syncs when
//!   it is dropped, and has nobody to tell when that fails: [`Volume::close`] does.
//!
//! Failure: [`vfs::Error`], whose cause is a [`crate::Error`].
//!
//! Callers: everybody outside this crate.

mod balance;
mod info;
mod map;
mod open;
mod options;
mod quotas;
mod scrub;
mod send;
mod subvolumes;
#[cfg(test)]
mod tests;
mod types;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use btrfs_disk::TreeId;
use vfs::AtimeMode;

use crate::dir::Namespace;
use crate::inode::Core;
use crate::opened::Opened;
use crate::vfs_impl::{BtrfsFs, Cleaner, FsOptions};
use vfs::Result;

pub use options::VolumeOptions;
pub use types::{ChunkInfo, DeviceInfo, VolumeInfo};

/// An open btrfs image or device. Clones share it, and all methods may be called from many threads at once.
///
/// Paths start at the root of the volume, with or without a leading slash, or at the subvolume chosen with
/// [`VolumeOptions::subvolume`]. Methods that mirror `std::fs` behave as it does.
#[derive(Debug, Clone)]
pub struct Volume {
    // Let go of first: what its references kept is removed while the volume is open.
    by_paths: vfs::Volume,
    opened: Arc<Opened>,
}

impl Volume {
    fn new(opened: Opened) -> Result<Self> {
        let opened = Arc::new(opened);
        let (uid, gid) = opened.owner;
        let fs =
            BtrfsFs::serve(&opened, FsOptions { atime: AtimeMode::No, ..FsOptions::default() }, Cleaner::LastUser)?;
        Ok(Self { by_paths: vfs::Volume::new(fs).owner(uid, gid), opened })
    }

    /// A further handle on this volume, whose paths start at the root of a subvolume.
    fn part(&self, top: TreeId) -> Result<Self> {
        Self::new(self.opened.part(top))
    }

    /// Opens an image file or block device for reading and writing.
    ///
    /// # Errors
    /// See [`VolumeOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Options to open a volume with.
    #[must_use]
    pub fn options() -> VolumeOptions {
        VolumeOptions::new()
    }

    /// The volume as one of any format. It stays open as long as the answer lives.
    #[must_use]
    pub fn by_paths(&self) -> &vfs::Volume {
        &self.by_paths
    }

    /// The file system for a server. Its root is the subvolume that the volume was opened with. Other handles on the
    /// volume may be used at the same time.
    ///
    /// # Errors
    /// When the root directory cannot be read.
    pub fn serve(&self, options: FsOptions) -> Result<Arc<dyn vfs::FileSystem>> {
        Ok(BtrfsFs::serve(&self.opened, options, Cleaner::Steps)?)
    }

    /// Syncs and closes this handle. The volume itself is closed, and its lock released, with the last handle and the
    /// last open file.
    ///
    /// # Errors
    /// As [`vfs::Volume::sync`].
    pub fn close(self) -> vfs::Result<()> {
        self.by_paths.sync()
    }

    fn namespace(&self) -> &Arc<Namespace> {
        &self.opened.namespace
    }

    fn core(&self) -> &Core {
        self.opened.core()
    }
}

impl Deref for Volume {
    type Target = vfs::Volume;

    fn deref(&self) -> &vfs::Volume {
        &self.by_paths
    }
}

impl AsRef<vfs::Volume> for Volume {
    fn as_ref(&self) -> &vfs::Volume {
        &self.by_paths
    }
}
