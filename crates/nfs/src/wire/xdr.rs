//! Reads and writes the primitive types of XDR: big-endian numbers, and opaque bytes padded to four.

use super::{Malformed, Result};
use crate::number::{to_u32, to_u64, to_usize};

/// Every item takes a multiple of this many bytes.
const UNIT_BYTES: usize = 4;

/// The bytes that fill the last unit of `len` bytes.
const fn padding(len: usize) -> usize {
    len.wrapping_neg() % UNIT_BYTES
}

/// Reads a message from front to back.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// Name of the message in errors.
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; `what` names them in errors.
    #[must_use]
    pub const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let short = Malformed::new(self.what, "more bytes", to_u64(self.rest.len()));
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes of a fixed length, without padding.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the message.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let short = Malformed::new(self.what, "more bytes", to_u64(self.rest.len()));
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// `unsigned int`.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the message.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// `unsigned hyper`.
    ///
    /// # Errors
    /// [`Malformed`] at the end of the message.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// `bool`.
    ///
    /// # Errors
    /// [`Malformed`] for numbers other than 0 and 1.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::new(self.what, "0 or 1", u64::from(other))),
        }
    }

    /// `opaque<max>` or `string<max>`: a length, the bytes, and padding of any value.
    ///
    /// # Errors
    /// [`Malformed`] for a longer one, and at the end of the message.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let len = self.u32()?;
        let long = Malformed::new(self.what, "a length within the limit", u64::from(len));
        let len = Some(to_usize(len)).filter(|len| *len <= max).ok_or(long)?;
        let taken = self.bytes(len)?;
        self.bytes(padding(len))?;
        Ok(taken)
    }

    /// A value that may be absent: `union switch (bool)`.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Takes the remaining bytes.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Fails if bytes remain.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn end(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Malformed::new(self.what, "the end of the message", to_u64(left))),
        }
    }
}

/// A message that is being written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Number of bytes written so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Removes everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// Writes bytes without length and padding.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Overwrites the number at an offset, to fill in a value that was not known before.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(place) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
            *place = value.to_be_bytes();
        }
    }

    /// `unsigned int`.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// `unsigned hyper`.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    /// `bool`.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// A length, the bytes, and their padding.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(to_u32(bytes.len()));
        self.raw(bytes);
        self.pad(bytes.len());
    }

    fn pad(&mut self, len: usize) {
        self.bytes.resize(self.bytes.len() + padding(len), 0);
    }

    /// A value that may be absent.
    pub fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    /// Writes an opaque of at most `max` bytes without a copy: `fill` writes into the message, and returns how many
    /// bytes.
    ///
    /// # Errors
    /// Those of `fill`; the message is then unchanged.
    pub fn filled<E>(
        &mut self,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        let start = self.bytes.len();
        let data = start + UNIT_BYTES;
        self.bytes.resize(data + max, 0);
        match fill(self.bytes.get_mut(data..).unwrap_or_default()) {
            Ok(count) => {
                let count = count.min(max);
                self.bytes.truncate(data + count);
                self.set_u32(start, to_u32(count));
                self.pad(count);
                Ok(count)
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_bytes_are_padded_to_units() {
        for len in 0..9_usize {
            let mut out = Writer::default();
            out.opaque(&vec![7; len]);
            out.u32(1);
            let bytes = out.into_bytes();
            assert_eq!(bytes.len() % UNIT_BYTES, 0);
            let mut read = Reader::new("test", &bytes);
            assert_eq!(read.opaque(8).unwrap(), vec![7; len]);
            assert_eq!(read.u32(), Ok(1));
            read.end().unwrap();
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let lying = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        Reader::new("test", &lying).opaque(1 << 20).unwrap_err();
        Reader::new("test", &lying).opaque(usize::MAX).unwrap_err();
        Reader::new("test", &[0, 0, 0, 3, 1, 2, 3]).opaque(8).unwrap_err();
        Reader::new("test", &[0, 0, 0, 2]).bool().unwrap_err();
    }
}
