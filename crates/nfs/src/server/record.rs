//! Receives the records of a connection: fragments put together, within limits of length and time.

use std::io::{self, ErrorKind};
use std::time::Instant;

use super::budget::{Budget, Share};
use super::socket::Socket;
use super::{Ended, FIRST_MAX, IDLE_MAX, STALL_MAX};
use crate::number::{to_u64, to_usize};
use crate::wire::{FRAGMENTS_MAX, Malformed, Mark, RECORD_BYTES_MAX};

/// Bytes received together where the client sends them together.
const INBOX_BYTES: usize = 16 << 10;
/// Memory of a record grows with what was received: a length that lies allocates no more than this ahead.
const GROWTH_BYTES: usize = 64 << 10;

/// Bytes of a connection that were received and belong to later records.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    has_begun: bool,
}

/// A record, and its share of the memory.
pub(super) struct Record<'a> {
    pub(super) bytes: Vec<u8>,
    _share: Share<'a>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; INBOX_BYTES].into(), start: 0, end: 0, has_begun: false }
    }

    /// The next record; `None` where the client has closed the connection between two, or was idle for long.
    ///
    /// # Errors
    /// The fault of the client, or the socket's error.
    pub(super) fn next<'a>(&mut self, socket: &Socket, budget: &'a Budget) -> Result<Option<Record<'a>>, Ended> {
        let idle = if self.has_begun { IDLE_MAX } else { FIRST_MAX };
        if self.start == self.end {
            match self.receive(socket, Instant::now() + idle) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        self.has_begun = true;
        let deadline = Instant::now() + STALL_MAX;
        let (mut bytes, mut share) = (Vec::new(), None);
        for _ in 0..FRAGMENTS_MAX {
            let mut mark = [0; Mark::BYTES];
            self.fill(socket, &mut mark, deadline)?;
            let mark = Mark::decode(mark);
            let total = bytes.len() + to_usize(mark.len);
            if total > RECORD_BYTES_MAX {
                return Err(Malformed::new("length of a record", "about 1 MiB at most", to_u64(total)).into());
            }
            // The whole record's, before the share of its first fragments: nobody waits with a share.
            drop(share.take());
            let taken = budget.take(total, deadline).ok_or_else(|| io::Error::from(ErrorKind::TimedOut))?;
            self.append(socket, &mut bytes, to_usize(mark.len), deadline)?;
            if mark.is_last {
                return Ok(Some(Record { bytes, _share: taken }));
            }
            share = Some(taken);
        }
        Err(Malformed::new("fragments of a record", "at most 256", to_u64(FRAGMENTS_MAX) + 1).into())
    }

    /// Receives something; false at the end of the connection.
    fn receive(&mut self, socket: &Socket, deadline: Instant) -> io::Result<bool> {
        self.start = 0;
        self.end = 0;
        self.end = socket.receive(&mut self.bytes, deadline)?;
        Ok(self.end > 0)
    }

    fn append(&mut self, socket: &Socket, to: &mut Vec<u8>, mut len: usize, deadline: Instant) -> io::Result<()> {
        while len > 0 {
            let (start, count) = (to.len(), len.min(GROWTH_BYTES));
            to.resize(start + count, 0);
            self.fill(socket, to.get_mut(start..).unwrap_or_default(), deadline)?;
            len -= count;
        }
        Ok(())
    }

    /// Fills `buf`, first from what is here.
    fn fill(&mut self, socket: &Socket, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buf.is_empty() {
            let here = self.bytes.get(self.start..self.end).unwrap_or_default();
            let count = here.len().min(buf.len());
            if count > 0 {
                let (now, later) = buf.split_at_mut(count);
                now.copy_from_slice(here.get(..count).unwrap_or_default());
                self.start += count;
                buf = later;
            } else if buf.len() >= self.bytes.len() {
                // Long data goes where it belongs at once.
                match socket.receive(buf, deadline)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    count => buf = buf.get_mut(count..).unwrap_or_default(),
                }
            } else if !self.receive(socket, deadline)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}
