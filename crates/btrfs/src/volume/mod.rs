//! The front door of the library: a volume whose methods mirror `std::fs`.
//!
//! [`Volume`] is a handle that threads share. [`walk`] turns paths into inodes, across symlinks
//! and subvolumes; everything else finds its inode there and hands it to `dir`, `file` or
//! `subvol`.
//!
//! Invariants
//! * Every error that a path is to blame for names the path as the caller gave it.
//! * Nothing here holds a lock while it calls down.
//! * What was changed is durable after [`Volume::sync`] (or `File::sync_all`), not before, unless
//!   the flags of the file or directory ask for that ([`crate::InodeFlags::SYNC`], `DIRSYNC`). The
//!   last handle of a writable volume syncs when it is dropped, and has nobody to tell when that
//!   fails: [`Volume::close`] does.
//!
//! Failure: see [`crate::Error`].
//!
//! Callers: everybody outside this crate.

mod attributes;
mod contents;
mod file;
mod info;
mod names;
mod open;
mod options;
mod paths;
mod read_dir;
mod status;
mod subvolumes;
mod types;
mod walk;

use std::path::Path;
use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::TreeId;

use crate::dir::Namespace;
use crate::error::Result;
use crate::inode::{Core, Inode};
use crate::log;
use crate::writeback;

pub use crate::file::{AllocateMode, ExtentInfo, ExtentKind};
pub use file::{File, FileOptions};
pub use options::VolumeOptions;
pub use read_dir::ReadDir;
pub use types::{DeviceInfo, VolumeInfo};

/// An open btrfs image or device. Clones share it, and all methods may be called from many
/// threads at once.
///
/// Paths start at the root of the volume, with or without a leading slash, or at the subvolume
/// chosen with [`VolumeOptions::subvolume`]. Methods that mirror `std::fs` behave as it does.
#[derive(Debug, Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
}

/// What the clones of a volume share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) namespace: Arc<Namespace>,
    /// The subvolume that paths start in.
    pub(crate) top: TreeId,
    pub(crate) paths: paths::PathCache,
    /// Owner and group of what is created.
    pub(crate) owner: (u32, u32),
    devices: Vec<Arc<dyn Device>>,
}

impl Volume {
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

    /// Makes everything that was changed before the call durable.
    ///
    /// # Errors
    /// `Io`, `NoSpace`, `Poisoned`. After an error that [`crate::Error::is_device_full`], what was not written is
    /// kept, and the next call tries again.
    pub fn sync(&self) -> Result<()> {
        if self.core().store.is_read_only() {
            return Ok(());
        }
        self.namespace().stage_late_accesses();
        sync_all(self.core())
    }

    /// Syncs and closes this handle. The volume itself is closed, and its lock released, with
    /// the last handle and the last open [`File`].
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn close(self) -> Result<()> {
        self.sync()
    }

    /// True when nothing can be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.core().store.is_read_only()
    }

    /// Makes durable what changed in an inode, or in the names of a directory, whose flags ask for
    /// that.
    pub(crate) fn sync_marked(&self, inode: &Arc<Inode>) -> Result<()> {
        log::sync_marked(self.namespace(), inode)
    }

    pub(crate) fn namespace(&self) -> &Arc<Namespace> {
        &self.inner.namespace
    }

    pub(crate) fn core(&self) -> &Core {
        &self.inner.namespace.core
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let core = &self.namespace.core;
        if core.store.is_read_only() || core.store.poisoned().is_some() {
            return;
        }
        self.namespace.stage_late_accesses();
        // Nobody is left to hear of a failure; what was synced before is safe in any case.
        let _ = sync_all(core);
    }
}

/// Writes all that is dirty, and commits. Where the data of some files has no room, the rest is committed all the same,
/// and what that frees is given back to the host for another attempt.
fn sync_all(core: &Core) -> Result<()> {
    let flushed = core.with_room(|| writeback::flush_all(core));
    let has_failed = matches!(&flushed, Err(error) if !error.is_device_full());
    if !has_failed {
        core.store.commit()?;
    }
    flushed
}
