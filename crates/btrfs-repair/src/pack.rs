//! Packs items into tree blocks, and blocks into trees. Called by `edit` and `derive`.

use std::ops::Range;

use btrfs_disk::convert::{u32_len, usize_from};
use btrfs_disk::flags::HeaderFlags;
use btrfs_disk::items::OnDisk as _;
use btrfs_disk::node::{
    CSUM_FIELD_SIZE, HEADER_SIZE, Header, ITEM_SIZE, Item, KEY_PTR_SIZE, KeyPtr, leaf_data_size, node_ptrs_max,
};
use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::error::Result;
use crate::image::Image;
use crate::space::{Allocator, ptrs_each};

/// An item with its data.
pub(crate) type OwnedItem = (Key, Vec<u8>);

/// The identity of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) at: u64,
    pub(crate) owner: TreeId,
    pub(crate) level: u8,
}

/// Distributes items over leaves: as few as hold them, but at least `leaves_min`.
pub(crate) fn leaves(items: &[OwnedItem], nodesize: u32, leaves_min: usize) -> Vec<Range<usize>> {
    let room = usize_from(leaf_data_size(nodesize));
    let mut leaves: Vec<Range<usize>> = Vec::new();
    let (mut start, mut bytes) = (0, 0usize);
    for (index, (_, data)) in items.iter().enumerate() {
        let size = data.len().saturating_add(ITEM_SIZE);
        if bytes.saturating_add(size) > room && index > start {
            leaves.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes = bytes.saturating_add(size);
    }
    leaves.push(start..items.len());
    while leaves.len() < leaves_min {
        // The longest is cut in two; where all have one item there cannot be more.
        let Some(longest) = (0..leaves.len()).max_by_key(|index| leaves.get(*index).map_or(0, Range::len)) else {
            break;
        };
        let Some(leaf) = leaves.get(longest).cloned().filter(|leaf| leaf.len() > 1) else { break };
        let middle = leaf.start.midpoint(leaf.end);
        leaves.splice(longest..=longest, [leaf.start..middle, middle..leaf.end]);
    }
    leaves
}

fn block(image: &Image, name: Name, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; image.media.node_bytes()];
    let header = Header {
        csum: [0; CSUM_FIELD_SIZE],
        fsid: image.media.format.fsid,
        bytenr: name.at.into(),
        flags: (HeaderFlags::WRITTEN | HeaderFlags::MIXED_BACKREF_REV).bits().into(),
        chunk_tree_uuid: image.chunk_tree_uuid,
        generation: image.generation().into(),
        owner: name.owner.0.into(),
        nritems: u32_len(count).into(),
        level: name.level,
    };
    put(&mut bytes, 0, header.bytes());
    bytes
}

fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    if let Some(to) = bytes.get_mut(at..at.saturating_add(from.len())) {
        to.copy_from_slice(from);
    }
}

/// The bytes of a leaf, unsealed.
pub(crate) fn leaf(image: &Image, name: Name, items: &[OwnedItem]) -> Vec<u8> {
    let mut bytes = block(image, name, items.len());
    let mut end = bytes.len().saturating_sub(HEADER_SIZE);
    for (slot, (key, data)) in items.iter().enumerate() {
        end = end.saturating_sub(data.len());
        let item = Item::new(*key, u32_len(end), u32_len(data.len()));
        put(&mut bytes, HEADER_SIZE.saturating_add(slot.saturating_mul(ITEM_SIZE)), item.bytes());
        put(&mut bytes, HEADER_SIZE.saturating_add(end), data);
    }
    bytes
}

/// The bytes of a node, unsealed.
pub(crate) fn node(image: &Image, name: Name, ptrs: &[KeyPtr]) -> Vec<u8> {
    let mut bytes = block(image, name, ptrs.len());
    for (slot, ptr) in ptrs.iter().enumerate() {
        put(&mut bytes, HEADER_SIZE.saturating_add(slot.saturating_mul(KEY_PTR_SIZE)), ptr.bytes());
    }
    bytes
}

/// The source of places for new blocks: a list, or an allocator.
pub(crate) enum Places<'a> {
    Given(std::vec::IntoIter<u64>),
    Found(&'a mut Allocator),
}

impl Places<'_> {
    fn next(&mut self, image: &Image, owner: TreeId) -> Result<u64> {
        match self {
            Self::Given(places) => {
                let missing = crate::error::Error::NoSpace { kind: "metadata", needed: 1 };
                places.next().ok_or(missing)
            }
            Self::Found(allocator) => allocator.take(&image.media.chunks, owner == TreeId::CHUNK),
        }
    }
}

/// Writes leaves of these items; returns a pointer to each.
///
/// # Errors
/// No space.
pub(crate) fn write_leaves(
    image: &Image,
    owner: TreeId,
    (items, split): (&[OwnedItem], &[Range<usize>]),
    places: &mut Places<'_>,
) -> Result<Vec<KeyPtr>> {
    let mut ptrs = Vec::with_capacity(split.len());
    for range in split {
        let items = items.get(range.clone()).unwrap_or_default();
        let at = places.next(image, owner)?;
        image.write(at, leaf(image, Name { at, owner, level: 0 }, items))?;
        let first = items.first().map_or(Key::MIN, |(key, _)| *key);
        ptrs.push(KeyPtr::new(first, Logical(at), Generation(image.generation())));
    }
    Ok(ptrs)
}

/// Writes nodes above these blocks, of one level.
///
/// # Errors
/// No space.
pub(crate) fn write_nodes(
    image: &Image,
    (owner, level): (TreeId, u8),
    below: &[KeyPtr],
    places: &mut Places<'_>,
) -> Result<Vec<KeyPtr>> {
    let each = ptrs_each(below.len(), usize_from(node_ptrs_max(image.media.format.nodesize)));
    let mut ptrs = Vec::new();
    for part in below.chunks(each) {
        let at = places.next(image, owner)?;
        image.write(at, node(image, Name { at, owner, level }, part))?;
        let first = part.first().map_or(Key::MIN, |ptr| ptr.key.get());
        ptrs.push(KeyPtr::new(first, Logical(at), Generation(image.generation())));
    }
    Ok(ptrs)
}

/// Puts levels above blocks until one is left; returns its address and level.
///
/// # Errors
/// No space.
pub(crate) fn raise(
    image: &Image,
    owner: TreeId,
    (mut ptrs, mut level): (Vec<KeyPtr>, u8),
    places: &mut Places<'_>,
) -> Result<(u64, u8)> {
    while ptrs.len() > 1 {
        level = level.saturating_add(1);
        ptrs = write_nodes(image, (owner, level), &ptrs, places)?;
    }
    Ok((ptrs.first().map_or(0, |ptr| ptr.blockptr.get()), level))
}

/// Writes a tree of these items, in the order of their keys; returns address and level of its root.
///
/// # Errors
/// No space.
pub(crate) fn write_tree(
    image: &Image,
    owner: TreeId,
    items: &[OwnedItem],
    allocator: &mut Allocator,
) -> Result<(u64, u8)> {
    let split = leaves(items, image.media.format.nodesize, 1);
    let mut places = Places::Found(allocator);
    let ptrs = write_leaves(image, owner, (items, &split), &mut places)?;
    raise(image, owner, (ptrs, 0), &mut places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_filled_and_cut_where_more_are_wanted() {
        let items: Vec<OwnedItem> = (0..10u64).map(|n| (Key::new(n, 1, 0), vec![0; 1000])).collect();
        assert_eq!(leaves(&items, 4096, 1), [0..3, 3..6, 6..9, 9..10]);
        assert_eq!(leaves(&items, 4096, 6).len(), 6);
        assert_eq!(leaves(&items, 4096, 60).len(), 10);
        assert_eq!(leaves(&[], 4096, 1).len(), 1);
    }
}
