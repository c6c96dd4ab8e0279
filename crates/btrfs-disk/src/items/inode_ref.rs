//! Parses and builds INODE_REF and INODE_EXTREF: the names of an inode, seen from the inode. `dir::refs` of `btrfs`
//! edits them; log replay, check, rescue and repair read them.
//!
//! Keys: (inode, INODE_REF, directory) holds all names in one directory while they fit;
//! (inode, INODE_EXTREF, [hash of directory and name](crate::hash::extref_hash)) the others.

use std::fmt;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{OnDisk, name_out_of_bounds};
use crate::convert::u16_len;
use crate::error::Corrupt;
use crate::key::item_type::INODE_REF;
use crate::{InodeNo, Key};

/// Fixed part of a name in an INODE_REF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InodeRef {
    /// Position in the directory: offset of the DIR_INDEX key.
    pub index: U64,
    /// Bytes of the name that follows.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeRef>() == 10);

impl OnDisk for InodeRef {
    const NAME: &'static str = "inode reference size";
}

impl fmt::Display for InodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {} name_len {}", self.index, self.name_len)
    }
}

/// Fixed part of a name in an INODE_EXTREF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct InodeExtref {
    /// The directory.
    pub parent_objectid: U64,
    /// Position in the directory: offset of the DIR_INDEX key.
    pub index: U64,
    /// Bytes of the name that follows.
    pub name_len: U16,
}
const _: () = assert!(size_of::<InodeExtref>() == 18);

impl OnDisk for InodeExtref {
    const NAME: &'static str = "extended inode reference size";
}

impl fmt::Display for InodeExtref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parent {} index {} name_len {}", self.parent_objectid, self.index, self.name_len)
    }
}

/// One name of an INODE_REF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRefEntry<'a> {
    /// Position in the directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> InodeRefEntry<'a> {
    /// Parses the name at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] where it reaches beyond `bytes`.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Corrupt> {
        let (head, rest) = InodeRef::parse_prefix(bytes)?;
        let (name, rest) = split_name("inode reference name", head.name_len.get(), rest)?;
        Ok((Self { index: head.index.get(), name }, rest))
    }

    /// All names of an item. After an error the iterator is at its end.
    pub fn iter(bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, Corrupt>> + use<'a> {
        super::entries(bytes, Self::parse_prefix)
    }

    /// The entry of this name, and its range of bytes in the item.
    ///
    /// # Errors
    /// [`Corrupt`] where an entry before it reaches beyond the item.
    pub fn find(bytes: &'a [u8], name: &[u8]) -> Result<Option<(Self, std::ops::Range<usize>)>, Corrupt> {
        super::find_entry(bytes, Self::parse_prefix, |entry| entry.name == name)
    }

    /// The bytes of this entry.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let head = InodeRef { index: U64::new(self.index), name_len: U16::new(u16_len(self.name.len())) };
        [head.as_bytes(), self.name].concat()
    }
}

impl fmt::Display for InodeRefEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode ref index {} name {:?}", self.index, String::from_utf8_lossy(self.name))
    }
}

/// One name of an INODE_EXTREF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeExtrefEntry<'a> {
    /// The directory.
    pub parent: InodeNo,
    /// Position in the directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> InodeExtrefEntry<'a> {
    /// All names of an item of either kind: those of an INODE_REF are in the directory that its key names. After an
    /// error the iterator is at its end.
    pub fn iter_either(key: &Key, bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, Corrupt>> + use<'a> {
        let dir = (key.item_type == INODE_REF).then_some(InodeNo(key.offset));
        super::entries(bytes, move |bytes| match dir {
            Some(parent) => InodeRefEntry::parse_prefix(bytes)
                .map(|(InodeRefEntry { index, name }, rest)| (Self { parent, index, name }, rest)),
            None => Self::parse_prefix(bytes),
        })
    }

    /// Parses the name at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] where it reaches beyond `bytes`.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Corrupt> {
        let (head, rest) = InodeExtref::parse_prefix(bytes)?;
        let (name, rest) = split_name("extended inode reference name", head.name_len.get(), rest)?;
        let parent = InodeNo(head.parent_objectid.get());
        Ok((Self { parent, index: head.index.get(), name }, rest))
    }

    /// All names of an item. After an error the iterator is at its end.
    pub fn iter(bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, Corrupt>> + use<'a> {
        super::entries(bytes, Self::parse_prefix)
    }

    /// The entry of this name in this directory, and its range of bytes in the item.
    ///
    /// # Errors
    /// [`Corrupt`] where an entry before it reaches beyond the item.
    pub fn find(
        bytes: &'a [u8],
        parent: InodeNo,
        name: &[u8],
    ) -> Result<Option<(Self, std::ops::Range<usize>)>, Corrupt> {
        super::find_entry(bytes, Self::parse_prefix, |entry| entry.parent == parent && entry.name == name)
    }

    /// The bytes of this entry.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let head = InodeExtref {
            parent_objectid: U64::new(self.parent.0),
            index: U64::new(self.index),
            name_len: U16::new(u16_len(self.name.len())),
        };
        [head.as_bytes(), self.name].concat()
    }
}

impl fmt::Display for InodeExtrefEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "inode extref parent {} index {} name {:?}",
            self.parent,
            self.index,
            String::from_utf8_lossy(self.name)
        )
    }
}

fn split_name<'a>(what: &'static str, len: u16, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Corrupt> {
    let len = usize::from(len);
    bytes.split_at_checked(len).ok_or_else(|| name_out_of_bounds(what, len, bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let entries = [InodeRefEntry { index: 2, name: b"a" }, InodeRefEntry { index: 3, name: b"bcd" }];
        let bytes = entries.map(|entry| entry.build()).concat();
        let read: Vec<_> = InodeRefEntry::iter(&bytes).map(Result::unwrap).collect();
        assert_eq!(read, entries);
        let (found, range) = InodeRefEntry::find(&bytes, b"bcd").unwrap().unwrap();
        assert_eq!((found.index, range), (3, 11..24));
        assert!(InodeRefEntry::iter(&bytes[..23]).any(|entry| entry.is_err()));
    }

    #[test]
    fn both_kinds_say_the_directory() {
        use crate::key::item_type::INODE_EXTREF;
        let plain = [InodeRefEntry { index: 2, name: b"a" }, InodeRefEntry { index: 3, name: b"bcd" }];
        let expected =
            plain.map(|InodeRefEntry { index, name }| InodeExtrefEntry { parent: InodeNo(300), index, name });
        let short = plain.map(|entry| entry.build()).concat();
        let long = expected.map(|entry| entry.build()).concat();
        for (key, bytes) in [(Key::new(7, INODE_REF, 300), short), (Key::new(7, INODE_EXTREF, 12345), long)] {
            let found: Vec<_> = InodeExtrefEntry::iter_either(&key, &bytes).map(Result::unwrap).collect();
            assert_eq!(found, expected);
            assert!(InodeExtrefEntry::iter_either(&key, &bytes[1..]).any(|entry| entry.is_err()));
        }
    }

    #[test]
    fn long_references_name_their_directory() {
        let entry = InodeExtrefEntry { parent: InodeNo(300), index: 9, name: b"x" };
        let bytes = entry.build();
        assert_eq!(InodeExtrefEntry::iter(&bytes).next().unwrap().unwrap(), entry);
        assert!(InodeExtrefEntry::find(&bytes, InodeNo(301), b"x").unwrap().is_none());
        assert!(InodeExtrefEntry::find(&bytes, InodeNo(300), b"x").unwrap().is_some());
    }
}
