//! Reads and writes sockets with time limits, by `poll` and calls that do not block: a process in the sandbox of a
//! server may not set limits on sockets. Callers: the connections of the client and of the server.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// A connection that is closed is an error, and ends no process. On macOS programs in Rust ignore the signal.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Waits until the socket can be read or written, or has ended.
///
/// # Errors
/// `TimedOut` behind the deadline.
fn wait(socket: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut polled = [PollFd::from_borrowed_fd(socket, flags)];
        match rustix::event::poll(&mut polled, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives some bytes; 0 at the end of the connection.
///
/// # Errors
/// `TimedOut` behind the deadline; those of the connection.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        match rustix::net::recv(&socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, count)) => return Ok(count),
            Err(Errno::AGAIN) => wait(socket.as_fd(), PollFlags::IN, deadline)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all bytes.
///
/// # Errors
/// As [`receive`].
pub(crate) fn send_all(socket: impl AsFd, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::net::send(&socket, rest, SendFlags::DONTWAIT | NO_SIGNAL) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(Errno::AGAIN) => wait(socket.as_fd(), PollFlags::OUT, deadline)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// True if nothing has come on a connection that waits for its next request: neither bytes nor its end.
pub(crate) fn is_idle(socket: impl AsFd) -> bool {
    let found = rustix::net::recv(socket, &mut [0_u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
    matches!(found, Err(Errno::AGAIN | Errno::INTR))
}

/// A deadline that is far enough for none.
pub(crate) fn within(limit: Option<Duration>) -> Instant {
    Instant::now() + limit.unwrap_or(Duration::from_secs(86_400))
}
