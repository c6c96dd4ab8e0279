//! Parses and builds ROOT_REF and ROOT_BACKREF: the directory entry of a subvolume in its parent. `dir::root_refs` of
//! `btrfs` edits them; check, rescue and repair read them.
//!
//! Keys: (parent, ROOT_REF, child) and (child, ROOT_BACKREF, parent), with the same data.

use std::fmt;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{OnDisk, name_out_of_bounds};
use crate::InodeNo;
use crate::convert::u16_len;
use crate::error::Corrupt;

/// Fixed part; the name follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RootRef {
    /// Directory in the parent subvolume.
    pub dirid: U64,
    /// Position in the directory: offset of the DIR_INDEX key.
    pub sequence: U64,
    /// Bytes of the name.
    pub name_len: U16,
}
const _: () = assert!(size_of::<RootRef>() == 18);

impl OnDisk for RootRef {
    const NAME: &'static str = "root reference size";
}

impl fmt::Display for RootRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root ref dirid {} sequence {} name_len {}", self.dirid, self.sequence, self.name_len)
    }
}

/// A root reference with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootRefEntry<'a> {
    /// Directory in the parent subvolume.
    pub dir: InodeNo,
    /// Position in the directory.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> RootRefEntry<'a> {
    /// The reference that fills `bytes`.
    ///
    /// # Errors
    /// [`Corrupt`] where the name does not end with the item.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let (head, name) = RootRef::parse_prefix(bytes)?;
        let len = usize::from(head.name_len.get());
        if len != name.len() {
            return Err(name_out_of_bounds("root reference name", len, name.len()));
        }
        Ok(Self { dir: InodeNo(head.dirid.get()), index: head.sequence.get(), name })
    }

    /// The bytes of the item.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let head = RootRef {
            dirid: U64::new(self.dir.0),
            sequence: U64::new(self.index),
            name_len: U16::new(u16_len(self.name.len())),
        };
        [head.as_bytes(), self.name].concat()
    }
}

impl fmt::Display for RootRefEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root ref dir {} index {} name {:?}", self.dir, self.index, String::from_utf8_lossy(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_must_fill_the_item() {
        let entry = RootRefEntry { dir: InodeNo(256), index: 7, name: b"snap" };
        let bytes = entry.build();
        assert_eq!(RootRefEntry::parse(&bytes).unwrap(), entry);
        assert!(RootRefEntry::parse(&bytes[..21]).is_err());
        assert!(RootRefEntry::parse(&[bytes, vec![0]].concat()).is_err());
    }
}
