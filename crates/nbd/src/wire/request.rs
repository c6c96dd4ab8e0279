//! A request of the transmission: its header of 28 bytes. Data of a write follows it.

use super::cursor::Cursor;
use super::{Malformed, Result};

const MAGIC: u32 = 0x2560_9513;

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;

/// Flags of an export: what the server can do.
pub mod transmission {
    /// The other flags count.
    pub const HAS_FLAGS: u16 = 1;
    /// Changes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF.
    pub const SEND_DF: u16 = 1 << 7;
    /// A FLUSH covers the writes of all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod command_flag {
    /// The change is durable when it is answered.
    pub const FUA: u16 = 1;
    /// Zeros are allocated: no hole is made.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data comes in one chunk.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zeros are written faster than data, or not at all.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Data.
    Read,
    /// Data follows, and is written.
    Write,
    /// The connection ends.
    Disconnect,
    /// Answered writes become durable.
    Flush,
    /// A range is no longer needed.
    Trim,
    /// A range will be read.
    Cache,
    /// Zeros are written.
    WriteZeroes,
    /// Which parts of a range are holes.
    BlockStatus,
    /// Of an unknown number.
    Other(u16),
}

impl Command {
    const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Other(number) => number,
        }
    }

    const fn of(number: u16) -> Self {
        match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Disconnect,
            3 => Self::Flush,
            4 => Self::Trim,
            5 => Self::Cache,
            6 => Self::WriteZeroes,
            7 => Self::BlockStatus,
            other => Self::Other(other),
        }
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// The operation.
    pub command: Command,
    /// The client's number of the request, which the reply repeats.
    pub cookie: u64,
    /// First byte on the export.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// Decodes the header. The length is not yet compared with any limit.
    ///
    /// # Errors
    /// For another magic number.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Result<Self> {
        let mut cursor = Cursor::new("request", bytes);
        let magic = cursor.u32()?;
        if magic != MAGIC {
            return Err(Malformed::new("request", "its magic number", u64::from(magic)));
        }
        let (flags, command) = (cursor.u16()?, Command::of(cursor.u16()?));
        let found = Self { flags, command, cookie: cursor.u64()?, offset: cursor.u64()?, len: cursor.u32()? };
        cursor.end()?;
        Ok(found)
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let fields: [&[u8]; 6] = [
            &MAGIC.to_be_bytes(),
            &self.flags.to_be_bytes(),
            &self.command.number().to_be_bytes(),
            &self.cookie.to_be_bytes(),
            &self.offset.to_be_bytes(),
            &self.len.to_be_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let commands = [
            Command::Read,
            Command::Write,
            Command::Disconnect,
            Command::Flush,
            Command::Trim,
            Command::Cache,
            Command::WriteZeroes,
            Command::BlockStatus,
            Command::Other(77),
        ];
        for command in commands {
            let request = Request { flags: 3, command, cookie: u64::MAX - 1, offset: 1 << 50, len: 4096 };
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        assert!(Request::decode(&[0; REQUEST_BYTES]).is_err());
    }
}
