//! The descriptors through which a mount is served.

use crate::error::{Error, Result};
use crate::mount::{self, MountOptions};
use crate::sys;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A mounted directory that waits to be served. Dropping it (and the server made of it) ends the
/// mount: every use of it fails from then on.
#[derive(Debug)]
pub struct Connection {
    device: OwnedFd,
    clones: Vec<OwnedFd>,
}

impl Connection {
    /// Mounts on `dir`: itself when it may, with the program `fusermount3` otherwise. Nobody can
    /// use the mount before a server was started.
    ///
    /// # Errors
    /// `dir` is no directory or cannot be mounted on.
    pub fn mount(dir: &Path, options: &MountOptions) -> Result<Self> {
        mount::mount(dir, options).map(Self::from_fd)
    }

    /// As [`Connection::mount`], in the way in which `sync` and `syncfs` come to the file system
    /// (as `sync_fs`) and unmounting waits until it is synced. Only for root; the mount's source
    /// is a loop device that exists for this alone, and its type `fuseblk.SUBTYPE`.
    ///
    /// # Errors
    /// As [`Connection::mount`]; no loop device can be had.
    pub fn mount_synced(dir: &Path, options: &MountOptions) -> Result<Self> {
        mount::mount_synced(dir, options).map(Self::from_fd)
    }

    /// The connection of a mount that somebody else made, from its `/dev/fuse` descriptor.
    #[must_use]
    pub fn from_fd(device: OwnedFd) -> Self {
        Self {
            device,
            clones: Vec::new(),
        }
    }

    /// The descriptor, for passing it on to the process that serves.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.device
    }

    /// Opens channels for so many workers ahead of time, for a process that is about to give up
    /// the right to open `/dev/fuse`. Without them, workers share the first channel.
    pub fn prepare_workers(&mut self, workers: usize) {
        while self.clones.len() < workers.saturating_sub(1) {
            match self.clone_device() {
                Ok(clone) => self.clones.push(clone),
                Err(error) => {
                    tracing::debug!(%error, "workers share one channel");
                    return;
                }
            }
        }
    }

    /// A channel for each of `workers`, as far as they are to be had: the last ones share.
    pub(crate) fn into_channels(mut self, workers: usize) -> Result<Vec<OwnedFd>> {
        self.prepare_workers(workers);
        let mut channels = self.clones;
        channels.push(self.device);
        while channels.len() < workers {
            let shared = channels.last().map(|fd| fd.try_clone());
            match shared {
                Some(Ok(shared)) => channels.push(shared),
                Some(Err(error)) => return Err(Error::Device(error)),
                None => break,
            }
        }
        channels.reverse();
        channels.truncate(workers.max(1));
        Ok(channels)
    }

    fn clone_device(&self) -> std::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fresh = rustix::fs::open("/dev/fuse", flags, Mode::empty())?;
        sys::clone_device(self.device.as_fd(), fresh.as_fd())?;
        Ok(fresh)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
