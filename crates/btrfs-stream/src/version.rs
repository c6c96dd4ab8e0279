//! The header of a stream.

use std::fmt;

/// What every stream begins with; the version follows as four bytes.
pub(crate) const MAGIC: [u8; 13] = *b"btrfs-stream\0";

/// Bytes in front of the attributes of a command: length, command, checksum.
pub(crate) const COMMAND_HEADER_SIZE: usize = 10;

/// Longest path in a stream, in bytes: the kernel's `PATH_MAX` without its NUL.
pub(crate) const PATH_SIZE_MAX: usize = 4095;

/// The versions of the stream format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Version {
    /// What every kernel reads and writes.
    #[default]
    V1 = 1,
    /// With compressed extents as they are on disk, and data attributes longer than 64 KiB. Linux 6.0 and later.
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

    /// Longest command in bytes, its header included. Version 1 names this limit; version 2 names none, and this one
    /// is a hundred times what the kernel writes.
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
