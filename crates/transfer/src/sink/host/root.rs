//! Holds the directory of the host that is written, and makes and removes names in it. Called by `sink/host`.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::emulation;
use crate::error::{Error, Result};
use crate::root_dirs::OpenDirs;
use crate::rules::joined;

/// The directory that everything is written into. Paths below are relative to it.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
    kept: OpenDirs,
}

/// A name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a OsStr,
}

impl Root {
    /// Opens a directory; `path` itself is the user's, so it may be a symbolic link.
    pub(super) fn open(path: &Path) -> Result<Self> {
        emulation::check()?;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty());
        let fd = fd.map_err(|errno| Error::from(errno).about(path))?;
        Ok(Self { fd, path: path.to_owned(), kept: OpenDirs::default() })
    }

    /// The name of a file below, for messages.
    pub(super) fn display(&self, path: &Path) -> PathBuf {
        joined(&self.path, path)
    }

    /// Opens a directory below, through no symbolic link.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        let opened = self.kept.open(self.fd.as_fd(), path);
        opened.map_err(|errno| Error::from(errno).about(self.display(path)))
    }
}

/// Makes a private directory, unless there is something; true if it did.
pub(super) fn make_dir(Place { dir, name }: Place<'_>) -> rustix::io::Result<bool> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        // Whether it is a directory shows when it is opened.
        Err(Errno::EXIST) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Makes something that is not a directory. Where the name is taken, removes it first if that is
/// wanted. Device nodes stay, so that `/dev/null` is not lost to a file; and so do images that are in use.
pub(super) fn make_new<T>(
    Place { dir, name }: Place<'_>,
    replaces: bool,
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::EXIST) if replaces => {
            let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
            if kind.is_char_device() || kind.is_block_device() {
                return Err(Errno::EXIST);
            }
            if kind.is_file() && is_locked(Place { dir, name }) {
                return Err(Errno::BUSY);
            }
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            make()
        }
        answer => answer,
    }
}

/// True for an image that is open, as the one is that is copied from: its only name may be this one.
fn is_locked(Place { dir, name }: Place<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Removes the name of an open file that was begun and will not be finished, unless something else has the name by now.
pub(super) fn take_away(Place { dir, name }: Place<'_>, file: &OwnedFd) {
    let named = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(named), Ok(own)) = (named, rustix::fs::fstat(file))
        && (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)
    {
        // A piece that stays is known by its mode.
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
    }
}
