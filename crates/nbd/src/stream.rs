//! A connected socket with time limits, for the client and the server. It uses only system calls that the sandbox of a
//! server leaves: the socket's options are set by whoever connects.

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

/// Most buffers of one system call.
const PARTS_MAX: usize = 1024;

/// A socket.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Arc<OwnedFd>);

/// Which events a caller waits for, and which came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) can_receive: bool,
    pub(crate) can_send: bool,
}

impl Stream {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> Self {
        Self(socket)
    }

    /// Ends the connection, for all its users.
    pub(crate) fn shut_down(&self) {
        // Fails where the other side has closed it.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }

    /// Receives at least one byte, and waits for it without limit.
    ///
    /// # Errors
    /// `UnexpectedEof` where the other side has closed it.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buf, RecvFlags::empty()) {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                // The socket may have been made non-blocking.
                Err(Errno::AGAIN) => {
                    self.wait(Ready { can_receive: true, can_send: false }, None)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives at least one byte until `deadline`.
    ///
    /// # Errors
    /// `TimedOut`; `UnexpectedEof` where the other side has closed it.
    pub(crate) fn receive_until(&self, buf: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.0, &mut *buf, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.wait(Ready { can_receive: true, can_send: false }, Some(deadline))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fills `buf` until `deadline`.
    ///
    /// # Errors
    /// As [`Self::receive_until`].
    pub(crate) fn fill(&self, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buf.is_empty() {
            let count = self.receive_until(buf, deadline)?;
            buf = buf.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// Sends what can be sent at once; 0 where nothing can.
    ///
    /// # Errors
    /// `BrokenPipe` where the other side has closed it.
    pub(crate) fn send_some(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let parts = parts.get(..parts.len().min(PARTS_MAX)).unwrap_or_default();
        let flags = SendFlags::DONTWAIT | NO_SIGNAL;
        loop {
            match rustix::net::sendmsg(&self.0, parts, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                result => return Ok(result?),
            }
        }
    }

    /// Sends all of `parts` until `deadline`; `wait` is called where the socket takes no more, and returns when it may.
    ///
    /// # Errors
    /// Those of the socket and of `wait`.
    pub(crate) fn send_with(&self, parts: &[&[u8]], mut wait: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut slices: Vec<_> = parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            match self.send_some(rest)? {
                0 => wait()?,
                count => IoSlice::advance_slices(&mut rest, count),
            }
        }
        Ok(())
    }

    /// Sends all of `parts`; a peer that takes nothing for as long as `time_max` is given up.
    ///
    /// # Errors
    /// `TimedOut`, and those of the socket.
    pub(crate) fn send(&self, parts: &[&[u8]], time_max: Duration) -> io::Result<()> {
        let wanted = Ready { can_receive: false, can_send: true };
        self.send_with(parts, || self.wait(wanted, Some(Instant::now() + time_max)).map(drop))
    }

    /// Waits for the wanted events, or for the end of the connection.
    ///
    /// # Errors
    /// `TimedOut` at `deadline`.
    pub(crate) fn wait(&self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.can_receive);
        flags.set(PollFlags::OUT, wanted.can_send);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A millisecond more, so that the time has passed on return.
            let left = left.map(|left| Timespec::try_from(left + Duration::from_millis(1)));
            let left = left.transpose().map_err(|_| ErrorKind::InvalidInput)?;
            let mut polled = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
            match rustix::event::poll(&mut polled, left.as_ref()) {
                Ok(0) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    let [fd] = &polled;
                    let came = fd.revents();
                    let has_ended = came.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
                    return Ok(Ready {
                        can_receive: has_ended || came.contains(PollFlags::IN),
                        can_send: has_ended || came.contains(PollFlags::OUT),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
