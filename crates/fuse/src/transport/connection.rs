//! Holds the descriptors of a mount's FUSE connection, and mounts to get them. Called by `server` and front ends.

use crate::error::Result;
use crate::mount::{self, MountOptions};
use crate::sys;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A mounted directory that is not yet served. Dropping it (and the server made of it) ends the mount: every access to
/// it fails from then on.
#[derive(Debug)]
pub struct Connection {
    device: OwnedFd,
}

impl Connection {
    /// Mounts on `dir`: directly if permitted, with the program `fusermount3` otherwise. The mount is not usable before
    /// a server is started.
    ///
    /// # Errors
    /// `dir` is no directory or cannot be mounted on.
    pub fn mount(dir: &Path, options: &MountOptions) -> Result<Self> {
        mount::mount(dir, options).map(Self::from_fd)
    }

    /// As [`Connection::mount`], so that `sync` and `syncfs` reach the file system (as `sync_fs`) and unmounting waits
    /// for [`Server::wait`](crate::Server::wait). Only for root; the mount's source is a loop device made for it, and
    /// its type `fuseblk.SUBTYPE`.
    ///
    /// `backing` is a file, open for writing unless the mount is read-only, of at least 4096 bytes, which is never read
    /// or written: the loop device refers to it, and so shows the image in the mount table.
    ///
    /// # Errors
    /// As [`Connection::mount`]; no loop device is available.
    pub fn mount_synced(dir: &Path, options: &MountOptions, backing: BorrowedFd<'_>) -> Result<Self> {
        mount::mount_synced(dir, options, backing).map(Self::from_fd)
    }

    /// The connection of a mount that another program made, from its `/dev/fuse` descriptor.
    #[must_use]
    pub fn from_fd(device: OwnedFd) -> Self {
        Self { device }
    }

    /// The descriptor, to be passed to the serving process.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.device
    }

    /// A channel for each of `workers`, as far as there are enough: the last ones share.
    pub(crate) fn into_channels(self, spares: Vec<OwnedFd>, workers: usize) -> Vec<Arc<OwnedFd>> {
        let mut channels = Vec::new();
        for spare in spares.into_iter().take(workers.saturating_sub(1)) {
            match sys::clone_device(self.device.as_fd(), spare.as_fd()) {
                Ok(()) => channels.push(Arc::new(spare)),
                Err(error) => tracing::debug!(%error, "workers share one channel"),
            }
        }
        let shared = Arc::new(self.device);
        channels.resize(workers.max(1), shared);
        // The shared one is the connection's first, and so is its worker.
        channels.reverse();
        channels
    }
}

/// Opens the FUSE device `count` times, as far as that is permitted.
pub(crate) fn open_spares(count: usize) -> Vec<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let open = |_| rustix::fs::open("/dev/fuse", flags, Mode::empty()).ok();
    (0..count).map_while(open).collect()
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
