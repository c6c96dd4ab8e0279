//! The directory of the host that is written.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath::OpenDirs;
use crate::emulation;
use crate::failure::{Failure, Status};

/// The directory that everything is written into. Paths below are relative to it.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
    kept: OpenDirs,
}

impl Root {
    /// Opens a directory; `path` itself is the user's, so it may be a symbolic link.
    pub(super) fn open(path: &Path) -> Result<Self> {
        emulation::check()?;
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(|errno| at(path, errno))?;
        Ok(Self { fd, path: path.to_owned(), kept: OpenDirs::default() })
    }

    /// The name of a file below, for messages.
    pub(super) fn display(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.path.clone() } else { self.path.join(path) }
    }

    /// Opens a directory below, through no symbolic link.
    pub(super) fn open_dir(&self, path: &Path) -> Result<OwnedFd> {
        let opened = self.kept.open(self.fd.as_fd(), path);
        opened.map_err(|errno| at(&self.display(path), errno))
    }
}

/// A failure of the host at a path.
pub(super) fn at(path: &Path, error: impl Into<io::Error>) -> Error {
    let error: io::Error = error.into();
    Error::new(error).context(path.display().to_string())
}

/// Refuses a name that would lead out of its directory.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    let is_plain = !name.is_empty() && name != b"." && name != b"..";
    if is_plain && !name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Ok(());
    }
    let name = crate::names::escaped(name).into_owned();
    let text = format!("directory entry: expected a plain name, found `{name}`");
    Err(Failure::new(Status::Corrupt, text).into())
}

/// Makes a private directory, unless there is something; true if it did.
pub(super) fn make_dir(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<bool> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        // Whether it is a directory shows when it is opened.
        Err(Errno::EXIST) => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Makes something that is not a directory. Where the name is taken, removes it first if that is
/// wanted. Device nodes stay: nobody means to lose `/dev/null` to a file; and so do images that are in use.
pub(super) fn make_new<T>(
    parent: &OwnedFd,
    name: &OsStr,
    replaces: bool,
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::EXIST) if replaces => {
            let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
            if kind.is_char_device() || kind.is_block_device() {
                return Err(Errno::EXIST);
            }
            if kind.is_file() && is_locked(parent, name) {
                return Err(Errno::BUSY);
            }
            rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
            make()
        }
        answer => answer,
    }
}

/// True for an image that is open, as the one is that is copied from: its only name may be this one.
fn is_locked(parent: &OwnedFd, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(parent, name, flags, Mode::empty()) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Removes the name of an open file that was begun and will not be finished, unless something else has the name by now.
pub(super) fn take_away((parent, name): (&OwnedFd, &OsStr), file: &OwnedFd) {
    let named = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(named), Ok(own)) = (named, rustix::fs::fstat(file))
        && (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)
    {
        // A piece that stays is known by its mode.
        let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
    }
}
