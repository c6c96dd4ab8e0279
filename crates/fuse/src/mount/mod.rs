//! Makes and ends mounts.
//!
//! A process that may mount does so itself (`direct`); any other runs `fusermount3`, which is set-user root and returns
//! the descriptor of the FUSE device over a socket (`helper`). A mount is not usable before its server answered the
//! first request; until then programs that access it wait.
//!
//! The kernel passes `sync` and `syncfs` on only for mounts of a block device, and only there does unmounting wait for
//! the server. So root may mount an anchor: a loop device on the first bytes of a file, usually that with the file
//! system, so that the mount table shows the image. It exists as long as the mount.
//!
//! Options are flags of every mount (`ro`, `nosuid`, ...) or options of FUSE itself. Values with commas are escaped for
//! the helper, whose list of options is one string; the kernel's parser cannot take them, so they are left out of its
//! string.
//!
//! Failure: the error of the system, with the path; nothing is mounted then. Callers: the connection and front ends.

mod direct;
mod helper;
mod options;

pub use helper::mount_helper;
pub use options::MountOptions;

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, Metadata};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Mounts, and returns the descriptor of the connection.
pub(crate) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let (dir, metadata) = mount_point(dir)?;
    if rustix::process::geteuid().is_root() {
        match direct::mount(&dir, &metadata, options) {
            // Root without the right to mount, as in a container.
            Err(Error::Mount { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {}
            done => return done,
        }
    }
    helper::mount(&dir, options)
}

/// Mounts so that the kernel passes `sync` on and waits for the server at the end.
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

/// Aborts the mount on `dir`: the kernel answers all its requests with an error, and takes no more. The server may be
/// stuck; nothing is waited for. The mount may stay.
///
/// # Errors
/// `EPERM` for a user who may not unmount there.
pub fn abort(dir: &Path) -> Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        // It is aborted nevertheless.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(Error::Unmount { path: PathBuf::from(dir), source: error.into() }),
    }
}

/// Unmounts `dir`. With `lazy` it is detached at once, and ends when it is no longer in use; otherwise a mount in use
/// stays.
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
