//! The same for other systems: everything is refused.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

/// Nothing: access times change.
pub(crate) const NO_ATIME: OFlags = OFlags::empty();
/// An attribute is not there.
pub(crate) const NO_ATTRIBUTE: Errno = Errno::OPNOTSUPP;

/// Nothing tells.
pub(crate) const fn stdout_was_closed() -> bool {
    false
}

/// There is no helper of mounts.
pub(crate) fn mount_helper() -> io::Result<PathBuf> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "mounts need Linux"))
}

/// The path of an open file. It cannot be linked to a name here.
pub(crate) fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/dev/fd/{}", file.as_raw_fd()))
}

pub(crate) fn control(_file: BorrowedFd<'_>, _command: u32, _args: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn data_runs(_file: BorrowedFd<'_>, _offset: u64) -> io::Result<(Vec<Range<u64>>, Option<u64>)> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn share_same(_from: (BorrowedFd<'_>, u64), _to: (BorrowedFd<'_>, u64), _len: u64) -> io::Result<bool> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn read_attribute(_path: &Path, _name: &str, _buffer: &mut [u8]) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn write_attribute(_path: &Path, _name: &str, _value: &[u8]) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn clone_file(_to: &File, _from: &File) -> Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn copy_range(_from: (&File, &mut u64), _to: (&File, &mut u64), _len: usize) -> Result<usize> {
    Err(Errno::OPNOTSUPP)
}
