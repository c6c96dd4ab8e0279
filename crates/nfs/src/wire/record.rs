//! Record marks (RFC 5531, section 11): before each fragment, its length and whether it is the last of its record.

/// Longest record of a client: the data of a WRITE and its headers.
pub const RECORD_BYTES_MAX: usize = (1 << 20) + (8 << 10);
/// Most fragments of a record; clients send one or a few.
pub const FRAGMENTS_MAX: usize = 256;

const LAST: u32 = 1 << 31;

/// The mark before a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The record ends with this fragment.
    pub is_last: bool,
    /// Bytes of the fragment, below 2^31.
    pub len: u32,
}

impl Mark {
    /// Length of a mark.
    pub const BYTES: usize = 4;

    /// Decodes a mark. Any four bytes are valid; the caller checks the length.
    #[must_use]
    pub const fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self { is_last: word & LAST != 0, len: word & !LAST }
    }

    /// The bytes of the mark.
    #[must_use]
    pub const fn encode(self) -> [u8; Self::BYTES] {
        let last = if self.is_last { LAST } else { 0 };
        (self.len & !LAST | last).to_be_bytes()
    }
}
