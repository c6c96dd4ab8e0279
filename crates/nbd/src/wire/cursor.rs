//! Reads big-endian fields from bytes, one after the other. Called by the decoders.

use super::{Malformed, Result, STRING_BYTES_MAX};
use crate::number::to_u64;

/// The bytes of a message that were not yet read.
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
    /// The message, for errors.
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let short = Malformed::new(self.what, "more bytes", to_u64(self.rest.len()));
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A string of `len` bytes.
    pub(super) fn text(&mut self, len: u32) -> Result<&'a str> {
        let long = Malformed::new(self.what, "a string of at most 4096 bytes", u64::from(len));
        let len = usize::try_from(len).ok().filter(|_| len <= STRING_BYTES_MAX).ok_or(long)?;
        let short = Malformed::new(self.what, "a string within the message", to_u64(len));
        let (text, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|error| Malformed::new(self.what, "UTF-8", to_u64(error.valid_up_to())))
    }

    /// A string with its length before it.
    pub(super) fn string(&mut self) -> Result<&'a str> {
        let len = self.u32()?;
        self.text(len)
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails where bytes are left.
    pub(super) fn end(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(Malformed::new(self.what, "the end of the message", to_u64(left))),
        }
    }
}
