//! Reads tree blocks in place: the header, a node's pointers and a leaf's items. Used by the tree code of
//! `btrfs-store`, by check, rescue and repair.
//!
//! A tree block is `nodesize` bytes: a [`Header`], then either an array of [`KeyPtr`] (level above 0) or an array of
//! [`Item`] whose data is packed from the end of the block, the first item's data last. The views borrow the bytes of a
//! block that passed [`crate::verify::block`]. They are safe on any bytes: data outside the block reads as absent or
//! empty.

use std::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::usize_from;
use crate::flags::HeaderFlags;
use crate::key::DiskKey;
use crate::on_disk::OnDisk;
use crate::{Generation, Key, Logical, TreeId, Uuid};

/// Levels of a tree: a leaf has level 0, the highest root has this minus one.
pub const LEVELS_MAX: u8 = 8;

/// Bytes of a checksum field; shorter checksums are followed by zeros.
pub const CSUM_FIELD_SIZE: usize = 32;

/// First bytes of every tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Checksum of everything after this field, to the end of the block.
    pub csum: [u8; CSUM_FIELD_SIZE],
    /// The file system's metadata UUID.
    pub fsid: Uuid,
    /// Logical address of this block.
    pub bytenr: U64,
    /// [`HeaderFlags`].
    pub flags: U64,
    /// UUID of the chunk tree; never checked.
    pub chunk_tree_uuid: Uuid,
    /// Transaction that wrote this block.
    pub generation: U64,
    /// Tree the block was made for. Blocks of snapshots keep the owner they had.
    pub owner: U64,
    /// Items of a leaf, pointers of a node.
    pub nritems: U32,
    /// 0 for a leaf; below [`LEVELS_MAX`].
    pub level: u8,
}
const _: () = assert!(size_of::<Header>() == 101);

/// Bytes of a [`Header`].
pub const HEADER_SIZE: usize = size_of::<Header>();

impl Header {
    /// The flags as a set.
    #[must_use]
    pub fn header_flags(&self) -> HeaderFlags {
        HeaderFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for Header {
    const NAME: &'static str = "tree block header";
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} level {} items {} generation {} owner {} flags {}",
            if self.level == 0 { "leaf" } else { "node" },
            self.bytenr,
            self.level,
            self.nritems,
            self.generation,
            self.owner,
            self.header_flags()
        )
    }
}

/// One pointer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KeyPtr {
    /// First key of the block pointed to.
    pub key: DiskKey,
    /// Logical address of the block pointed to.
    pub blockptr: U64,
    /// Generation that block must have.
    pub generation: U64,
}
const _: () = assert!(size_of::<KeyPtr>() == 33);

/// Bytes of a [`KeyPtr`].
pub const KEY_PTR_SIZE: usize = size_of::<KeyPtr>();

impl KeyPtr {
    /// A pointer from its parts.
    #[must_use]
    pub fn new(key: Key, at: Logical, generation: Generation) -> Self {
        Self { key: key.into(), blockptr: U64::new(at.0), generation: U64::new(generation.0) }
    }
}

impl OnDisk for KeyPtr {
    const NAME: &'static str = "node pointer";
}

impl fmt::Display for KeyPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} block {} generation {}", self.key, self.blockptr, self.generation)
    }
}

/// One item of a leaf: its key, and where its data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Item {
    /// Key of the item.
    pub key: DiskKey,
    /// First byte of the data, counted from the end of the header.
    pub offset: U32,
    /// Bytes of data.
    pub size: U32,
}
const _: () = assert!(size_of::<Item>() == 25);

/// Bytes of an [`Item`].
pub const ITEM_SIZE: usize = size_of::<Item>();

impl Item {
    /// An item from its parts.
    #[must_use]
    pub fn new(key: Key, offset: u32, size: u32) -> Self {
        Self { key: key.into(), offset: U32::new(offset), size: U32::new(size) }
    }
}

impl OnDisk for Item {
    const NAME: &'static str = "leaf item";
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} offset {} size {}", self.key, self.offset, self.size)
    }
}

/// Bytes of a leaf for items and their data.
#[must_use]
pub const fn leaf_data_size(nodesize: u32) -> u32 {
    nodesize.saturating_sub(101)
}

/// Pointers that fit a node.
#[must_use]
pub const fn node_ptrs_max(nodesize: u32) -> u32 {
    leaf_data_size(nodesize) / 33
}

/// Largest item data that fits a leaf.
#[must_use]
pub const fn item_data_max(nodesize: u32) -> u32 {
    leaf_data_size(nodesize).saturating_sub(25)
}

/// The header of a block; `None` where the bytes are too short.
#[must_use]
#[inline]
pub fn header(block: &[u8]) -> Option<&Header> {
    Header::ref_from_prefix(block).ok().map(|(header, _)| header)
}

/// The entries that follow a header: as many whole ones as there are, at most `nritems`.
#[inline]
fn entries<T: OnDisk>(block: &[u8]) -> (Option<&Header>, &[T], &[u8]) {
    let Ok((header, body)) = Header::ref_from_prefix(block) else {
        return (None, &[], &[]);
    };
    let count = usize_from(header.nritems.get()).min(body.len().checked_div(size_of::<T>()).unwrap_or(0));
    match <[T]>::ref_from_prefix_with_elems(body, count) {
        Ok((entries, _)) => (Some(header), entries, body),
        Err(_) => (Some(header), &[], body),
    }
}

/// A node read in place: a sorted array of pointers.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    header: Option<&'a Header>,
    ptrs: &'a [KeyPtr],
}

impl<'a> NodeView<'a> {
    /// A view of the block's bytes, taken as a node.
    #[must_use]
    #[inline]
    pub fn new(block: &'a [u8]) -> Self {
        let (header, ptrs, _) = entries(block);
        Self { header, ptrs }
    }

    /// The block's header; `None` only for bytes shorter than a header.
    #[must_use]
    pub fn header(&self) -> Option<&'a Header> {
        self.header
    }

    /// Number of pointers.
    #[must_use]
    #[inline]
    pub fn nritems(&self) -> usize {
        self.ptrs.len()
    }

    /// All pointers.
    #[must_use]
    #[inline]
    pub fn ptrs(&self) -> &'a [KeyPtr] {
        self.ptrs
    }

    /// First key of the block that pointer `slot` leads to; [`Key::MAX`] past the end.
    #[must_use]
    #[inline]
    pub fn key(&self, slot: usize) -> Key {
        self.ptrs.get(slot).map_or(Key::MAX, |ptr| ptr.key.get())
    }

    /// Address and generation of the block that pointer `slot` leads to; zeros past the end.
    #[must_use]
    #[inline]
    pub fn ptr(&self, slot: usize) -> (Logical, Generation) {
        self.ptrs
            .get(slot)
            .map_or_else(Default::default, |ptr| (Logical(ptr.blockptr.get()), Generation(ptr.generation.get())))
    }

    /// The index of `key` (`Ok`), or its insertion point (`Err`).
    ///
    /// # Errors
    /// The index of the first pointer with a larger key.
    #[inline]
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        self.ptrs.binary_search_by(|ptr| ptr.key.get().cmp(key))
    }

    /// The pointer to follow for `key`: the last with a key at or below it, else the first.
    #[must_use]
    #[inline]
    pub fn child_slot(&self, key: &Key) -> usize {
        match self.find(key) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }
}

/// A leaf read in place: a sorted array of items.
#[derive(Clone, Copy, Debug)]
pub struct LeafView<'a> {
    header: Option<&'a Header>,
    items: &'a [Item],
    body: &'a [u8],
}

impl<'a> LeafView<'a> {
    /// A view of the block's bytes, taken as a leaf.
    #[must_use]
    #[inline]
    pub fn new(block: &'a [u8]) -> Self {
        let (header, items, body) = entries(block);
        Self { header, items, body }
    }

    /// The block's header; `None` only for bytes shorter than a header.
    #[must_use]
    pub fn header(&self) -> Option<&'a Header> {
        self.header
    }

    /// Number of items.
    #[must_use]
    #[inline]
    pub fn nritems(&self) -> usize {
        self.items.len()
    }

    /// All item headers.
    #[must_use]
    #[inline]
    pub fn items(&self) -> &'a [Item] {
        self.items
    }

    /// Key of item `slot`; [`Key::MAX`] past the end.
    #[must_use]
    #[inline]
    pub fn key(&self, slot: usize) -> Key {
        self.items.get(slot).map_or(Key::MAX, |item| item.key.get())
    }

    /// Data of item `slot`; empty past the end or where it lies outside the block.
    #[must_use]
    #[inline]
    pub fn data(&self, slot: usize) -> &'a [u8] {
        self.items
            .get(slot)
            .and_then(|item| {
                let start = usize_from(item.offset.get());
                let end = start.checked_add(usize_from(item.size.get()))?;
                self.body.get(start..end)
            })
            .unwrap_or_default()
    }

    /// Key and data of item `slot`; [`Key::MAX`] and nothing past the end.
    #[must_use]
    #[inline]
    pub fn item(&self, slot: usize) -> (Key, &'a [u8]) {
        (self.key(slot), self.data(slot))
    }

    /// All items in order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &'a [u8])> + use<'a> {
        let view = *self;
        (0..view.nritems()).map(move |slot| view.item(slot))
    }

    /// The index of `key` (`Ok`), or its insertion point (`Err`).
    ///
    /// # Errors
    /// The index of the first item with a larger key.
    #[inline]
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.key.get().cmp(key))
    }

    /// Data of the item with this key.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &Key) -> Option<&'a [u8]> {
        self.find(key).ok().map(|slot| self.data(slot))
    }

    /// Bytes between the last item header and the data.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let data_start = self.items.last().map_or(self.body.len(), |item| usize_from(item.offset.get()));
        data_start.saturating_sub(size_of_val(self.items))
    }
}

/// A block viewed as a leaf or a node, by its level.
#[derive(Clone, Copy, Debug)]
pub enum BlockView<'a> {
    /// Level 0.
    Leaf(LeafView<'a>),
    /// Any other level.
    Node(NodeView<'a>),
}

impl<'a> BlockView<'a> {
    /// A view by the level that the block's header names; `None` where there is no header.
    #[must_use]
    #[inline]
    pub fn new(block: &'a [u8]) -> Option<Self> {
        Some(match header(block)?.level {
            0 => Self::Leaf(LeafView::new(block)),
            _ => Self::Node(NodeView::new(block)),
        })
    }

    /// Its first and its last key; `None` where it is empty.
    #[must_use]
    pub fn ends(&self) -> Option<(Key, Key)> {
        let (count, key): (usize, &dyn Fn(usize) -> Key) = match self {
            Self::Leaf(leaf) => (leaf.nritems(), &|slot| leaf.key(slot)),
            Self::Node(node) => (node.nritems(), &|slot| node.key(slot)),
        };
        count.checked_sub(1).map(|last| (key(0), key(last)))
    }
}

/// The tree in the owner field of a block's header.
#[must_use]
pub fn owner(block: &[u8]) -> Option<TreeId> {
    header(block).map(|header| TreeId(header.owner.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(items: &[(Key, &[u8])]) -> Vec<u8> {
        let mut block = vec![0; 4096];
        let mut data_start = 4096 - HEADER_SIZE;
        for (slot, (key, data)) in items.iter().enumerate() {
            data_start -= data.len();
            let item = Item::new(*key, u32::try_from(data_start).unwrap(), u32::try_from(data.len()).unwrap());
            let at = HEADER_SIZE + slot * ITEM_SIZE;
            block[at..at + ITEM_SIZE].copy_from_slice(item.as_bytes());
            let at = HEADER_SIZE + data_start;
            block[at..at + data.len()].copy_from_slice(data);
        }
        block[96..100].copy_from_slice(&u32::try_from(items.len()).unwrap().to_le_bytes());
        block
    }

    #[test]
    fn finds_items_and_gaps() {
        let block = leaf(&[(Key::new(1, 1, 0), b"one"), (Key::new(1, 2, 0), b""), (Key::new(300, 1, 0), b"x")]);
        let view = LeafView::new(&block);
        assert_eq!(view.nritems(), 3);
        assert_eq!(view.find(&Key::new(1, 2, 0)), Ok(1));
        assert_eq!(view.find(&Key::new(1, 2, 1)), Err(2));
        assert_eq!(view.find(&Key::MAX), Err(3));
        assert_eq!(view.get(&Key::new(1, 1, 0)), Some(&b"one"[..]));
        assert_eq!(view.item(2), (Key::new(300, 1, 0), &b"x"[..]));
        assert_eq!(view.item(3), (Key::MAX, &b""[..]));
        assert_eq!(view.free_bytes(), 4096 - 101 - 3 * 25 - 4);
    }

    #[test]
    fn lying_counts_and_offsets_read_as_absent() {
        let mut block = leaf(&[(Key::new(1, 1, 0), b"one")]);
        block[96..100].fill(0xff);
        let view = LeafView::new(&block);
        assert_eq!(view.nritems(), (4096 - 101) / 25);
        block[HEADER_SIZE + 17..HEADER_SIZE + 25].fill(0xff);
        assert_eq!(LeafView::new(&block).data(0), b"");
        assert_eq!(LeafView::new(&block[..50]).nritems(), 0);
        assert_eq!(NodeView::new(&block[..101]).nritems(), 0);
        assert_eq!(NodeView::new(&[]).ptr(0), (Logical(0), Generation(0)));
    }
}
