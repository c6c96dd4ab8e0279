//! Defines the versions of the stream format, and the sizes that each allows. The encoder and the decoder keep to them.

use std::fmt;

/// Magic of a stream; a version of four bytes follows.
pub(crate) const MAGIC: [u8; 13] = *b"btrfs-stream\0";

/// Size of a command header: length, command, checksum.
pub(crate) const COMMAND_HEADER_SIZE: usize = 10;

/// Longest path in a stream, in bytes: the kernel's `PATH_MAX` without its NUL.
pub(crate) const PATH_SIZE_MAX: usize = 4095;

/// The versions of the stream format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// Supported by every kernel.
    #[default]
    V1 = 1,
    /// Adds compressed extents and data attributes longer than 64 KiB. Linux 6.0 and later.
    V2 = 2,
}

impl Version {
    /// The version with this number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// The number in the header.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Largest command in bytes, including its header. Version 1 defines this limit; version 2 has none, and this one
    /// is a hundred times the largest command of the kernel.
    #[must_use]
    pub const fn command_size_max(self) -> usize {
        match self {
            Self::V1 => 64 << 10,
            Self::V2 => 16 << 20,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_raw())
    }
}
