//! Defines [`Corrupt`], the report of a corruption: the wrong value, its place, the expected value and the one found.
//! `verify` and the item parsers return it; the errors of all btrfs crates carry it.
//!
//! A [`Corrupt`] is small, built without allocation and formats as one sentence. Item parsers do not know the block of
//! an item: they leave the place [`At::Unknown`], and the caller adds it with [`Corrupt::at`].

use std::fmt;

use crate::{DevId, InodeNo, Key, Logical, TreeId};

/// A violation of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The wrong value, as a noun: `"inode item size"`.
    pub what: &'static str,
    /// Place of the value, read or about to be written.
    pub at: At,
    /// The value that the format or the context requires.
    pub expected: Detail,
    /// The value found.
    pub found: Detail,
}

impl Corrupt {
    /// A corruption without a place yet.
    #[must_use]
    #[cold]
    pub const fn new(what: &'static str, expected: Detail, found: Detail) -> Self {
        Self { what, at: At::Unknown, expected, found }
    }

    /// Adds the place if it is unknown.
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

/// Place of corrupt bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Not known at this level; the caller adds it.
    Unknown,
    /// The superblock copy at this byte of a device.
    Superblock(u64),
    /// The array of system chunks in the superblock, at this byte of it.
    SystemChunkArray(u64),
    /// A tree block.
    Block(Logical),
    /// One item of a leaf, or one pointer of a node.
    Item {
        /// The tree block.
        block: Logical,
        /// Index within the block.
        slot: u32,
        /// Key of the item.
        key: Key,
    },
    /// An item whose block is unknown.
    Key(TreeId, Key),
    /// A tree as a whole.
    Tree(TreeId),
    /// A data extent, at this address.
    Data(Logical),
    /// An inode of a subvolume.
    Inode(TreeId, InodeNo),
    /// A byte of a device.
    Device(DevId, u64),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("at an unknown place"),
            Self::Superblock(offset) => write!(f, "in the superblock at {offset}"),
            Self::SystemChunkArray(offset) => {
                write!(f, "in the system chunk array at {offset}")
            }
            Self::Block(block) => write!(f, "in the tree block at {block}"),
            Self::Item { block, slot, key } => {
                write!(f, "in the tree block at {block}, slot {slot}, key {key}")
            }
            Self::Key(tree, key) => write!(f, "in tree {tree}, key {key}"),
            Self::Tree(tree) => write!(f, "in tree {tree}"),
            Self::Data(at) => write!(f, "in data at {at}"),
            Self::Inode(tree, inode) => write!(f, "in tree {tree}, inode {inode}"),
            Self::Device(dev, offset) => write!(f, "on device {dev} at {offset}"),
        }
    }
}

/// Bytes of a [`Detail::Bytes`] that are kept.
const DETAIL_BYTES_MAX: usize = 16;

/// A value for an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A number in decimal.
    Number(u64),
    /// A number in hexadecimal: flags, hashes.
    Hex(u64),
    /// A number in octal: modes.
    Octal(u64),
    /// Both ends are included.
    Range(u64, u64),
    /// Any number up to this one.
    AtMost(u64),
    /// Any number from this one on.
    AtLeast(u64),
    /// A multiple of this number.
    MultipleOf(u64),
    /// A key, in parts so that this type stays small.
    Key {
        /// [`Key::objectid`]
        objectid: u64,
        /// [`Key::item_type`]
        item_type: u8,
        /// [`Key::offset`]
        offset: u64,
    },
    /// A key above this one.
    KeyAbove {
        /// [`Key::objectid`]
        objectid: u64,
        /// [`Key::item_type`]
        item_type: u8,
        /// [`Key::offset`]
        offset: u64,
    },
    /// A UUID.
    Uuid([u8; 16]),
    /// The first bytes of a checksum or the like, and how many of them count.
    Bytes([u8; DETAIL_BYTES_MAX], u8),
    /// Anything else.
    Text(&'static str),
}

impl Detail {
    /// A length or count in memory.
    #[must_use]
    pub fn size(value: usize) -> Self {
        Self::Number(crate::convert::to_u64(value))
    }

    /// Bytes, cut where they are longer than an error can hold.
    #[must_use]
    pub fn bytes(bytes: &[u8]) -> Self {
        let mut kept = [0; DETAIL_BYTES_MAX];
        kept.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self::Bytes(kept, u8::try_from(bytes.len().min(DETAIL_BYTES_MAX)).unwrap_or(0))
    }

    /// A checksum: as many bytes of a checksum field as its kind has.
    #[must_use]
    pub fn csum(kind: codec::ChecksumType, field: &[u8]) -> Self {
        Self::bytes(field.get(..kind.len()).unwrap_or(field))
    }

    /// A key that must be exceeded.
    #[must_use]
    pub const fn key_above(key: Key) -> Self {
        Self::KeyAbove { objectid: key.objectid, item_type: key.item_type, offset: key.offset }
    }
}

impl From<Key> for Detail {
    fn from(key: Key) -> Self {
        Self::Key { objectid: key.objectid, item_type: key.item_type, offset: key.offset }
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
            Self::MultipleOf(n) => write!(f, "a multiple of {n}"),
            Self::Key { objectid, item_type, offset } => Key::new(objectid, item_type, offset).fmt(f),
            Self::KeyAbove { objectid, item_type, offset } => {
                write!(f, "a key above {}", Key::new(objectid, item_type, offset))
            }
            Self::Uuid(uuid) => crate::Uuid(uuid).fmt(f),
            Self::Bytes(bytes, len) => bytes.iter().take(usize::from(len)).try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Text(text) => f.write_str(text),
        }
    }
}

const _: () = assert!(size_of::<Corrupt>() <= 112, "an error must stay cheap to return");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corruption_reads_as_one_sentence() {
        let error = Corrupt::new("inode item size", Detail::Number(160), Detail::Number(12)).at(At::Item {
            block: Logical(65536),
            slot: 3,
            key: Key::new(256, 1, 0),
        });
        assert_eq!(
            error.to_string(),
            "corrupt inode item size in the tree block at 65536, slot 3, key (256 1 0): \
             expected 160, found 12"
        );
        assert_eq!(error.at(At::Unknown), error, "a known place is kept");
    }
}
