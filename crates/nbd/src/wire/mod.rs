//! The messages of the protocol as values: decoding and encoding, without any I/O.
//!
//! `handshake` has the options and their replies, `request` and `reply` the transmission. Numbers are big-endian and
//! keep the names that the specification gives them.
//!
//! Invariants: decoders take any bytes, never panic, and allocate no more than the bytes they are given; lengths are
//! limited by the constants here before anything is allocated for them. Failure: [`Malformed`], which says what was
//! expected where. Callers: `client`, `server`, and the fuzz targets.

mod cursor;
mod handshake;
mod reply;
mod request;

pub use handshake::{
    BlockSizes, Context, ContextRequest, ExportRequest, Greeting, Info, OptionHeader, OptionReply, client_flags,
    decode_client_flags, decode_export_name, decode_listed, encode_listed, greeting, option, rep,
};
pub use reply::{BlockExtent, Chunk, ChunkHeader, ReplyHeader, SIMPLE_BYTES, STRUCTURED_BYTES, state};
pub use request::{Command, REQUEST_BYTES, Request, command_flag, transmission};

/// Longest name of an export, and longest other string, in bytes; the specification's.
pub const STRING_BYTES_MAX: u32 = 4096;
/// Longest payload of an option or of its reply.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Most data of one request: the limit that the specification asks servers to accept where no other was agreed.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// The metadata context that says where the holes are.
pub const ALLOCATION: &str = "base:allocation";

/// Numbers of errors on the wire, which are those of Linux.
pub mod errno {
    /// The export is read-only.
    pub const EPERM: u32 = 1;
    /// Reading or writing failed.
    pub const EIO: u32 = 5;
    /// The request is malformed, or outside the export.
    pub const EINVAL: u32 = 22;
    /// No space is left.
    pub const ENOSPC: u32 = 28;
    /// A reply would be too large.
    pub const EOVERFLOW: u32 = 75;
    /// The server cannot do it, or not fast.
    pub const ENOTSUP: u32 = 95;
    /// The server ends.
    pub const ESHUTDOWN: u32 = 108;
}

/// Bytes that are no message of the protocol: the other side speaks another one, or has a fault.
///
/// To do: see whether the address is that of an NBD server, and which version of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found:#x}")]
pub struct Malformed {
    /// The field.
    pub what: &'static str,
    /// A legal value.
    pub expected: &'static str,
    /// The number that was found.
    pub found: u64,
}

impl Malformed {
    /// A field with another value than one that is legal.
    #[must_use]
    pub const fn new(what: &'static str, expected: &'static str, found: u64) -> Self {
        Self { what, expected, found }
    }
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Malformed>;
