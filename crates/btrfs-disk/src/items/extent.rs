//! Parses and builds EXTENT_ITEM and METADATA_ITEM: allocated extents and their back references. `btrfs-store` edits
//! them (`extent`), `btrfs-check` reads them, and `btrfs-repair` reads them and builds new ones.
//!
//! Keys: (address, EXTENT_ITEM, bytes) for data, and for tree blocks where the feature
//! SKINNY_METADATA is off; (address, METADATA_ITEM, level) for tree blocks. An [`ExtentItem`]
//! comes first, then a [`TreeBlockInfo`] (tree blocks under EXTENT_ITEM only), then references in
//! ascending order of type and, within a type, descending order of [`InlineRef::sequence`].
//!
//! References that do not fit are items of their own: (address, type, root | parent | hash).

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::error::{Corrupt, Detail};
use crate::flags::ExtentFlags;
use crate::hash::extent_data_ref_hash;
use crate::key::{DiskKey, item_type};
use crate::{Generation, InodeNo, Key, Logical, TreeId};

/// Fixed part of an extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtentItem {
    /// References, in this item and in others.
    pub refs: U64,
    /// Transaction that allocated the extent.
    pub generation: U64,
    /// [`ExtentFlags`].
    pub flags: U64,
}
const _: () = assert!(size_of::<ExtentItem>() == 24);

impl ExtentItem {
    /// An extent item from its parts.
    #[must_use]
    pub fn new(refs: u64, generation: Generation, flags: ExtentFlags) -> Self {
        Self { refs: U64::new(refs), generation: U64::new(generation.0), flags: U64::new(flags.bits()) }
    }

    /// The flags as a set.
    #[must_use]
    pub fn extent_flags(&self) -> ExtentFlags {
        ExtentFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for ExtentItem {
    const NAME: &'static str = "extent item size";
}

impl fmt::Display for ExtentItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent refs {} generation {} flags {}", self.refs, self.generation, self.extent_flags())
    }
}

/// Level and first key of a tree block, in an EXTENT_ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TreeBlockInfo {
    /// First key of the block when it was allocated.
    pub key: DiskKey,
    /// Level of the block.
    pub level: u8,
}
const _: () = assert!(size_of::<TreeBlockInfo>() == 18);

impl OnDisk for TreeBlockInfo {
    const NAME: &'static str = "tree block info size";
}

impl fmt::Display for TreeBlockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree block key {} level {}", self.key, self.level)
    }
}

/// References of one file to a data extent, counted. Inside an extent item it follows the type
/// byte; as an item of its own its key is (address, EXTENT_DATA_REF,
/// [hash](ExtentDataRef::hash)), or the next free offset where hashes collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ExtentDataRef {
    /// Subvolume.
    pub root: U64,
    /// Inode.
    pub objectid: U64,
    /// Offset in the file minus offset in the extent; may wrap below 0.
    pub offset: U64,
    /// File extents that refer.
    pub count: U32,
}
const _: () = assert!(size_of::<ExtentDataRef>() == 28);

impl ExtentDataRef {
    /// The hash that keys and sorts it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        extent_data_ref_hash(self.root.get(), self.objectid.get(), self.offset.get())
    }
}

impl OnDisk for ExtentDataRef {
    const NAME: &'static str = "extent data reference size";
}

impl fmt::Display for ExtentDataRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data ref root {} objectid {} offset {} count {}", self.root, self.objectid, self.offset, self.count)
    }
}

/// The number of references from a leaf to a data extent. Key: (address, SHARED_DATA_REF, address of the leaf).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SharedDataRef {
    /// File extents that refer.
    pub count: U32,
}
const _: () = assert!(size_of::<SharedDataRef>() == 4);

impl OnDisk for SharedDataRef {
    const NAME: &'static str = "shared data reference size";
}

impl fmt::Display for SharedDataRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared data ref count {}", self.count)
    }
}

/// One reference inside an extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlineRef {
    /// The subvolume that the extent is charged to by simple quotas; not counted as a reference.
    Owner {
        /// The subvolume.
        root: TreeId,
    },
    /// A tree refers to a tree block.
    TreeBlock {
        /// The tree.
        root: TreeId,
    },
    /// A file refers to data.
    Data {
        /// Subvolume.
        root: TreeId,
        /// Inode.
        inode: InodeNo,
        /// Offset in the file minus offset in the extent; may wrap below 0.
        offset: u64,
        /// File extents that refer.
        count: u32,
    },
    /// A tree block with full backrefs refers to a tree block.
    SharedBlock {
        /// The block that refers.
        parent: Logical,
    },
    /// A leaf with full backrefs refers to data.
    SharedData {
        /// The leaf that refers.
        parent: Logical,
        /// File extents that refer.
        count: u32,
    },
}

impl InlineRef {
    /// Item type of the reference. References in an extent item are sorted by it.
    #[must_use]
    pub const fn item_type(&self) -> u8 {
        match self {
            Self::Owner { .. } => item_type::EXTENT_OWNER_REF,
            Self::TreeBlock { .. } => item_type::TREE_BLOCK_REF,
            Self::Data { .. } => item_type::EXTENT_DATA_REF,
            Self::SharedBlock { .. } => item_type::SHARED_BLOCK_REF,
            Self::SharedData { .. } => item_type::SHARED_DATA_REF,
        }
    }

    /// Bytes of a reference of this type in an extent item, its type byte included; `None` for
    /// an unknown type.
    #[must_use]
    pub const fn size_of_type(kind: u8) -> Option<usize> {
        match kind {
            item_type::EXTENT_OWNER_REF | item_type::TREE_BLOCK_REF | item_type::SHARED_BLOCK_REF => Some(9),
            item_type::EXTENT_DATA_REF => Some(29),
            item_type::SHARED_DATA_REF => Some(13),
            _ => None,
        }
    }

    /// Bytes of this reference in an extent item.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::Owner { .. } | Self::TreeBlock { .. } | Self::SharedBlock { .. } => 9,
            Self::Data { .. } => 29,
            Self::SharedData { .. } => 13,
        }
    }

    /// Sort number: references of one type are in descending order of it. It is also the key offset of a reference with
    /// its own item.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        match *self {
            Self::Owner { root } | Self::TreeBlock { root } => root.0,
            Self::Data { root, inode, offset, .. } => extent_data_ref_hash(root.0, inode.0, offset),
            Self::SharedBlock { parent } | Self::SharedData { parent, .. } => parent.0,
        }
    }

    /// The number by which this reference raises [`ExtentItem::refs`].
    #[must_use]
    pub const fn count(&self) -> u64 {
        match *self {
            Self::Owner { .. } => 0,
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => 1,
            Self::Data { count, .. } | Self::SharedData { count, .. } => widen(count),
        }
    }

    /// Parses the reference at the start of `bytes`. Returns it and the rest.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown type, or if the reference reaches beyond `bytes`.
    #[inline]
    pub fn parse_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), Corrupt> {
        let (kind, rest) = bytes.split_first().ok_or_else(|| short(9, 0))?;
        match *kind {
            item_type::EXTENT_DATA_REF => {
                let (data, rest) = ExtentDataRef::parse_prefix(rest)?;
                Ok((Self::from(data), rest))
            }
            item_type::SHARED_DATA_REF => {
                let (parent, rest) = read_u64(rest)?;
                let (shared, rest) = SharedDataRef::parse_prefix(rest)?;
                Ok((Self::SharedData { parent: Logical(parent), count: shared.count.get() }, rest))
            }
            item_type::TREE_BLOCK_REF => {
                read_u64(rest).map(|(root, rest)| (Self::TreeBlock { root: TreeId(root) }, rest))
            }
            item_type::SHARED_BLOCK_REF => {
                read_u64(rest).map(|(parent, rest)| (Self::SharedBlock { parent: Logical(parent) }, rest))
            }
            item_type::EXTENT_OWNER_REF => {
                read_u64(rest).map(|(root, rest)| (Self::Owner { root: TreeId(root) }, rest))
            }
            other => Err(Corrupt::new(
                "inline reference type",
                Detail::Text("172, 176, 178, 182 or 184"),
                Detail::Number(u64::from(other)),
            )),
        }
    }

    /// All references in `bytes`. After an error the iterator is at its end.
    pub fn iter(bytes: &[u8]) -> impl Iterator<Item = Result<Self, Corrupt>> + use<'_> {
        super::entries(bytes, Self::parse_prefix)
    }

    /// Appends the reference to `out`, encoded as inside an extent item: its type byte, then its fields.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.push(self.item_type());
        match *self {
            Self::Owner { root } | Self::TreeBlock { root } => {
                out.extend_from_slice(&root.0.to_le_bytes());
            }
            Self::SharedBlock { parent } => out.extend_from_slice(&parent.0.to_le_bytes()),
            Self::SharedData { parent, count } => {
                out.extend_from_slice(&parent.0.to_le_bytes());
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::Data { root, inode, offset, count } => {
                let data = ExtentDataRef {
                    root: U64::new(root.0),
                    objectid: U64::new(inode.0),
                    offset: U64::new(offset),
                    count: U32::new(count),
                };
                out.extend_from_slice(data.as_bytes());
            }
        }
    }

    /// The reference as an item of its own, for the extent at `at`: its key (for [`Self::Data`]
    /// the first one to try) and its data.
    #[must_use]
    pub fn keyed(&self, at: Logical) -> (Key, Vec<u8>) {
        let key = Key::new(at.0, self.item_type(), self.sequence());
        let mut data = Vec::with_capacity(self.size());
        self.write_to(&mut data);
        match self {
            Self::Data { .. } => drop(data.drain(..1)),
            Self::SharedData { .. } => drop(data.drain(..9)),
            _ => data.clear(),
        }
        (key, data)
    }

    /// Parses a reference that is an item of its own.
    ///
    /// # Errors
    /// [`Corrupt`] for another type of item or a wrong size.
    pub fn parse_keyed(key: &Key, data: &[u8]) -> Result<Self, Corrupt> {
        match key.item_type {
            item_type::TREE_BLOCK_REF => Ok(Self::TreeBlock { root: TreeId(key.offset) }),
            item_type::SHARED_BLOCK_REF => Ok(Self::SharedBlock { parent: Logical(key.offset) }),
            item_type::EXTENT_DATA_REF => ExtentDataRef::parse(data).map(Self::from),
            item_type::SHARED_DATA_REF => {
                Ok(Self::SharedData { parent: Logical(key.offset), count: SharedDataRef::parse(data)?.count.get() })
            }
            other => Err(Corrupt::new(
                "reference item type",
                Detail::Text("176, 178, 182 or 184"),
                Detail::Number(u64::from(other)),
            )),
        }
    }
}

impl From<&ExtentDataRef> for InlineRef {
    #[inline]
    fn from(data: &ExtentDataRef) -> Self {
        Self::Data {
            root: TreeId(data.root.get()),
            inode: InodeNo(data.objectid.get()),
            offset: data.offset.get(),
            count: data.count.get(),
        }
    }
}

impl fmt::Display for InlineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { root } => write!(f, "owner ref root {root}"),
            Self::TreeBlock { root } => write!(f, "tree block ref root {root}"),
            Self::Data { root, inode, offset, count } => {
                write!(f, "data ref root {root} objectid {inode} offset {offset} count {count}")
            }
            Self::SharedBlock { parent } => write!(f, "shared block ref parent {parent}"),
            Self::SharedData { parent, count } => {
                write!(f, "shared data ref parent {parent} count {count}")
            }
        }
    }
}

/// The parts of an extent item, borrowed from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ExtentView<'a> {
    /// Fixed part.
    pub item: &'a ExtentItem,
    /// Level and first key of a tree block; `None` for data, and for tree blocks under METADATA_ITEM.
    pub block_info: Option<&'a TreeBlockInfo>,
    /// The references; see [`InlineRef::iter`].
    pub ref_bytes: &'a [u8],
}

impl<'a> ExtentView<'a> {
    /// The parts of the EXTENT_ITEM or METADATA_ITEM with this key.
    ///
    /// # Errors
    /// [`Corrupt`] if the item is too short for its fixed parts.
    #[inline]
    pub fn parse(key: &Key, bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let (item, rest) = ExtentItem::parse_prefix(bytes)?;
        let is_block = item.extent_flags().contains(ExtentFlags::TREE_BLOCK);
        if is_block && key.item_type == item_type::EXTENT_ITEM {
            let (info, ref_bytes) = TreeBlockInfo::parse_prefix(rest)?;
            return Ok(Self { item, block_info: Some(info), ref_bytes });
        }
        Ok(Self { item, block_info: None, ref_bytes: rest })
    }

    /// Level of the tree block of the item with this key; `None` for data.
    #[must_use]
    pub fn level(&self, key: &Key) -> Option<u8> {
        match key.item_type {
            item_type::METADATA_ITEM => Some(u8::try_from(key.offset).unwrap_or(u8::MAX)),
            _ => self.block_info.map(|info| info.level),
        }
    }

    /// The references.
    pub fn refs(&self) -> impl Iterator<Item = Result<InlineRef, Corrupt>> + use<'a> {
        InlineRef::iter(self.ref_bytes)
    }

    /// The bytes of an extent item. The caller passes `refs` in the order that the module's documentation describes.
    #[must_use]
    pub fn build(item: &ExtentItem, block_info: Option<&TreeBlockInfo>, refs: &[InlineRef]) -> Vec<u8> {
        let mut bytes = item.as_bytes().to_vec();
        if let Some(info) = block_info {
            bytes.extend_from_slice(info.as_bytes());
        }
        refs.iter().for_each(|one| one.write_to(&mut bytes));
        bytes
    }
}

impl fmt::Display for ExtentView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.item.fmt(f)?;
        if let Some(info) = self.block_info {
            write!(f, "; {info}")?;
        }
        self.refs().try_for_each(|one| match one {
            Ok(one) => write!(f, "; {one}"),
            Err(error) => write!(f, "; {error}"),
        })
    }
}

#[inline]
fn read_u64(bytes: &[u8]) -> Result<(u64, &[u8]), Corrupt> {
    match bytes.split_first_chunk() {
        Some((value, rest)) => Ok((u64::from_le_bytes(*value), rest)),
        None => Err(short(8, bytes.len())),
    }
}

#[cold]
fn short(expected: usize, found: usize) -> Corrupt {
    Corrupt::new("inline reference size", Detail::size(expected), Detail::size(found))
}

#[expect(clippy::as_conversions, reason = "widening, in a const function")]
const fn widen(count: u32) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFS: [InlineRef; 5] = [
        InlineRef::Owner { root: TreeId(5) },
        InlineRef::TreeBlock { root: TreeId(5) },
        InlineRef::Data { root: TreeId(256), inode: InodeNo(257), offset: 4096, count: 3 },
        InlineRef::SharedBlock { parent: Logical(65536) },
        InlineRef::SharedData { parent: Logical(65536), count: 2 },
    ];

    #[test]
    fn references_round_trip() {
        let mut bytes = Vec::new();
        for one in REFS {
            let start = bytes.len();
            one.write_to(&mut bytes);
            assert_eq!(bytes.len() - start, one.size());
            assert_eq!(InlineRef::size_of_type(one.item_type()), Some(one.size()));
        }
        assert_eq!(InlineRef::iter(&bytes).collect::<Result<Vec<_>, _>>().unwrap(), REFS);
        assert_eq!(REFS.iter().map(InlineRef::count).sum::<u64>(), 7);
        bytes.pop();
        assert!(InlineRef::iter(&bytes).any(|one| one.is_err()));
    }

    #[test]
    fn references_of_their_own_round_trip() {
        for one in &REFS[1..] {
            let (key, data) = one.keyed(Logical(1 << 20));
            assert_eq!(InlineRef::parse_keyed(&key, &data).unwrap(), *one);
        }
    }

    #[test]
    fn only_the_old_form_has_tree_block_info() {
        let item = ExtentItem::new(1, Generation(5), ExtentFlags::TREE_BLOCK);
        let info = TreeBlockInfo { key: Key::new(1, 2, 3).into(), level: 1 };
        let bytes = ExtentView::build(&item, Some(&info), &REFS[1..2]);
        let old = ExtentView::parse(&Key::new(4096, item_type::EXTENT_ITEM, 16384), &bytes).unwrap();
        assert_eq!(old.block_info, Some(&info));
        assert_eq!(old.refs().count(), 1);
        let bytes = ExtentView::build(&item, None, &REFS[1..2]);
        let new = ExtentView::parse(&Key::new(4096, item_type::METADATA_ITEM, 0), &bytes).unwrap();
        assert_eq!((new.block_info, new.refs().count()), (None, 1));
    }
}
