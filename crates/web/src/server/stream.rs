//! A body whose length is not known before: chunks for HTTP/1.1, the rest of the connection for 1.0. Written bytes are
//! collected, so that a chunk is not small.

use std::io::{self, Write};

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 << 10;

/// A body that is being written. Without [`Body::finish`] the client sees that it is not whole (HTTP/1.1).
#[must_use = "a body is complete after `finish` only"]
pub(super) struct Body<'a, W: Write> {
    out: &'a mut W,
    in_chunks: bool,
    buffer: Vec<u8>,
}

impl<'a, W: Write> Body<'a, W> {
    pub(super) fn new(out: &'a mut W, in_chunks: bool) -> Self {
        Self { out, in_chunks, buffer: Vec::with_capacity(CHUNK_BYTES) }
    }

    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if self.in_chunks {
            let len = self.buffer.len();
            self.out.write_all(format!("{len:x}\r\n").as_bytes())?;
            self.buffer.extend_from_slice(b"\r\n");
        }
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the body.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.send()?;
        if self.in_chunks { self.out.write_all(b"0\r\n\r\n") } else { Ok(()) }
    }
}

impl<W: Write> Write for Body<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES.saturating_sub(self.buffer.len());
        let len = bytes.len().min(room);
        self.buffer.extend_from_slice(bytes.get(..len).unwrap_or_default());
        if self.buffer.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_their_lengths() {
        let mut out = Vec::new();
        let mut body = Body::new(&mut out, true);
        body.write_all(b"hello ").unwrap();
        body.write_all(b"world").unwrap();
        body.finish().unwrap();
        assert_eq!(out, b"b\r\nhello world\r\n0\r\n\r\n");
        let mut out = Vec::new();
        let mut body = Body::new(&mut out, true);
        body.write_all(&[7; 100_000]).unwrap();
        body.finish().unwrap();
        assert!(out.starts_with(b"10000\r\n") && out.ends_with(b"\r\n0\r\n\r\n"));
        let mut out = Vec::new();
        let mut body = Body::new(&mut out, false);
        body.write_all(b"plain").unwrap();
        body.finish().unwrap();
        assert_eq!(out, b"plain");
    }
}
