//! Receives the records of a connection: joins fragments, and limits their length and time.

use std::io::{self, ErrorKind};
use std::time::Instant;

use super::budget::{Budget, Share};
use super::socket::Socket;
use super::{Ended, FIRST_MAX, IDLE_MAX, STALL_MAX};
use crate::number::{to_u64, to_usize};
use crate::wire::{FRAGMENTS_MAX, Malformed, Mark, RECORD_BYTES_MAX};

/// Size of the receive buffer: one system call can receive several small records.
const INBOX_BYTES: usize = 16 << 10;
/// A record's buffer grows by this much as data arrives, so that a forged length cannot make the server allocate more.
const GROWTH_BYTES: usize = 64 << 10;

/// Receive buffer of a connection: bytes that were received but not yet used.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    has_begun: bool,
}

/// A record, and its reservation in the memory budget.
pub(super) struct Record<'a> {
    pub(super) bytes: Vec<u8>,
    _share: Share<'a>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; INBOX_BYTES].into(), start: 0, end: 0, has_begun: false }
    }

    /// Receives the next record; `None` if the client closed the connection between records, or was idle for too long.
    ///
    /// # Errors
    /// A protocol error of the client, or an error of the socket.
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
            // Dropped before the larger share is taken: a thread that waits while it holds a share could deadlock.
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

    /// Refills the buffer; false if the client closed the connection.
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

    /// Fills `buf`, first from the receive buffer.
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
                // Long data is received into its place, without a copy through the receive buffer.
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
