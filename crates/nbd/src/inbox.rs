//! Bytes that were received together and are looked at one message after the other. The client's links and the server's
//! connections have one each.

use std::io;
use std::time::Instant;

use crate::stream::Stream;

/// Bytes that were received and not yet looked at.
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub(crate) fn new(len: usize) -> Self {
        Self { bytes: vec![0; len].into(), start: 0, end: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Receives where there is nothing; without a deadline it waits without limit.
    ///
    /// # Errors
    /// The socket's; `TimedOut`.
    pub(crate) fn wait(&mut self, stream: &Stream, deadline: Option<Instant>) -> io::Result<()> {
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
            self.end = match deadline {
                None => stream.receive(&mut self.bytes)?,
                Some(deadline) => stream.receive_until(&mut self.bytes, deadline)?,
            };
        }
        Ok(())
    }

    /// Fills `buf`, first from what is here.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(crate) fn fill(&mut self, stream: &Stream, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
        while !buf.is_empty() {
            let here = self.bytes.get(self.start..self.end).unwrap_or_default();
            if here.is_empty() {
                // Long data goes where it belongs at once.
                if buf.len() >= self.bytes.len() {
                    let count = stream.receive_until(buf, deadline)?;
                    buf = buf.get_mut(count..).unwrap_or_default();
                } else {
                    self.wait(stream, Some(deadline))?;
                }
                continue;
            }
            let count = here.len().min(buf.len());
            let (now, later) = buf.split_at_mut(count);
            now.copy_from_slice(here.get(..count).unwrap_or_default());
            self.start += count;
            buf = later;
        }
        Ok(())
    }
}
