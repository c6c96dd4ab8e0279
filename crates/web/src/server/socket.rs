//! A connection of a client, with time limits for the heads of requests and for the pieces of answers.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::head::{HEAD_BYTES_MAX, Head, Refusal};
use crate::polled;

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
            match polled::receive(&self.socket, &mut buffer, deadline) {
                Ok(0) => return Ok(None),
                Ok(count) => self.received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let is_idle = self.received.is_empty();
                    return Ok(if is_idle { None } else { Some(Err(Refusal::SlowHead)) });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for Socket {
    /// Writes all of `bytes`, or fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.chunks(PIECE_BYTES) {
            polled::send_all(&self.socket, piece, Instant::now() + PIECE_TIME_MAX)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
