//! Descriptors that whoever started this process left open in it.

use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::FdFlags;
use std::io;

/// The first descriptor that is not one of the standard three.
const FIRST: RawFd = 3;

/// Closes what this process inherited beyond its standard input, output and error, and is not
/// among `keep`: a process that stays in the background would hold it for its caller.
///
/// What was inherited is told by its lack of the close-on-exec flag, which everything has that is
/// opened here.
///
/// # Errors
/// When `/proc` is missing.
pub fn close_inherited(keep: &[RawFd]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut open = Vec::new();
    for entry in Dir::new(rustix::fs::open("/proc/self/fd", flags, Mode::empty())?)? {
        // Two entries are no numbers: `.` and `..`.
        open.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for fd in open.into_iter().filter(|fd| *fd >= FIRST && !keep.contains(fd)) {
        // SAFETY: it is borrowed for one call, which fails where it was closed in the meantime.
        let found = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) });
        if found.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
            // SAFETY: all that this process opens closes itself on exec, in the standard library, in
            // rustix and in what is written here; so nothing in it owns this descriptor.
            unsafe { rustix::io::close(fd) };
        }
    }
    Ok(())
}
