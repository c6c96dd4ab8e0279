//! A connected socket with time limits. It uses only system calls that the server's sandbox permits.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

/// Flag of a write to a peer that may be gone: an error is wanted, no signal. Apple's systems have no such flag;
/// programs in Rust ignore the signal.
#[cfg(not(target_vendor = "apple"))]
const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const NO_SIGNAL: SendFlags = SendFlags::empty();

/// The socket of a connection.
#[derive(Debug, Clone)]
pub(super) struct Socket(Arc<OwnedFd>);

impl Socket {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Self(socket)
    }

    /// Ends the connection, for all threads that use it.
    pub(super) fn shut_down(&self) {
        // Fails if the client has closed the connection, which is fine.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Receives at least one byte before `deadline`; 0 if the client has closed the connection.
    ///
    /// # Errors
    /// `TimedOut`, and those of the socket.
    pub(super) fn receive(&self, buf: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buf, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, deadline)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends all of `bytes`; fails if the peer accepts no byte for `stall_max`.
    ///
    /// # Errors
    /// `TimedOut`, and those of the socket.
    pub(super) fn send(&self, mut bytes: &[u8], stall_max: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            let flags = SendFlags::DONTWAIT | NO_SIGNAL;
            match rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, Instant::now() + stall_max)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready, or the connection has ended.
    fn wait(&self, wanted: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            // One millisecond more, so that the deadline has passed when poll times out.
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            let left = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
            let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), wanted)];
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(0) if deadline <= Instant::now() => return Err(ErrorKind::TimedOut.into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
