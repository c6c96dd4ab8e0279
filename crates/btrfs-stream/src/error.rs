//! Why a stream could not be read or written.

use crate::attribute::Attribute;
use crate::version::Version;
use std::fmt;

/// The result of reading or writing a stream.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of the encoder or the decoder. `at` is the byte of the stream where the command in question begins.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream could not be read.
    #[error("cannot read the stream at byte {at}: {source}")]
    Read {
        /// Where.
        at: u64,
        /// Why.
        source: std::io::Error,
    },
    /// The stream could not be written.
    #[error("cannot write the stream: {0}")]
    Write(std::io::Error),
    /// The magic is another one.
    #[error("no send stream at byte {at}: expected it to begin with \"btrfs-stream\"")]
    NotAStream {
        /// Where the header should be.
        at: u64,
    },
    /// The stream does not come to the point where it should go on, or not in the way that it did before.
    #[error(
        "this is not the stream that was cut short: its first {commands} commands have digest {found:016x}, expected \
         {expected:016x}"
    )]
    OtherStream {
        /// Commands in front of the point, or all that there are.
        commands: u64,
        /// Digest of the commands of the point.
        expected: u64,
        /// Digest of those of this stream.
        found: u64,
    },
    /// A version from the future, or none at all.
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
        /// In what.
        what: &'static str,
    },
    /// A command is longer than its version allows.
    #[error("the command at byte {at} is {found} bytes long; expected at most {expected}")]
    TooLong {
        /// Where.
        at: u64,
        /// Largest length in bytes.
        expected: u64,
        /// The length in bytes.
        found: u64,
    },
    /// The checksum of a command is wrong.
    #[error("the command at byte {at} is damaged: expected checksum {expected:#010x}, found {found:#010x}")]
    Checksum {
        /// Where.
        at: u64,
        /// The checksum in the stream.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// There is no command with this number.
    #[error("unknown command {found} at byte {at} of the stream")]
    UnknownCommand {
        /// Where.
        at: u64,
        /// The number.
        found: u16,
    },
    /// The command exists, but not here.
    #[error("the command {name} at byte {at} does not belong in a stream of version {version}")]
    NotInVersion {
        /// Where.
        at: u64,
        /// Which command.
        name: &'static str,
        /// The version of the stream.
        version: Version,
    },
    /// The command is known and not supported.
    #[error("the command {name} at byte {at} of the stream is not supported")]
    Unsupported {
        /// Where.
        at: u64,
        /// Which command.
        name: &'static str,
    },
    /// An attribute is not as it should be.
    #[error("the command {command} at byte {at} of the stream is not valid: {problem}")]
    Attribute {
        /// Where.
        at: u64,
        /// Which command.
        command: &'static str,
        /// What is wrong.
        problem: Problem,
    },
}

/// What is wrong with the attributes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// The command needs an attribute that is not there.
    Missing(Attribute),
    /// The attribute is there more than once.
    Twice(Attribute),
    /// There is no attribute with this number.
    Unknown(u16),
    /// The attribute of this number does not end inside the command.
    CutShort(u16),
    /// An attribute has the wrong length.
    Length {
        /// Which.
        attribute: Attribute,
        /// Bytes that it has to have, or may have at most.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// A string has a NUL in it.
    Nul(Attribute),
    /// A number means nothing.
    Value {
        /// Which.
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
