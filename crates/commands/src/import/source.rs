//! The directory of the host that is read: names, metadata, attributes.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use rustix::fs::{AtFlags, Dir, FileType as HostType, Mode, OFlags, Stat};
use rustix::io::Errno;
use vfs::file_system::{NodeKind, Time};

use crate::beneath::{OpenDirs, path_of};
use crate::emulation;

/// Room for the names of all attributes of most files; more is asked for when it is not enough.
const XATTR_NAMES_BYTES: usize = 1024;
/// The most that Linux stores as one attribute or as a list of names (`XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The directory that everything is read from. Paths below are relative to it.
#[derive(Debug)]
pub(crate) struct Source {
    fd: OwnedFd,
    path: PathBuf,
    kept: OpenDirs,
}

/// An open directory below the source.
#[derive(Debug)]
pub(crate) struct SourceDir {
    pub(crate) fd: OwnedFd,
    /// Path relative to the source.
    pub(crate) path: PathBuf,
}

/// A name in a directory, and what kind of file the directory says it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) bytes: CString,
    pub(crate) is_file: bool,
}

/// Attributes of one file: names and values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

impl Source {
    /// Opens a directory of the host; `path` itself may be a symbolic link.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        emulation::check()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(|errno| at(path, errno))?;
        Ok(Self { fd, path: path.to_owned(), kept: OpenDirs::default() })
    }

    /// The name of a file below, for messages.
    pub(crate) fn display(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.path.clone() } else { self.path.join(path) }
    }

    /// Number of the device it lies on.
    pub(crate) fn device(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| at(&self.path, errno))?;
        Ok(stat.st_dev)
    }

    /// Opens a directory below.
    pub(crate) fn open_dir(&self, path: &Path) -> Result<SourceDir> {
        let fd = self.kept.open(self.fd.as_fd(), path).map_err(|errno| at(&self.display(path), errno))?;
        Ok(SourceDir { fd, path: path.to_owned() })
    }
}

impl SourceDir {
    /// All names, in ascending order of their bytes.
    pub(crate) fn names(&self) -> io::Result<Vec<Name>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let bytes = entry.file_name();
            if bytes != c"." && bytes != c".." {
                let is_file = entry.file_type() == HostType::RegularFile;
                names.push(Name { bytes: bytes.to_owned(), is_file });
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Metadata of a name, for an estimate; a symbolic link is not followed.
    pub(crate) fn stat(&self, name: &CStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// A handle of a name, which refers to the same file whatever is done to the name later; a symbolic link is not
    /// followed. Nothing can be read through it.
    pub(crate) fn handle(&self, name: &CStr) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?)
    }

    /// Opens a regular file for reading, without touching its access time where that is allowed.
    pub(crate) fn open_file(&self, name: &CStr) -> io::Result<OwnedFd> {
        // Without NONBLOCK, a pipe that took the file's place would keep us waiting.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => Ok(open(flags)?),
            answer => Ok(answer?),
        }
    }
}

/// Target of a symbolic link, of which `handle` is one.
pub(crate) fn read_link(handle: &OwnedFd) -> io::Result<CString> {
    Ok(rustix::fs::readlinkat(handle, c"", Vec::new())?)
}

/// Attributes of a file that cannot, or should not, be opened.
pub(crate) fn xattrs_of(handle: &OwnedFd) -> io::Result<Xattrs> {
    // There are no such calls for handles; the path leads to the very file, also to a symbolic link.
    let path = path_of(handle);
    let list = |buffer: &mut [u8]| rustix::fs::listxattr(&path, buffer);
    let get = |name: &CStr, buffer: &mut [u8]| rustix::fs::getxattr(&path, name, buffer);
    collect_xattrs(list, get).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("extended attributes cannot be read where /proc is not mounted"),
        _ => error,
    })
}

/// Attributes of an open file.
pub(crate) fn xattrs(fd: BorrowedFd<'_>) -> io::Result<Xattrs> {
    let list = |buffer: &mut [u8]| rustix::fs::flistxattr(fd, buffer);
    let get = |name: &CStr, buffer: &mut [u8]| rustix::fs::fgetxattr(fd, name, buffer);
    collect_xattrs(list, get)
}

fn collect_xattrs(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&CStr, &mut [u8]) -> rustix::io::Result<usize>,
) -> io::Result<Xattrs> {
    let mut small = [0; XATTR_NAMES_BYTES];
    let mut large = Vec::new();
    let names = match list(&mut small) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(count) => small.get(..count),
        Err(Errno::RANGE) => {
            large.resize(XATTR_BYTES_MAX, 0);
            let count = list(&mut large)?;
            large.get(..count)
        }
        Err(errno) => return Err(errno.into()),
    };
    let mut value = vec![0; XATTR_BYTES_MAX];
    let mut found = Vec::new();
    for name in names.unwrap_or_default().split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else {
            continue;
        };
        match get(name, &mut value) {
            Ok(count) => {
                let value = value.get(..count).unwrap_or_default().to_vec();
                found.push((name.to_bytes().to_vec(), value));
            }
            // Removed since it was listed, or not for us to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A failure of the host at a path.
pub(crate) fn at(path: &Path, error: impl Into<io::Error>) -> Error {
    let error: io::Error = error.into();
    Error::new(error).context(path.display().to_string())
}

/// Kind of the file.
pub(crate) fn kind(stat: &Stat) -> Result<NodeKind> {
    NodeKind::from_mode(stat.st_mode).context("a kind of file that nobody knows")
}

/// Last access, last change of the contents, last change of the inode.
pub(crate) fn times(stat: &Stat) -> [Time; 3] {
    [
        time(stat.st_atime, stat.st_atime_nsec),
        time(stat.st_mtime, stat.st_mtime_nsec),
        time(stat.st_ctime, stat.st_ctime_nsec),
    ]
}

/// The type of nanoseconds depends on the backend of `rustix`.
fn time(sec: i64, nsec: impl TryInto<u32>) -> Time {
    Time::new(sec, nsec.try_into().unwrap_or_default())
}
