//! Replies of the transmission: simple ones, and the chunks of structured ones.

use super::cursor::Cursor;
use super::{Malformed, REQUEST_BYTES_MAX, Result};
use crate::number::to_u64;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const FLAG_DONE: u16 = 1;

/// Bytes of a simple reply, without data.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a chunk, without payload.
pub const STRUCTURED_BYTES: usize = 20;

/// Bits of the context `base:allocation`.
pub mod state {
    /// No space is allocated.
    pub const HOLE: u32 = 1;
    /// All bytes are zeros.
    pub const ZERO: u32 = 2;
}

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply; the data of a read follows it where there is no error.
    Simple {
        /// 0, or a number of [`super::errno`].
        error: u32,
        /// Of the request.
        cookie: u64,
    },
    /// A chunk of a structured reply.
    Chunk(ChunkHeader),
}

/// The header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    /// True for the last one of a reply.
    pub is_last: bool,
    /// The number of its kind.
    pub kind: u16,
    /// Of the request.
    pub cookie: u64,
    /// Bytes that follow.
    pub len: u32,
}

impl ReplyHeader {
    /// Bytes of the header that begins with these: [`SIMPLE_BYTES`] or [`STRUCTURED_BYTES`].
    ///
    /// # Errors
    /// For another magic number.
    pub fn bytes(first: [u8; 4]) -> Result<usize> {
        match u32::from_be_bytes(first) {
            SIMPLE_MAGIC => Ok(SIMPLE_BYTES),
            STRUCTURED_MAGIC => Ok(STRUCTURED_BYTES),
            other => Err(Malformed::new("reply", "its magic number", u64::from(other))),
        }
    }

    /// Decodes the header.
    ///
    /// # Errors
    /// For another magic number, unknown flags, and a payload that is longer than any may be.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("reply", bytes);
        let magic = cursor.u32()?;
        if magic == SIMPLE_MAGIC {
            let (error, cookie) = (cursor.u32()?, cursor.u64()?);
            cursor.end()?;
            return Ok(Self::Simple { error, cookie });
        }
        if magic != STRUCTURED_MAGIC {
            return Err(Malformed::new("reply", "its magic number", u64::from(magic)));
        }
        let (flags, kind, cookie, len) = (cursor.u16()?, cursor.u16()?, cursor.u64()?, cursor.u32()?);
        cursor.end()?;
        if flags & !FLAG_DONE != 0 {
            return Err(Malformed::new("flags of a chunk", "known ones", u64::from(flags)));
        }
        // The offset before the data of a read.
        if len > REQUEST_BYTES_MAX.saturating_add(8) {
            return Err(Malformed::new("length of a chunk", "at most 32 MiB", u64::from(len)));
        }
        Ok(Self::Chunk(ChunkHeader { is_last: flags & FLAG_DONE != 0, kind, cookie, len }))
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Simple { error, cookie } => {
                let numbers = [SIMPLE_MAGIC.to_be_bytes(), error.to_be_bytes()].concat();
                [numbers.as_slice(), &cookie.to_be_bytes()].concat()
            }
            Self::Chunk(chunk) => {
                let flags = if chunk.is_last { FLAG_DONE } else { 0 };
                let mut bytes = STRUCTURED_MAGIC.to_be_bytes().to_vec();
                bytes.extend([flags.to_be_bytes(), chunk.kind.to_be_bytes()].concat());
                bytes.extend(chunk.cookie.to_be_bytes());
                bytes.extend(chunk.len.to_be_bytes());
                bytes
            }
        }
    }
}

/// A run of bytes with one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockExtent {
    /// Bytes.
    pub len: u32,
    /// Bits of [`state`].
    pub state: u32,
}

/// The payload of a chunk, except data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Nothing.
    Nothing,
    /// Zeros in place of data.
    Hole {
        /// First byte on the export.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// States of a range, from its first byte on.
    Status {
        /// The number of the context.
        context: u32,
        /// The runs.
        extents: Vec<BlockExtent>,
    },
    /// The request failed.
    Error {
        /// A number of [`super::errno`].
        error: u32,
        /// The server's words.
        text: String,
    },
}

impl Chunk {
    /// The number of [`Chunk::Nothing`].
    pub const NONE: u16 = 0;
    /// The number of a chunk of data: the offset on the export, and the bytes.
    pub const DATA: u16 = 1;
    /// The number of [`Chunk::Hole`].
    pub const HOLE: u16 = 2;
    /// The number of [`Chunk::Status`].
    pub const STATUS: u16 = 5;
    /// The number of [`Chunk::Error`].
    pub const ERROR: u16 = 0x8001;
    /// The number of an error with an offset behind its text.
    pub const ERROR_OFFSET: u16 = 0x8002;
    /// The bit that all errors have.
    const ERROR_BIT: u16 = 0x8000;

    /// Decodes the payload of a chunk of this kind, which is not [`Chunk::DATA`].
    ///
    /// # Errors
    /// For unknown kinds that are no errors, and payloads that do not fit their kind.
    pub fn decode(kind: u16, payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("chunk of a reply", payload);
        let found = match kind {
            Self::NONE => Self::Nothing,
            Self::HOLE => Self::Hole { offset: cursor.u64()?, len: cursor.u32()? },
            Self::STATUS => {
                let context = cursor.u32()?;
                let mut extents = Vec::new();
                while !cursor.is_at_end() {
                    let extent = BlockExtent { len: cursor.u32()?, state: cursor.u32()? };
                    if extent.len == 0 {
                        return Err(Malformed::new("length of an extent", "more than 0", 0));
                    }
                    extents.push(extent);
                }
                if extents.is_empty() {
                    return Err(Malformed::new("extents of a reply", "at least one", 0));
                }
                Self::Status { context, extents }
            }
            kind if kind & Self::ERROR_BIT != 0 => {
                let error = cursor.u32()?;
                if error == 0 {
                    return Err(Malformed::new("error of a chunk", "a number of an error", 0));
                }
                let len = u32::from(cursor.u16()?);
                let text = cursor.text(len)?.to_owned();
                // The place of the error in its request, and what later versions add.
                cursor.rest();
                Self::Error { error, text }
            }
            other => return Err(Malformed::new("kind of a chunk", "a known one", u64::from(other))),
        };
        cursor.end()?;
        Ok(found)
    }

    /// The number of its kind, and its payload.
    #[must_use]
    pub fn encode(&self) -> (u16, Vec<u8>) {
        match self {
            Self::Nothing => (Self::NONE, Vec::new()),
            Self::Hole { offset, len } => (Self::HOLE, [offset.to_be_bytes().as_slice(), &len.to_be_bytes()].concat()),
            Self::Status { context, extents } => {
                let runs = extents.iter().flat_map(|run| [run.len.to_be_bytes(), run.state.to_be_bytes()]);
                (Self::STATUS, std::iter::once(context.to_be_bytes()).chain(runs).flatten().collect())
            }
            Self::Error { error, text } => {
                let len = to_u64(text.len()).min(u64::from(super::STRING_BYTES_MAX));
                let len = u16::try_from(len).unwrap_or_default();
                let text = text.as_bytes().get(..usize::from(len)).unwrap_or_default();
                (Self::ERROR, [error.to_be_bytes().as_slice(), &len.to_be_bytes(), text].concat())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let headers = [
            ReplyHeader::Simple { error: 5, cookie: 9 },
            ReplyHeader::Chunk(ChunkHeader { is_last: true, kind: Chunk::DATA, cookie: 1 << 60, len: 4104 }),
            ReplyHeader::Chunk(ChunkHeader { is_last: false, kind: 0, cookie: 0, len: 0 }),
        ];
        for header in headers {
            let bytes = header.encode();
            assert_eq!(ReplyHeader::bytes(bytes[..4].try_into().unwrap()), Ok(bytes.len()));
            assert_eq!(ReplyHeader::decode(&bytes), Ok(header));
        }
        let extents = vec![BlockExtent { len: 4096, state: 0 }, BlockExtent { len: u32::MAX, state: 3 }];
        let chunks = [
            Chunk::Nothing,
            Chunk::Hole { offset: 1 << 40, len: 7 },
            Chunk::Status { context: 1, extents },
            Chunk::Error { error: 28, text: "full".to_owned() },
        ];
        for chunk in chunks {
            let (kind, payload) = chunk.encode();
            assert_eq!(Chunk::decode(kind, &payload), Ok(chunk));
        }
    }

    #[test]
    fn chunks_that_lie_are_refused() {
        let mut long = ReplyHeader::Chunk(ChunkHeader { is_last: true, kind: 1, cookie: 0, len: 0 }).encode();
        long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(ReplyHeader::decode(&long).is_err());
        assert!(ReplyHeader::bytes([0; 4]).is_err());
        for (kind, payload) in [
            (Chunk::NONE, b"more".as_slice()),
            (Chunk::HOLE, b"short"),
            (Chunk::STATUS, b"\0\0\0\x01"),
            (Chunk::STATUS, b"\0\0\0\x01\0\0\0\0\0\0\0\0"),
            (Chunk::STATUS, b"\0\0\0\x01\0\0\0\x01\0\0"),
            (Chunk::ERROR, b"\0\0\0\0\0\0"),
            (Chunk::ERROR, b"\0\0\0\x05\xff\xff"),
            (77, b""),
        ] {
            assert!(Chunk::decode(kind, payload).is_err(), "{kind} {payload:?}");
        }
    }
}
