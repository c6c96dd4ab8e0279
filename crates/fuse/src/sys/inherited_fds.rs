//! Withholds descriptors that the parent process left open in this one from the programs that it starts. The `mount`
//! command calls it at its start.

use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::FdFlags;
use std::io;

/// The first descriptor that is not one of the standard three.
const FIRST: RawFd = 3;

/// Withholds inherited descriptors, except standard input, output and error and those in `keep`, from the programs that
/// this process becomes or starts: a program that stays in the background would hold them open for the caller. Returns
/// their number. They stay open here, since other code may have taken them over.
///
/// Inherited descriptors lack the close-on-exec flag, which all descriptors opened here have.
///
/// # Errors
/// If `/proc` is missing.
pub fn withhold_inherited(keep: &[RawFd]) -> io::Result<usize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut open = Vec::new();
    for entry in Dir::new(rustix::fs::open("/proc/self/fd", flags, Mode::empty())?)? {
        // Two entries are no numbers: `.` and `..`.
        open.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
    }
    let mut withheld = 0;
    for fd in open.into_iter().filter(|fd| *fd >= FIRST && !keep.contains(fd)) {
        // SAFETY: it is borrowed to read and set a flag; where it was closed in the meantime that fails, and nothing
        // here depends on what it refers to.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let Ok(flags) = rustix::io::fcntl_getfd(fd) else { continue };
        if !flags.contains(FdFlags::CLOEXEC) {
            rustix::io::fcntl_setfd(fd, flags | FdFlags::CLOEXEC)?;
            withheld += 1;
        }
    }
    Ok(withheld)
}
