//! Making and ending mounts.
//!
//! A process that may mount does so itself (`direct`); any other asks `fusermount3`, which is
//! set-user root and hands back the descriptor of the FUSE device over a socket (`helper`). A
//! mount is not usable before its server answered the first request; until then a program that touches
//! it waits.
//!
//! The kernel hands on `sync` and `syncfs` only for mounts of a block device, and only there does
//! unmounting wait for the server. So root may have a mount on an anchor: a loop device on the first
//! bytes of a file, usually that with the file system, so that a program that looks finds out what is
//! mounted. It exists as long as the mount.
//!
//! Options are of two kinds: flags that every mount has (`ro`, `nosuid`, ...) and what FUSE
//! itself understands. Values with commas are escaped for the helper, whose list of options is
//! one string; the kernel's parser cannot take them, so they are left out of its string.
//!
//! Fails with what the system says and the path; nothing is mounted then. Called by the
//! connection and by front ends.

mod direct;
mod helper;
mod options;

pub use options::MountOptions;

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, Metadata};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Mounts, and gives the descriptor of the connection.
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let (dir, metadata) = mount_point(dir)?;
    if rustix::process::geteuid().is_root() {
        match direct::mount(&dir, &metadata, options) {
            // A root without the right to mount, as in a container.
            Err(Error::Mount { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
    }
    helper::mount(&dir, options)
}

/// Mounts in the way in which the kernel hands on `sync` and waits for the server in the end.
pub(crate) fn mount_synced(dir: &Path, options: &MountOptions, backing: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (dir, metadata) = mount_point(dir)?;
    direct::mount_synced(&dir, &metadata, options, backing)
}

fn mount_point(dir: &Path) -> Result<(PathBuf, Metadata)> {
    let at_path = |source| Error::MountPoint { path: dir.to_owned(), source };
    let dir = fs::canonicalize(dir).map_err(at_path)?;
    let metadata = fs::metadata(&dir).map_err(at_path)?;
    if !metadata.is_dir() {
        return Err(at_path(Errno::NOTDIR.into()));
    }
    Ok((dir, metadata))
}

/// Has the kernel answer all requests of the mount on `dir` itself, with an error, and take no more: its server may be
/// stuck. Nothing is waited for. The mount may stay.
///
/// # Errors
/// `EPERM` for a user who may not unmount there.
pub fn abort(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        // Aborted all the same.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(Error::Unmount { path: PathBuf::from(dir), source: error.into() }),
    }
}

/// Ends the mount on `dir`. With `lazy` it disappears at once, and ends when nobody uses it any
/// more; otherwise a mount that is in use stays.
///
/// # Errors
/// `dir` is not a mount, is in use, or belongs to another user.
pub fn unmount(dir: &Path, lazy: bool) -> Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    flags.set(UnmountFlags::DETACH, lazy);
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => helper::unmount(dir, lazy),
        Err(error) => Err(Error::Unmount { path: PathBuf::from(dir), source: error.into() }),
    }
}
