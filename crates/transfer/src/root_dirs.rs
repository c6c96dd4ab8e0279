//! Opens directories below a root without following a symbolic link. Called by `sink/host` and `source/host`.
//!
//! A transfer to the host writes untrusted data. Every directory on the way is opened from the root with symbolic links
//! forbidden, so that neither the image nor an existing file in the target can lead outside.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, openat, openat2};
use rustix::io::Errno;

use crate::emulation;

/// Longest piece of a path given to the kernel at once, below its `PATH_MAX` of 4096.
const PIECE_BYTES_MAX: usize = 4000;

/// Levels between two directories that [`OpenDirs`] keeps.
const KEPT_EVERY: usize = 64;
/// Directories that it keeps; a process may have 1024 files open.
const KEPT_MAX: usize = 256;

/// A short path to the file of a descriptor or handle, independent of its names, for calls that take nothing else. It
/// exists if `/proc` is mounted.
#[must_use]
pub fn path_of(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Gives an open file its owner.
///
/// # Errors
/// As `fchown(2)`.
pub(crate) fn set_owner(file: &impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> rustix::io::Result<()> {
    if emulation::is_there() { rustix::fs::chown(path_of(file), uid, gid) } else { rustix::fs::fchown(file, uid, gid) }
}

/// Gives an open file its mode.
///
/// # Errors
/// As `fchmod(2)`.
pub(crate) fn set_mode(file: &impl AsFd, mode: Mode) -> rustix::io::Result<()> {
    if emulation::is_there() { rustix::fs::chmod(path_of(file), mode) } else { rustix::fs::fchmod(file, mode) }
}

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens the directory at `path`, which is relative to `root` and has plain names only.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` if a component is a symbolic link; `EINVAL` for `..` and the like; else the system's.
pub(crate) fn open_dir(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain {
        return Err(Errno::INVAL);
    }
    if path.as_os_str().is_empty() {
        return openat(root, ".", dir_flags(), Mode::empty());
    }
    // Emulators do not see this call, so they would not know the descriptor.
    if path.as_os_str().len() <= PIECE_BYTES_MAX && !emulation::is_there() {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(root, path, dir_flags(), Mode::empty(), resolve) {
            // Old kernels and some sandboxes lack the call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            answer => return answer,
        }
    }
    one_by_one(root, path)
}

/// Directories on the way to deep ones, kept open: without them, each directory of a tree that is
/// nested thousands deep would be reached from the root.
#[derive(Debug, Default)]
pub(crate) struct OpenDirs(Mutex<HashMap<PathBuf, Arc<OwnedFd>>>);

impl OpenDirs {
    /// As [`open_dir`], from the deepest directory on the way that is known.
    ///
    /// # Errors
    /// As [`open_dir`].
    pub(crate) fn open(&self, root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
        let names: Vec<Component<'_>> = path.components().collect();
        let is_plain = names.iter().all(|part| matches!(part, Component::Normal(_)));
        if names.len() <= KEPT_EVERY || !is_plain {
            return open_dir(root, path);
        }
        let last = (names.len() - 1) / KEPT_EVERY;
        let known = (1..=last).rev().find_map(|step| {
            let depth = step * KEPT_EVERY;
            let prefix: PathBuf = names.iter().take(depth).collect();
            self.lock().get(&prefix).map(|fd| (depth, Arc::clone(fd)))
        });
        let (mut depth, mut from) = known.map_or((0, None), |(depth, fd)| (depth, Some(fd)));
        loop {
            let step = names.len().saturating_sub(depth).min(KEPT_EVERY);
            let piece: PathBuf = names.iter().skip(depth).take(step).collect();
            let base = from.as_ref().map_or(root, |fd| fd.as_fd());
            let fd = open_dir(base, &piece)?;
            depth += step;
            if depth == names.len() {
                return Ok(fd);
            }
            let fd = Arc::new(fd);
            self.keep(names.iter().take(depth).collect(), &fd);
            from = Some(fd);
        }
    }

    fn keep(&self, path: PathBuf, fd: &Arc<OwnedFd>) {
        let mut known = self.lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(path, Arc::clone(fd));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<OwnedFd>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn one_by_one(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut dir = openat(root, ".", dir_flags(), Mode::empty())?;
    for name in path.components() {
        dir = openat(&dir, name.as_os_str(), dir_flags(), Mode::empty())?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/", base.path().join("a/out")).unwrap();
        let root = std::fs::File::open(base.path()).unwrap();
        for open in [open_dir, one_by_one] {
            assert!(open(root.as_fd(), Path::new("a/b")).is_ok());
            assert!(open(root.as_fd(), Path::new("a/out")).is_err());
            assert!(open(root.as_fd(), Path::new("a/out/etc")).is_err());
        }
        assert!(open_dir(root.as_fd(), Path::new("")).is_ok());
        assert!(OpenDirs::default().open(root.as_fd(), Path::new("")).is_ok());
        assert!(open_dir(root.as_fd(), Path::new("../x")).is_err());
        assert!(open_dir(root.as_fd(), Path::new("/etc")).is_err());
    }

    #[test]
    fn deep_directories_are_reached_from_those_that_are_kept() {
        let base = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(base.path()).unwrap();
        let deep: PathBuf = (0..300).map(|level| format!("d{level}")).collect();
        std::fs::create_dir_all(base.path().join(&deep)).unwrap();
        let kept = OpenDirs::default();
        for path in deep.ancestors().filter(|path| !path.as_os_str().is_empty()) {
            let id = |fd: OwnedFd| rustix::fs::fstat(&fd).unwrap().st_ino;
            let expected = id(open_dir(root.as_fd(), path).unwrap());
            assert_eq!(id(kept.open(root.as_fd(), path).unwrap()), expected);
        }
        assert!(kept.open(root.as_fd(), &deep.join("none")).is_err());
        std::os::unix::fs::symlink("/", base.path().join(&deep).join("out")).unwrap();
        assert!(kept.open(root.as_fd(), &deep.join("out")).is_err());
        assert_eq!(kept.lock().len(), 4);
    }
}
