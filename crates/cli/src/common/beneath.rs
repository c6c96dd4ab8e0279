//! Directories below a root, reached without following a symbolic link.
//!
//! `get` writes what an image says into a directory of the host. Every directory on the way is
//! opened from the root with symbolic links forbidden, so that nothing in the image, and nothing
//! that lay in the target before, can lead outside.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// Longest piece of a path given to the kernel at once, below its `PATH_MAX` of 4096.
const PIECE_BYTES_MAX: usize = 4000;

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Opens the directory at `path`, which is relative to `root` and has plain names only.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` where a name on the way is a symbolic link; `EINVAL` for `..` and the
/// like; else what the system reports.
pub(crate) fn open_dir(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !is_plain {
        return Err(Errno::INVAL);
    }
    if path.as_os_str().is_empty() {
        return openat(root, ".", dir_flags(), Mode::empty());
    }
    if path.as_os_str().len() <= PIECE_BYTES_MAX {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(root, path, dir_flags(), Mode::empty(), resolve) {
            // Old kernels and some sandboxes lack the call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            answer => return answer,
        }
    }
    one_by_one(root, path)
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
    use std::os::fd::AsFd as _;

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
        assert!(open_dir(root.as_fd(), Path::new("../x")).is_err());
        assert!(open_dir(root.as_fd(), Path::new("/etc")).is_err());
    }
}
