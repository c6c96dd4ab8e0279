//! The calls of Linux.

use std::fs::File;
use std::path::Path;

use rustix::fs::{OFlags, XattrFlags};
use rustix::io::{Errno, Result};

pub(crate) use spinney::fuse::{control, data_runs, mount_helper, share_same, socket_number, stdout_was_closed};
pub(crate) use spinney::transfer::path_of;

/// Opens a file without changing its access time.
pub(crate) const NO_ATIME: OFlags = OFlags::NOATIME;
/// An attribute is not there.
pub(crate) const NO_ATTRIBUTE: Errno = Errno::NODATA;

/// Reads an extended attribute; the result is its length.
pub(crate) fn read_attribute(path: &Path, name: &str, buffer: &mut [u8]) -> Result<usize> {
    rustix::fs::getxattr(path, name, buffer)
}

/// Sets an extended attribute.
pub(crate) fn write_attribute(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

/// Lets a file share all of another one.
pub(crate) fn clone_file(to: &File, from: &File) -> Result<()> {
    rustix::fs::ioctl_ficlone(to, from)
}

/// Copies bytes between files, which share them where they can. Both positions move.
pub(crate) fn copy_range((from, at): (&File, &mut u64), (to, into): (&File, &mut u64), len: usize) -> Result<usize> {
    rustix::fs::copy_file_range(from, Some(at), to, Some(into), len)
}
