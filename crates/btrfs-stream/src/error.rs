//! Defines the errors of the encoder and the decoder, each with the position in the stream. Senders and receivers pass
//! them on.

use crate::attribute::Attribute;
use crate::version::Version;
use std::fmt;

/// The result of reading or writing a stream.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the encoder or the decoder. `at` is the byte of the stream where the command begins.
///
/// To do: get the stream again: it is damaged or was cut short on the way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream could not be read.
    #[error("cannot read the stream at byte {at}: {source}")]
    Read {
        /// Position in the stream.
        at: u64,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The stream could not be written.
    ///
    /// To do: see the cause: a full disk, or a reader that ended.
    #[error("cannot write the stream: {0}")]
    Write(std::io::Error),
    /// The magic does not match.
    ///
    /// To do: give the output of `send`, uncompressed.
    #[error("no send stream at byte {at}: expected it to begin with \"btrfs-stream\"")]
    NotAStream {
        /// Position where the header should be.
        at: u64,
    },
    /// The stream does not reach the resume point, or reaches it with other commands.
    #[error(
        "this is not the stream that was cut short: its first {commands} commands have digest {found:016x}, expected \
         {expected:016x}"
    )]
    OtherStream {
        /// Commands before the point, or in the whole stream if it is shorter.
        commands: u64,
        /// Digest of the commands at the point.
        expected: u64,
        /// Digest of the commands of this stream.
        found: u64,
    },
    /// The version is unknown.
    ///
    /// To do: send with a version that is supported (`--proto 2`).
    #[error("the send stream has version {found}; versions 1 and 2 are supported")]
    Version {
        /// The version of the header.
        found: u32,
    },
    /// The stream ends inside a header or a command.
    #[error("the stream ends at byte {end}, inside {what}; it was cut short")]
    Truncated {
        /// The length of the stream.
        end: u64,
        /// The truncated part.
        what: &'static str,
    },
    /// A command is longer than its version allows.
    #[error("the command at byte {at} is {found} bytes long; expected at most {expected}")]
    TooLong {
        /// Position in the stream.
        at: u64,
        /// Largest length in bytes.
        expected: u64,
        /// The length in bytes.
        found: u64,
    },
    /// The checksum of a command does not match.
    #[error("the command at byte {at} is damaged: expected checksum {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// Position in the stream.
        at: u64,
        /// The checksum in the stream.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The command number is unknown.
    #[error("unknown command {found} at byte {at} of the stream")]
    UnknownCommand {
        /// Position in the stream.
        at: u64,
        /// The number.
        found: u16,
    },
    /// The command does not exist in this version.
    #[error("the command {name} at byte {at} does not belong in a stream of version {version}")]
    NotInVersion {
        /// Position in the stream.
        at: u64,
        /// Name of the command.
        name: &'static str,
        /// The version of the stream.
        version: Version,
    },
    /// The command is known but not supported.
    ///
    /// To do: use the kernel or a newer version for this image; nothing was changed.
    #[error("the command {name} at byte {at} of the stream is not supported")]
    Unsupported {
        /// Position in the stream.
        at: u64,
        /// Name of the command.
        name: &'static str,
    },
    /// An attribute is invalid.
    #[error("the command {command} at byte {at} of the stream is not valid: {problem}")]
    Attribute {
        /// Position in the stream.
        at: u64,
        /// Name of the command.
        command: &'static str,
        /// The problem.
        problem: Problem,
    },
}

/// A problem with the attributes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// A required attribute is missing.
    Missing(Attribute),
    /// The attribute occurs twice.
    Twice(Attribute),
    /// The attribute number is unknown.
    Unknown(u16),
    /// The attribute with this number extends beyond the command.
    CutShort(u16),
    /// An attribute has the wrong length.
    Length {
        /// The attribute.
        attribute: Attribute,
        /// Exact or maximum length in bytes.
        expected: usize,
        /// Length found.
        found: usize,
    },
    /// A string contains a NUL.
    Nul(Attribute),
    /// A number is out of range.
    Value {
        /// The attribute.
        attribute: Attribute,
        /// The number.
        found: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(attribute) => write!(f, "it has no {attribute}"),
            Self::Twice(attribute) => write!(f, "it has more than one {attribute}"),
            Self::Unknown(number) => write!(f, "unknown attribute {number}"),
            Self::CutShort(number) => write!(f, "its attribute {number} does not end inside it"),
            Self::Length { attribute, expected, found } => {
                write!(f, "its {attribute} is {found} bytes long, expected {expected}")
            }
            Self::Nul(attribute) => write!(f, "its {attribute} contains a NUL byte"),
            Self::Value { attribute, found } => write!(f, "its {attribute} cannot be {found}"),
        }
    }
}
