//! [`Volume`]: an open image or device, the front of the library.
//!
//! A [`Volume`] is used by paths like a volume of any format: it derefs to [`vfs::Volume`], whose methods mirror
//! `std::fs`. The methods here are those that only btrfs has: opening and making, reports, subvolumes, and the file
//! system behind the paths, for a server.
//!
//! Invariants
//! * A change is durable after [`vfs::Volume::sync`] (or [`vfs::File::sync_all`]), not before, unless the flags of the
//!   file or directory ask for that (`S` and `D` of chattr(1)). The last handle of a writable volume syncs when it is
//!   dropped, and cannot report a failure: [`Volume::close`] does.
//!
//! Failure: [`vfs::Error`], with a [`crate::Error`] as its source.
//!
//! Callers: the library `spinney` and through it the command line; backups and receive.

mod balance;
mod data_flags;
mod devices;
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
mod verity;

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use btrfs_disk::TreeId;
use vfs::AtimeMode;

use crate::dir::Namespace;
use crate::inode::Core;
use crate::open_volume::OpenVolume;
use crate::vfs_impl::{BtrfsFs, Cleaner, FsOptions};
use vfs::Result;

pub use devices::RebuildReport;
pub use options::VolumeOptions;
pub use types::{ChunkInfo, DeviceInfo, VolumeInfo};
pub use verity::VerityDigest;

/// An open btrfs image or device. Clones share it, and all methods may be called from many threads at once.
///
/// Paths start at the root of the volume, with or without a leading slash, or at the subvolume chosen with
/// [`VolumeOptions::subvolume`]. Methods that mirror `std::fs` behave as it does.
#[derive(Debug, Clone)]
pub struct Volume {
    // Dropped first: inodes that only its references kept are removed while the volume is open.
    by_paths: vfs::Volume,
    open: Arc<OpenVolume>,
}

impl Volume {
    fn new(open: OpenVolume) -> Result<Self> {
        let open = Arc::new(open);
        let (uid, gid) = open.owner;
        let fs = BtrfsFs::serve(&open, FsOptions { atime: AtimeMode::No, ..FsOptions::default() }, Cleaner::LastUser)?;
        Ok(Self { by_paths: vfs::Volume::new(fs).owner(uid, gid), open })
    }

    /// A further handle on this volume, with paths that start at the root of a subvolume.
    fn part(&self, top: TreeId) -> Result<Self> {
        Self::new(self.open.part(top))
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

    /// The volume without its format. It stays open as long as the reference lives.
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
        Ok(BtrfsFs::serve(&self.open, options, Cleaner::Steps)?)
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
        &self.open.namespace
    }

    fn core(&self) -> &Core {
        self.open.core()
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
