//! A connected socket with time limits, for the client and the server. It uses only system calls that the sandbox of a
//! server leaves: the socket's options are set by whoever connects.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::tls::{NO_SIGNAL, Settings, Tls};

/// Most buffers of one system call.
const PARTS_MAX: usize = 1024;

/// A socket, encrypted or not.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    socket: Arc<OwnedFd>,
    tls: Option<Arc<Tls>>,
}

/// Which events a caller waits for, and which came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) can_receive: bool,
    pub(crate) can_send: bool,
}

impl Stream {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, tls: None }
    }

    /// The same connection, encrypted from now on; the handshake of TLS has to end until `deadline`.
    ///
    /// # Errors
    /// A certificate that does not fit, other errors of TLS, those of the socket; `TimedOut`.
    pub(crate) fn encrypted(self, settings: &Settings, deadline: Instant) -> io::Result<Self> {
        let tls = Tls::begin(Arc::clone(&self.socket), settings)?;
        while tls.is_handshaking() {
            // Bytes of the caller's come after the handshake only.
            let can_send = !tls.flush()?;
            if tls.has_input()? && tls.is_handshaking() {
                // An error or the end: this tells which.
                tls.receive_some(&mut [0])?;
            }
            if tls.is_handshaking() {
                self.poll(Ready { can_receive: true, can_send }, Some(deadline))?;
            }
        }
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }

    /// Ends the connection, for all its users.
    pub(crate) fn shut_down(&self) {
        if let Some(tls) = &self.tls {
            tls.end();
        }
        // Fails where the other side has closed it.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Receives at least one byte, and waits for it without limit.
    ///
    /// # Errors
    /// `UnexpectedEof` where the other side has closed it.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &self.tls {
            return self.receive_encrypted(tls, buf, None);
        }
        loop {
            match rustix::net::recv(&self.socket, &mut *buf, RecvFlags::empty()) {
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
        if let Some(tls) = &self.tls {
            return self.receive_encrypted(tls, buf, Some(deadline));
        }
        loop {
            match rustix::net::recv(&self.socket, &mut *buf, RecvFlags::DONTWAIT) {
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

    fn receive_encrypted(&self, tls: &Tls, buf: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            if let Some(count) = tls.receive_some(buf)? {
                return Ok(count);
            }
            self.poll(Ready { can_receive: true, can_send: false }, deadline)?;
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
        if let Some(tls) = &self.tls {
            return tls.send_some(parts);
        }
        let flags = SendFlags::DONTWAIT | NO_SIGNAL;
        loop {
            match rustix::net::sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), flags) {
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
        if let Some(tls) = &self.tls {
            while !tls.flush()? {
                wait()?;
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
        let Some(tls) = self.tls.as_ref().filter(|_| wanted.can_receive) else {
            return self.poll(wanted, deadline);
        };
        // Input may be for the session alone, and bytes for a caller may be here already.
        loop {
            if tls.has_input()? {
                return Ok(Ready { can_receive: true, can_send: false });
            }
            let ready = self.poll(wanted, deadline)?;
            if ready.can_send {
                return Ok(Ready { can_receive: tls.has_input()?, ..ready });
            }
        }
    }

    /// Waits for events of the socket.
    fn poll(&self, wanted: Ready, deadline: Option<Instant>) -> io::Result<Ready> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, wanted.can_receive);
        flags.set(PollFlags::OUT, wanted.can_send);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // A millisecond more, so that the time has passed on return.
            let left = left.map(|left| Timespec::try_from(left + Duration::from_millis(1)));
            let left = left.transpose().map_err(|_| ErrorKind::InvalidInput)?;
            let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
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
