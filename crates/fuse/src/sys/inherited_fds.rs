//! Withholds descriptors that the parent process left open in this one from the programs that it starts, and takes over
//! the sockets that systemd passes. The commands `mount` and `serve` call it at their start.

use rustix::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::FdFlags;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is not one of the standard three.
const FIRST: RawFd = 3;
/// Most sockets that are taken over.
const PASSED_MAX: RawFd = 64;

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

/// Sockets that systemd passed to this process to listen on (`LISTEN_PID`, `LISTEN_FDS`; sd_listen_fds(3)); none where
/// it did not. Each can be taken over once.
///
/// # Errors
/// `EBADF` for a descriptor that is not open, and for a second call.
pub fn passed_listeners() -> io::Result<Vec<OwnedFd>> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<RawFd>().ok());
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let count = number("LISTEN_FDS").filter(|count| (1..=PASSED_MAX).contains(count));
    let Some(count) = count.filter(|_| number("LISTEN_PID") == Some(own)) else { return Ok(Vec::new()) };
    if IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Err(rustix::io::Errno::BADF.into());
    }
    let mut passed = Vec::new();
    for fd in FIRST..FIRST + count {
        // SAFETY: it is borrowed to read and set a flag, which fails where it is not open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(borrowed, rustix::io::fcntl_getfd(borrowed)? | FdFlags::CLOEXEC)?;
        // SAFETY: it is open, and by the protocol of systemd it belongs to this process and to no other part of it;
        // `IS_TAKEN` keeps a second owner away.
        passed.push(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    Ok(passed)
}
