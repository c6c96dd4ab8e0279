//! Describes corruption: the wrong value, its place, the expected value and the one found. All modules of the crate
//! return it; `f2fs` and `f2fs-check` report it.
//!
//! A [`Corrupt`] is small, is built without allocating and reads as one sentence. Code that parses a structure may not
//! know where it lies: it leaves the place open ([`At::Unknown`]) and its caller fills it in with [`Corrupt::at`].

use std::fmt;

use crate::ids::{BlockAddr, Nid};

/// Bytes that violate the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Which value is wrong, as a noun: `"node footer nid"`.
    pub what: &'static str,
    /// Where it was read.
    pub at: At,
    /// The value required by the format or the context.
    pub expected: Detail,
    /// The value on the disk.
    pub found: Detail,
}

impl Corrupt {
    /// A corruption whose place is not known yet.
    #[must_use]
    #[cold]
    pub const fn new(what: &'static str, expected: Detail, found: Detail) -> Self {
        Self { what, at: At::Unknown, expected, found }
    }

    /// The same corruption with its place, unless that was known already.
    #[must_use]
    #[cold]
    pub fn at(self, at: At) -> Self {
        match self.at {
            At::Unknown => Self { at, ..self },
            _ => self,
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt {} {}: expected {}, found {}", self.what, self.at, self.expected, self.found)
    }
}

impl std::error::Error for Corrupt {}

/// Where corrupt bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Not known at this level; the caller adds it.
    Unknown,
    /// The superblock copy at this byte of the device.
    Superblock(u64),
    /// The checkpoint pack that begins at this block.
    Checkpoint(BlockAddr),
    /// A block.
    Block(BlockAddr),
    /// A node, in a block.
    Node(Nid, BlockAddr),
    /// An inode.
    Inode(Nid),
    /// A block of a file or directory: its inode, and the number of the block within it.
    File(Nid, u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("at an unknown place"),
            Self::Superblock(offset) => write!(f, "in the superblock at {offset}"),
            Self::Checkpoint(at) => write!(f, "in the checkpoint at block {at}"),
            Self::Block(at) => write!(f, "in block {at}"),
            Self::Node(nid, at) => write!(f, "in node {nid} at block {at}"),
            Self::Inode(ino) => write!(f, "in inode {ino}"),
            Self::File(ino, index) => write!(f, "in inode {ino}, its block {index}"),
        }
    }
}

/// A value for an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A number in decimal.
    Number(u64),
    /// A number in hexadecimal: flags, checksums.
    Hex(u64),
    /// A number in octal: modes.
    Octal(u64),
    /// Both ends are included.
    Range(u64, u64),
    /// Any number up to this one.
    AtMost(u64),
    /// Any number from this one on.
    AtLeast(u64),
    /// The address of a block.
    Block(BlockAddr),
    /// Anything else.
    Text(&'static str),
}

impl Detail {
    /// A length or count in memory.
    #[must_use]
    pub fn size(value: usize) -> Self {
        Self::Number(crate::convert::to_u64(value))
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Hex(n) => write!(f, "{n:#x}"),
            Self::Octal(n) => write!(f, "{n:#o}"),
            Self::Range(low, high) => write!(f, "{low} to {high}"),
            Self::AtMost(n) => write!(f, "at most {n}"),
            Self::AtLeast(n) => write!(f, "at least {n}"),
            Self::Block(at) => at.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Refuses a number outside `low..=high`.
pub(crate) fn within(what: &'static str, found: u64, low: u64, high: u64) -> Result<(), Corrupt> {
    if (low..=high).contains(&found) {
        return Ok(());
    }
    Err(Corrupt::new(what, Detail::Range(low, high), Detail::Number(found)))
}

/// Refuses a number that is not the expected one.
pub(crate) fn equal(what: &'static str, expected: u64, found: u64) -> Result<(), Corrupt> {
    if expected == found {
        return Ok(());
    }
    Err(Corrupt::new(what, Detail::Number(expected), Detail::Number(found)))
}

const _: () = assert!(size_of::<Corrupt>() <= 96, "an error must stay cheap to return");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corruption_reads_as_one_sentence() {
        let error = equal("node footer nid", 5, 6).unwrap_err().at(At::Node(Nid(5), BlockAddr(4711)));
        assert_eq!(error.to_string(), "corrupt node footer nid in node 5 at block 4711: expected 5, found 6");
        assert_eq!(error.at(At::Unknown), error, "a known place is kept");
        assert!(within("depth", 63, 0, 63).is_ok());
        assert!(within("depth", 64, 0, 63).unwrap_err().to_string().ends_with("expected 0 to 63, found 64"));
    }
}
