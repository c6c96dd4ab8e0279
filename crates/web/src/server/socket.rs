//! A connection with time limits. It is read and written without blocking and waited for with `poll`, since a process in
//! the sandbox of a server may not set limits on sockets.

use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::head::{HEAD_BYTES_MAX, Head, Refusal};

/// Time for a request's head, from the end of the answer before.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Time for [`PIECE_BYTES`] of an answer: slower clients are cut off.
const PIECE_TIME_MAX: Duration = Duration::from_secs(30);
/// Bytes that have a time limit together.
const PIECE_BYTES: usize = 64 << 10;

/// A connection of a client.
pub(super) struct Socket {
    socket: Arc<OwnedFd>,
    /// Bytes of later requests.
    received: Vec<u8>,
}

impl Socket {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, received: Vec::new() }
    }

    /// The head of the next request; `None` at the end of the connection.
    ///
    /// # Errors
    /// Those of the connection, and a client that is too slow in the middle of a head.
    pub(super) fn read_head(&mut self) -> io::Result<Option<Result<Head, Refusal>>> {
        let deadline = Instant::now() + HEAD_TIME_MAX;
        let mut buffer = [0; 2048];
        loop {
            // Lines without contents before a request are passed over (RFC 9112, section 2.2).
            let blank = self.received.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.received.drain(..blank);
            match Head::parse(&self.received) {
                Ok(Some((head, len))) => {
                    self.received.drain(..len);
                    return Ok(Some(Ok(head)));
                }
                Ok(None) if self.received.len() > HEAD_BYTES_MAX => return Ok(Some(Err(Refusal::LongHead))),
                Ok(None) => {}
                Err(refusal) => return Ok(Some(Err(refusal))),
            }
            match self.wait(PollFlags::IN, deadline) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let is_idle = self.received.is_empty();
                    return Ok(if is_idle { None } else { Some(Err(Refusal::SlowHead)) });
                }
                Err(error) => return Err(error),
            }
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Ok(None),
                Ok((_, count)) => self.received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
            let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
            match rustix::event::poll(&mut polled, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Socket {
    /// Writes all of `bytes`, or fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.chunks(PIECE_BYTES) {
            let deadline = Instant::now() + PIECE_TIME_MAX;
            let mut rest = piece;
            while !rest.is_empty() {
                match rustix::net::send(&self.socket, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                    Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
