//! Defines numbers of nodes and addresses of blocks; and the magic and the type of a block. Used by all f2fs crates.

use std::fmt;

use crate::BLOCK_SIZE;
use crate::convert::to_u64;

/// The first four bytes of a superblock.
pub const MAGIC: u32 = 0xf2f5_2010;

/// The bytes of a block.
pub type Block = [u8; BLOCK_SIZE];

/// Number of a node; that of an inode is its inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nid(pub u32);

/// Address of a block, counted from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddr(pub u32);

impl BlockAddr {
    /// Stands for no block: a hole (`NULL_ADDR`).
    pub const NULL: Self = Self(0);
    /// Stands for a block that is reserved and was not written: it reads as zeros (`NEW_ADDR`).
    pub const NEW: Self = Self(u32::MAX);
    /// Marks the beginning of a compressed cluster (`COMPRESS_ADDR`).
    pub const COMPRESS: Self = Self(u32::MAX - 1);

    /// Its first byte on the device.
    #[must_use]
    pub fn byte(self) -> u64 {
        u64::from(self.0).saturating_mul(to_u64(BLOCK_SIZE))
    }

    /// True for the address of a block, false for the special values `NULL`, `NEW` and `COMPRESS`.
    #[must_use]
    pub fn is_block(self) -> bool {
        !matches!(self, Self::NULL | Self::NEW | Self::COMPRESS)
    }

    /// The address `count` blocks after this one, or the largest address if that is too large.
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NULL => f.write_str("none"),
            Self::NEW => f.write_str("new"),
            Self::COMPRESS => f.write_str("compressed"),
            Self(number) => number.fmt(f),
        }
    }
}
