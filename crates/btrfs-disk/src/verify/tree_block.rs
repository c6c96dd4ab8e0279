//! Verifies a tree block as a whole, and calls the module for each type of its items. The store calls [`block`] for
//! each block read and [`content`] for each block it writes; check and repair call [`block`] too.

use zerocopy::FromBytes;

use super::{
    Context, Expect, Format, block_group, chunk, csum, device, dir, extent, file_extent, free_space, inode, inode_ref,
    level, other_items, require, root,
};
use crate::convert::{to_u64, usize_from};
use crate::error::{At, Corrupt, Detail};
use crate::flags::HeaderFlags;
use crate::key::item_type;
use crate::node::{CSUM_FIELD_SIZE, HEADER_SIZE, Header, ITEM_SIZE, LeafView, NodeView, node_ptrs_max};
use crate::{Key, TreeId, Uuid};

/// [`Corrupt::what`] of a block with a wrong generation.
pub const BLOCK_GENERATION: &str = "tree block generation";

/// Checks a block that was read: its checksum, then its [`content`].
///
/// # Errors
/// [`Corrupt`] for the first violation.
pub fn block(bytes: &[u8], expect: &Expect<'_>) -> Result<(), Corrupt> {
    let at = At::Block(expect.at);
    size(bytes, expect).map_err(|error| error.at(at))?;
    let csum_type = expect.format.csum_type;
    if !has_right_checksum(bytes, csum_type) {
        let (stored, body) = bytes.split_at(CSUM_FIELD_SIZE);
        let computed = codec::checksum::checksum(csum_type, body);
        return Err(Corrupt::new(
            "tree block checksum",
            Detail::csum(csum_type, &computed),
            Detail::csum(csum_type, stored),
        )
        .at(at));
    }
    content(bytes, expect)
}

/// Whether a block's checksum is that of its contents.
#[must_use]
pub fn has_right_checksum(bytes: &[u8], csum_type: codec::ChecksumType) -> bool {
    let parts = bytes.split_at_checked(CSUM_FIELD_SIZE);
    parts.is_some_and(|(stored, body)| codec::checksum::matches(csum_type, body, stored))
}

/// Stores a block's checksum, as the last step before it is written. Bytes shorter than the checksum stay unchanged.
pub fn seal(bytes: &mut [u8], csum_type: codec::ChecksumType) {
    if let Some((stored, body)) = bytes.split_at_mut_checked(CSUM_FIELD_SIZE) {
        stored.copy_from_slice(&codec::checksum::checksum(csum_type, body));
    }
}

/// Checks everything but the checksum of a block.
///
/// # Errors
/// [`Corrupt`] for the first violation.
pub fn content(bytes: &[u8], expect: &Expect<'_>) -> Result<(), Corrupt> {
    let header = header(bytes, expect).map_err(|error| error.at(At::Block(expect.at)))?;
    if header.level == 0 { leaf(bytes, header, expect) } else { node(bytes, header, expect) }
}

fn size(bytes: &[u8], expect: &Expect<'_>) -> Result<(), Corrupt> {
    let nodesize = usize_from(expect.format.nodesize).max(HEADER_SIZE);
    require(bytes.len() == nodesize, "tree block size", Detail::size(nodesize), Detail::size(bytes.len()))
}

fn header<'a>(bytes: &'a [u8], expect: &Expect<'_>) -> Result<&'a Header, Corrupt> {
    size(bytes, expect)?;
    let Ok((header, _)) = Header::ref_from_prefix(bytes) else {
        return Err(Corrupt::new("tree block size", Detail::size(HEADER_SIZE), Detail::size(bytes.len())));
    };
    let at = header.bytenr.get();
    require(at == expect.at.0, "address in the tree block", Detail::Number(expect.at.0), Detail::Number(at))?;
    fsid(header.fsid, expect.format)?;
    require(
        header.header_flags().contains(HeaderFlags::WRITTEN),
        "tree block flags",
        Detail::Text("the written flag"),
        Detail::Hex(header.flags.get()),
    )?;
    header_level(header.level, expect.level)?;
    generation(header.generation.get(), expect)?;
    owner(TreeId(header.owner.get()), expect.owner)?;
    Ok(header)
}

fn fsid(found: Uuid, format: &Format) -> Result<(), Corrupt> {
    let expected = format.fsid;
    require(
        format.has_fsid(found),
        "file system UUID in the tree block",
        Detail::Uuid(expected.0),
        Detail::Uuid(found.0),
    )
}

fn header_level(found: u8, expected: Option<u8>) -> Result<(), Corrupt> {
    let found_level = u64::from(found);
    level("tree block level", found_level)?;
    match expected {
        Some(expected) => super::equal("tree block level", found_level, u64::from(expected)),
        None => Ok(()),
    }
}

fn generation(found: u64, expect: &Expect<'_>) -> Result<(), Corrupt> {
    if let Some(expected) = expect.generation {
        super::equal(BLOCK_GENERATION, found, expected.0)?;
    }
    require(
        found <= expect.generation_max.0,
        BLOCK_GENERATION,
        Detail::AtMost(expect.generation_max.0),
        Detail::Number(found),
    )
}

/// Blocks of a subvolume may have been made for any other subvolume. Log and relocation trees
/// keep the number of the tree they stand for.
///
/// # Errors
/// [`Corrupt`] if a tree refers to a block of another tree.
pub fn owner(found: TreeId, expected: Option<TreeId>) -> Result<(), Corrupt> {
    let Some(expected) = expected else {
        return Ok(());
    };
    require(may_own(found, expected), "tree block owner", Detail::Number(expected.0), Detail::Number(found.0))
}

/// Whether a tree may have a block that was made for `found`.
#[must_use]
pub fn may_own(found: TreeId, tree: TreeId) -> bool {
    found == tree
        || tree == TreeId::TREE_LOG
        || tree == TreeId::TREE_RELOC
        || (tree.is_subvolume() && found.is_subvolume())
}

fn first_key(found: Key, expect: &Expect<'_>) -> Result<(), Corrupt> {
    match expect.first_key {
        Some(expected) if expected != found => {
            Err(Corrupt::new("first key of the tree block", expected.into(), found.into()).at(At::Block(expect.at)))
        }
        _ => Ok(()),
    }
}

fn node(bytes: &[u8], header: &Header, expect: &Expect<'_>) -> Result<(), Corrupt> {
    let count = header.nritems.get();
    let max = node_ptrs_max(expect.format.nodesize);
    if count == 0 || count > max {
        return Err(Corrupt::new(
            "number of pointers in a node",
            Detail::Range(1, u64::from(max)),
            Detail::Number(u64::from(count)),
        )
        .at(At::Block(expect.at)));
    }
    let view = NodeView::new(bytes);
    let sector_mask = u64::from(expect.format.sectorsize).wrapping_sub(1);
    let mut previous: Option<Key> = None;
    for (slot, ptr) in view.ptrs().iter().enumerate() {
        let key = ptr.key.get();
        let child = ptr.blockptr.get();
        let is_ordered = previous.is_none_or(|previous| previous < key);
        if !is_ordered || child == 0 || child & sector_mask != 0 {
            let error = match previous {
                Some(previous) if !is_ordered => Corrupt::new("key of a node", Detail::key_above(previous), key.into()),
                _ => Corrupt::new(
                    "address in a node",
                    Detail::Text("a multiple of the sector size above 0"),
                    Detail::Number(child),
                ),
            };
            return Err(at_slot(error, expect, slot, key));
        }
        // An edit that changes a block changes its parent too.
        let (newest, found) = (header.generation.get(), ptr.generation.get());
        if found > newest {
            let expected = Detail::AtMost(newest);
            let error = Corrupt::new("generation in a node", expected, Detail::Number(found));
            return Err(at_slot(error, expect, slot, key));
        }
        previous = Some(key);
    }
    first_key(view.key(0), expect)
}

fn leaf(bytes: &[u8], header: &Header, expect: &Expect<'_>) -> Result<(), Corrupt> {
    let at = At::Block(expect.at);
    let count = usize_from(header.nritems.get());
    let view = LeafView::new(bytes);
    if view.nritems() != count {
        let max = bytes.len().saturating_sub(HEADER_SIZE) / ITEM_SIZE;
        return Err(Corrupt::new("number of items in a leaf", Detail::AtMost(to_u64(max)), Detail::size(count)).at(at));
    }
    if count == 0 {
        return empty_leaf(header, expect).map_err(|error| error.at(at));
    }
    let headers_end = to_u64(size_of_val(view.items()));
    let mut data_end = to_u64(bytes.len().saturating_sub(HEADER_SIZE));
    let mut previous: Option<(Key, &[u8])> = None;
    let owner = TreeId(header.owner.get());
    for (slot, item) in view.items().iter().enumerate() {
        let key = item.key.get();
        let start = u64::from(item.offset.get());
        let end = start.saturating_add(u64::from(item.size.get()));
        let place = Place { key, start, end, data_end, headers_end };
        place.check(previous.map(|(key, _)| key)).map_err(|e| at_slot(e, expect, slot, key))?;
        let data = view.data(slot);
        let context = Context {
            format: expect.format,
            generation_max: expect.generation_max.0,
            block_generation: header.generation.get(),
            owner,
            key,
            data,
            previous,
        };
        by_type(&context).map_err(|error| at_slot(error, expect, slot, key))?;
        previous = Some((key, data));
        data_end = start;
    }
    first_key(view.key(0), expect)
}

/// Position of an item's data.
struct Place {
    key: Key,
    start: u64,
    end: u64,
    /// Start of the previous item's data.
    data_end: u64,
    /// End of the item headers.
    headers_end: u64,
}

impl Place {
    /// Keys ascend, data is packed from the end downwards and does not run into the headers.
    #[inline]
    fn check(&self, previous: Option<Key>) -> Result<(), Corrupt> {
        if let Some(previous) = previous {
            require(previous < self.key, "key of a leaf", Detail::key_above(previous), self.key.into())?;
        }
        require(
            self.end == self.data_end,
            "end of an item's data",
            Detail::Number(self.data_end),
            Detail::Number(self.end),
        )?;
        require(
            self.start >= self.headers_end,
            "start of an item's data",
            Detail::AtLeast(self.headers_end),
            Detail::Number(self.start),
        )
    }
}

#[cold]
fn at_slot(error: Corrupt, expect: &Expect<'_>, slot: usize, key: Key) -> Corrupt {
    error.at(At::Item { block: expect.at, slot: crate::convert::u32_len(slot), key })
}

/// Refuses an empty leaf in a tree that always has items, and one without an owner (tree 0).
/// A relocation tree carries the number of the tree it stands for and may be empty.
fn empty_leaf(header: &Header, expect: &Expect<'_>) -> Result<(), Corrupt> {
    use crate::flags::Incompat;
    if header.header_flags().contains(HeaderFlags::RELOC) {
        return Ok(());
    }
    let owner = TreeId(header.owner.get());
    let may_be_empty = match owner {
        TreeId::ROOT | TreeId::CHUNK | TreeId::DEV | TreeId::FS | TreeId::DATA_RELOC => false,
        TreeId::EXTENT => expect.format.incompat.contains(Incompat::EXTENT_TREE_V2),
        TreeId(id) => id != 0,
    };
    require(
        may_be_empty,
        "number of items in the leaf of a tree that is never empty",
        Detail::AtLeast(1),
        Detail::Number(0),
    )
}

/// Checks one item by itself, as if it were the first of a leaf of `owner`.
///
/// # Errors
/// [`Corrupt`] naming the first value that is wrong.
pub fn item(key: &Key, data: &[u8], owner: TreeId, expect: &Expect<'_>) -> Result<(), Corrupt> {
    by_type(&Context {
        format: expect.format,
        generation_max: expect.generation_max.0,
        block_generation: expect.generation_max.0,
        owner,
        key: *key,
        data,
        previous: None,
    })
    .map_err(|error| at_slot(error, expect, 0, *key))
}

#[inline]
fn by_type(context: &Context<'_>) -> Result<(), Corrupt> {
    match context.key.item_type {
        item_type::INODE_ITEM => inode::verify(context),
        item_type::INODE_REF => inode_ref::verify(context),
        item_type::INODE_EXTREF => inode_ref::verify_extref(context),
        item_type::XATTR_ITEM => dir::verify_xattr(context),
        item_type::DIR_ITEM | item_type::DIR_INDEX => dir::verify(context),
        item_type::EXTENT_DATA => file_extent::verify(context),
        item_type::EXTENT_CSUM => csum::verify(context),
        item_type::EXTENT_ITEM | item_type::METADATA_ITEM => extent::verify(context),
        item_type::TREE_BLOCK_REF | item_type::SHARED_BLOCK_REF | item_type::SHARED_DATA_REF => {
            extent::verify_keyed(context)
        }
        item_type::EXTENT_DATA_REF => extent::verify_data_refs(context),
        item_type::ROOT_ITEM => root::verify(context),
        item_type::ROOT_REF | item_type::ROOT_BACKREF => root::verify_ref(context),
        item_type::BLOCK_GROUP_ITEM => block_group::verify(context),
        item_type::FREE_SPACE_INFO => free_space::verify_info(context),
        item_type::FREE_SPACE_EXTENT => free_space::verify_extent(context),
        item_type::FREE_SPACE_BITMAP => free_space::verify_bitmap(context),
        item_type::CHUNK_ITEM => chunk::verify(context),
        item_type::DEV_ITEM => device::verify(context),
        item_type::DEV_EXTENT => device::verify_extent(context),
        _ => other_items::verify(context),
    }
}
