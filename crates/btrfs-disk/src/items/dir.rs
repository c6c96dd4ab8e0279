//! Parses and builds DIR_ITEM, DIR_INDEX and XATTR_ITEM: the names in a directory, and extended attributes. Used by
//! `dir`, `log` and `subvol` of `btrfs`, by check, rescue and repair.
//!
//! All three hold [`DirItem`]s, each followed by its name and then its data (of an attribute).
//! Keys: (directory, DIR_ITEM, hash of the name), (directory, DIR_INDEX, position),
//! (inode, XATTR_ITEM, hash of the name). Where names share a hash, one item holds them all.

use std::fmt;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FileKind, OnDisk, name_out_of_bounds};
use crate::convert::u16_len;
use crate::error::Corrupt;
use crate::key::DiskKey;
use crate::{Generation, Key};

/// Longest name of a directory entry or attribute, bytes.
pub const NAME_LEN_MAX: usize = 255;

/// `dir_type` of an attribute.
pub const DIR_TYPE_XATTR: u8 = 8;

/// First free position in a directory: 0 and 1 stand for `.` and `..`.
pub const DIR_INDEX_FIRST: u64 = 2;

/// Fixed part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DirItem {
    /// Key of the inode (offset 0) or of the subvolume's root item (offset all ones); zeros for
    /// an attribute.
    pub location: DiskKey,
    /// Transaction that made the entry.
    pub transid: U64,
    /// Bytes of an attribute's value; else 0.
    pub data_len: U16,
    /// Bytes of the name.
    pub name_len: U16,
    /// Type of the inode as [`FileKind::dir_type`], or [`DIR_TYPE_XATTR`].
    pub dir_type: u8,
}
const _: () = assert!(size_of::<DirItem>() == 30);

impl OnDisk for DirItem {
    const NAME: &'static str = "directory entry size";
}

impl fmt::Display for DirItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "location {} transid {} data_len {} name_len {} type {}",
            self.location, self.transid, self.data_len, self.name_len, self.dir_type
        )
    }
}

/// A name in a directory, or an attribute.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Fixed part.
    pub item: &'a DirItem,
    /// The name.
    pub name: &'a [u8],
    /// The value of an attribute.
    pub data: &'a [u8],
}

impl<'a> DirEntry<'a> {
    /// Parses the entry at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] where name or data reach beyond `bytes`.
    pub fn parse_prefix(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Corrupt> {
        let (item, rest) = DirItem::parse_prefix(bytes)?;
        let (name_len, data_len) = (usize::from(item.name_len.get()), usize::from(item.data_len.get()));
        match rest.split_at_checked(name_len) {
            Some((name, rest)) => match rest.split_at_checked(data_len) {
                Some((data, rest)) => Ok((Self { item, name, data }, rest)),
                None => Err(name_out_of_bounds("directory entry data", data_len, rest.len())),
            },
            None => Err(name_out_of_bounds("directory entry name", name_len, rest.len())),
        }
    }

    /// All entries of an item. After an error the iterator is at its end.
    pub fn iter(bytes: &'a [u8]) -> impl Iterator<Item = Result<Self, Corrupt>> + use<'a> {
        super::entries(bytes, Self::parse_prefix)
    }

    /// The entry of this name among those of an item; its range of bytes comes with it, so that
    /// it can be cut out or replaced.
    ///
    /// # Errors
    /// [`Corrupt`] where an entry before it reaches beyond the item.
    pub fn find(bytes: &'a [u8], name: &[u8]) -> Result<Option<(Self, std::ops::Range<usize>)>, Corrupt> {
        super::find_entry(bytes, Self::parse_prefix, |entry| entry.name == name)
    }

    /// Key of the inode or subvolume that the entry refers to.
    #[must_use]
    pub fn location(&self) -> Key {
        self.item.location.get()
    }

    /// Type of the inode; `None` for an attribute.
    #[must_use]
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_dir_type(self.item.dir_type)
    }

    /// The bytes of a directory entry.
    #[must_use]
    pub fn build(location: Key, transid: Generation, kind: FileKind, name: &[u8]) -> Vec<u8> {
        build(location, transid, kind.dir_type(), name, &[])
    }

    /// The bytes of an attribute.
    #[must_use]
    pub fn build_xattr(transid: Generation, name: &[u8], value: &[u8]) -> Vec<u8> {
        build(Key::MIN, transid, DIR_TYPE_XATTR, name, value)
    }
}

fn build(location: Key, transid: Generation, dir_type: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
    let item = DirItem {
        location: location.into(),
        transid: U64::new(transid.0),
        data_len: U16::new(u16_len(data.len())),
        name_len: U16::new(u16_len(name.len())),
        dir_type,
    };
    [item.as_bytes(), name, data].concat()
}

impl fmt::Display for DirEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} name {:?}", self.item, String::from_utf8_lossy(self.name))?;
        if self.item.dir_type == DIR_TYPE_XATTR {
            write!(f, " data {:?}", String::from_utf8_lossy(self.data))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::item_type::INODE_ITEM;

    #[test]
    fn names_with_one_hash_share_an_item() {
        let make = |inode, name: &[u8]| {
            let location = Key::new(inode, INODE_ITEM, 0);
            DirEntry::build(location, Generation(9), FileKind::File, name)
        };
        let bytes = [make(257, b"one"), make(258, b"second")].concat();
        let (entry, range) = DirEntry::find(&bytes, b"second").unwrap().unwrap();
        assert_eq!(entry.location().objectid, 258);
        assert_eq!(entry.kind(), Some(FileKind::File));
        assert_eq!(range, 33..69);
        assert!(DirEntry::find(&bytes, b"none").unwrap().is_none());
        assert_eq!(DirEntry::iter(&bytes).filter(Result::is_ok).count(), 2);
    }

    #[test]
    fn an_entry_beyond_its_item_is_an_error_and_the_end() {
        let bytes = DirEntry::build_xattr(Generation(9), b"user.x", b"value");
        assert!(DirEntry::iter(&bytes).all(|entry| entry.is_ok()));
        for len in 1..bytes.len() {
            let found: Vec<_> = DirEntry::iter(&bytes[..len]).collect();
            assert!(matches!(found[..], [Err(_)]), "{len}");
        }
    }
}
