//! Defines the records by which extents and references are compared, all of one size.
//!
//! After sorting, all records of one address are adjacent: the extent item, the block or data that a tree leads to, and
//! each reference from both sides. Made by `collect`, compared by `sweep`.

use btrfs_disk::items::InlineRef;

use crate::sort::Record;

/// A record about an extent.
pub(crate) type ExtentRecord = Record<5>;

const TAG_SHIFT: u32 = 56;
const LOW: u64 = (1 << TAG_SHIFT) - 1;
/// Set in the last number of a record from a tree; unset from the extent tree.
const WALKED: u64 = 1 << 63;
/// Level of an extent item that has none.
pub(crate) const NO_LEVEL: u64 = 255;
const DATA: u64 = 1 << 8;
const FULL: u64 = 1 << 9;

/// The contents of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// An extent item.
    Item(Item),
    /// A tree block that a tree leads to.
    Block { level: u64, owner: u64, generation: u64 },
    /// A reference.
    Ref { to: Ref, side: Side },
}

/// The fields of an extent item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) len: u64,
    pub(crate) is_data: bool,
    /// The references that the extent holds are counted by its address.
    pub(crate) is_full: bool,
    /// [`NO_LEVEL`] where it has none.
    pub(crate) level: u64,
    pub(crate) generation: u64,
    pub(crate) refs: u64,
}

/// The source of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The extent tree, so many times.
    Extent(u64),
    /// A tree, once; the length of the extent in its item.
    Walked(u64),
}

/// A reference to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ref {
    /// Of a tree to a block.
    Tree(u64),
    /// Of a parent block to a block.
    Parent(u64),
    /// Of a file to data: tree (its low 48 bits), inode, offset.
    Data(u64, u64, u64),
    /// Of a leaf to data.
    Leaf(u64),
}

const ROOT_MASK: u64 = (1 << 48) - 1;

impl Ref {
    fn parts(self) -> (u64, u64, u64) {
        match self {
            Self::Tree(root) => (2 << TAG_SHIFT | root & ROOT_MASK, 0, 0),
            Self::Parent(at) => (3 << TAG_SHIFT, at, 0),
            Self::Data(root, inode, offset) => (4 << TAG_SHIFT | root & ROOT_MASK, inode, offset),
            Self::Leaf(at) => (5 << TAG_SHIFT, at, 0),
        }
    }

    /// True for references that only data has.
    pub(crate) fn is_data(self) -> bool {
        matches!(self, Self::Data(..) | Self::Leaf(_))
    }

    /// The reference in an extent item; `None` for the owner of simple quotas, which is not a reference.
    pub(crate) fn of(one: &InlineRef) -> Option<(Self, u64)> {
        Some(match *one {
            InlineRef::Owner { .. } => return None,
            InlineRef::TreeBlock { root } => (Self::Tree(root.0), 1),
            InlineRef::SharedBlock { parent } => (Self::Parent(parent.0), 1),
            InlineRef::Data { root, inode, offset, count } => (Self::Data(root.0, inode.0, offset), u64::from(count)),
            InlineRef::SharedData { parent, count } => (Self::Leaf(parent.0), u64::from(count)),
        })
    }
}

/// The number of a tree from its low bits.
pub(crate) fn tree_number(low: u64) -> u64 {
    let is_negative = low >> 47 & 1 == 1;
    if is_negative { low | !ROOT_MASK } else { low }
}

impl std::fmt::Display for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tree(root) => write!(f, "from tree {}", tree_number(*root)),
            Self::Parent(at) => write!(f, "from the tree block at {at}"),
            Self::Data(root, inode, offset) => {
                write!(f, "from inode {inode} of tree {}, offset {offset}", tree_number(*root))
            }
            Self::Leaf(at) => write!(f, "from file extents in the leaf at {at}"),
        }
    }
}

/// A record about the extent at `at`.
pub(crate) fn encode(at: u64, about: About) -> ExtentRecord {
    match about {
        About::Item(Item { len, is_data, is_full, level, generation, refs }) => {
            let flags = if is_data { DATA } else { 0 } | if is_full { FULL } else { 0 };
            [at, level | flags, len, generation, refs]
        }
        About::Block { level, owner, generation } => [at, 1 << TAG_SHIFT | level, owner, generation, 0],
        About::Ref { to, side } => {
            let (tag, a, b) = to.parts();
            let last = match side {
                Side::Extent(count) => count & !WALKED,
                Side::Walked(len) => WALKED | len & !WALKED,
            };
            [at, tag, a, b, last]
        }
    }
}

/// The contents of a record.
pub(crate) fn decode(record: &ExtentRecord) -> About {
    let [_, tagged, a, b, last] = *record;
    let (tag, low) = (tagged >> TAG_SHIFT, tagged & LOW);
    let to = match tag {
        0 => {
            let (is_data, is_full) = (low & DATA != 0, low & FULL != 0);
            return About::Item(Item { len: a, is_data, is_full, level: low & 0xff, generation: b, refs: last });
        }
        1 => return About::Block { level: low & 0xff, owner: a, generation: b },
        2 => Ref::Tree(low),
        3 => Ref::Parent(a),
        4 => Ref::Data(low, a, b),
        _ => Ref::Leaf(a),
    };
    let side = if last & WALKED == 0 { Side::Extent(last) } else { Side::Walked(last & !WALKED) };
    About::Ref { to, side }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let relocation = 0u64.wrapping_sub(9) & ROOT_MASK;
        assert_eq!(tree_number(relocation), 0u64.wrapping_sub(9));
        for about in [
            About::Item(Item { len: 4096, is_data: true, is_full: false, level: NO_LEVEL, generation: 7, refs: 3 }),
            About::Block { level: 2, owner: 5, generation: 9 },
            About::Ref { to: Ref::Data(257, 300, 1 << 63), side: Side::Walked(8192) },
            About::Ref { to: Ref::Parent(65536), side: Side::Extent(2) },
            About::Ref { to: Ref::Tree(5), side: Side::Extent(0) },
        ] {
            assert_eq!(decode(&encode(4096, about)), about);
        }
    }
}
