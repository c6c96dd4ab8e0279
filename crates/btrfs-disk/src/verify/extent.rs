//! Verifies extent items and the references to extents. `tree_block` calls it for each such item.

use super::{Context, end, equal, level, require};
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail};
use crate::flags::{ExtentFlags, Incompat};
use crate::items::{ExtentDataRef, ExtentItem, ExtentView, InlineRef, OnDisk, SharedDataRef};
use crate::key::{item_type, objectid};
use crate::{InodeNo, Logical, TreeId};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    context.aligned("extent address", context.key.objectid)?;
    if context.key.item_type == item_type::METADATA_ITEM {
        level("level of a tree block", context.key.offset)?;
        require(
            context.format.incompat.contains(Incompat::SKINNY_METADATA),
            "extent item",
            Detail::Text("no METADATA_ITEM, as the feature skinny_metadata is off"),
            context.key.into(),
        )?;
    }
    let view = ExtentView::parse(&context.key, context.data)?;
    kind(context, view.item)?;
    if let Some(info) = view.block_info {
        level("level of a tree block", u64::from(info.level))?;
    }
    let inline_count = references(context, view.ref_bytes)?;
    let refs = view.item.refs.get();
    require(inline_count <= refs, "references of an extent", Detail::AtLeast(inline_count), Detail::Number(refs))?;
    end("end of an extent", context.key.objectid, len_of(context, &context.key))?;
    overlap(context)
}

/// Bytes that the extent with this key has.
fn len_of(context: &Context<'_>, key: &crate::Key) -> u64 {
    if key.item_type == item_type::METADATA_ITEM { u64::from(context.format.nodesize) } else { key.offset }
}

fn kind(context: &Context<'_>, item: &ExtentItem) -> Result<(), Corrupt> {
    context.generation("extent generation", item.generation.get())?;
    let flags = item.extent_flags();
    let kind = flags & (ExtentFlags::DATA | ExtentFlags::TREE_BLOCK);
    let found = Detail::Hex(flags.bits());
    require(kind.bits().count_ones() == 1, "extent flags", Detail::Text("either data or tree block"), found)?;
    if kind == ExtentFlags::TREE_BLOCK {
        if context.key.item_type == item_type::EXTENT_ITEM {
            let nodesize = u64::from(context.format.nodesize);
            equal("length of a tree block", context.key.offset, nodesize)?;
        }
        return Ok(());
    }
    require(
        context.key.item_type == item_type::EXTENT_ITEM,
        "extent flags",
        Detail::Text("tree block, as the item is a METADATA_ITEM"),
        found,
    )?;
    context.aligned("extent length", context.key.offset)?;
    require(
        !flags.contains(ExtentFlags::FULL_BACKREF),
        "extent flags",
        Detail::Text("no full backrefs, as it is data"),
        found,
    )
}

/// Checks the inline references and counts them.
fn references(context: &Context<'_>, bytes: &[u8]) -> Result<u64, Corrupt> {
    let mut rest = bytes;
    let mut count = 0u64;
    let mut last: Option<(u8, u64)> = None;
    while !rest.is_empty() {
        let (one, after) = InlineRef::parse_prefix(rest)?;
        reference(context, &one)?;
        // A single reference has no order, so that its hash (its sequence) is not computed.
        if last.is_some() || !after.is_empty() {
            let this = (one.item_type(), one.sequence());
            if let Some(last) = last {
                order(last, this)?;
            }
            last = Some(this);
        }
        count = count.saturating_add(one.count());
        rest = after;
    }
    Ok(count)
}

/// Types ascend, and within a type the sequence descends.
fn order(last: (u8, u64), this: (u8, u64)) -> Result<(), Corrupt> {
    require(
        last.0 <= this.0,
        "order of inline references",
        Detail::AtLeast(u64::from(last.0)),
        Detail::Number(u64::from(this.0)),
    )?;
    require(
        last.0 != this.0 || last.1 >= this.1,
        "order of inline references of one type",
        Detail::AtMost(last.1),
        Detail::Number(this.1),
    )
}

fn reference(context: &Context<'_>, one: &InlineRef) -> Result<(), Corrupt> {
    match *one {
        InlineRef::Owner { .. } | InlineRef::TreeBlock { .. } => Ok(()),
        InlineRef::SharedBlock { parent } => parent_block(context, parent),
        InlineRef::SharedData { parent, count } => {
            parent_block(context, parent)?;
            ref_count(count)
        }
        InlineRef::Data { root, inode, offset, count } => {
            data_ref(context, root, inode, offset)?;
            ref_count(count)
        }
    }
}

fn parent_block(context: &Context<'_>, parent: Logical) -> Result<(), Corrupt> {
    context.aligned("block that refers to an extent", parent.0)
}

fn ref_count(count: u32) -> Result<(), Corrupt> {
    require(count > 0, "count of a data reference", Detail::AtLeast(1), Detail::Number(u64::from(count)))
}

/// Files of subvolumes, of the data relocation tree and (space caches) of the root tree refer to
/// data.
fn data_ref(context: &Context<'_>, root: TreeId, inode: InodeNo, offset: u64) -> Result<(), Corrupt> {
    require(
        root.is_subvolume() || root == TreeId::DATA_RELOC || root == TreeId::ROOT,
        "tree of a data reference",
        Detail::Text("a subvolume's number"),
        Detail::Number(root.0),
    )?;
    require(
        (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&inode.0) || inode.0 == objectid::FREE_INO,
        "inode of a data reference",
        Detail::Range(objectid::FIRST_FREE, objectid::LAST_FREE),
        Detail::Number(inode.0),
    )?;
    context.aligned("offset of a data reference", offset)
}

fn overlap(context: &Context<'_>) -> Result<(), Corrupt> {
    match context.previous {
        Some((key, _)) if key.item_type == item_type::EXTENT_ITEM || key.item_type == item_type::METADATA_ITEM => {
            let previous_end = key.objectid.saturating_add(len_of(context, &key));
            require(
                previous_end <= context.key.objectid,
                "extent address",
                Detail::AtLeast(previous_end),
                Detail::Number(context.key.objectid),
            )
        }
        _ => Ok(()),
    }
}

/// TREE_BLOCK_REF, SHARED_BLOCK_REF and SHARED_DATA_REF as items of their own.
pub(super) fn verify_keyed(context: &Context<'_>) -> Result<(), Corrupt> {
    context.aligned("extent address", context.key.objectid)?;
    match context.key.item_type {
        item_type::TREE_BLOCK_REF => context.size("size of a tree block reference", 0),
        item_type::SHARED_BLOCK_REF => {
            context.size("size of a shared block reference", 0)?;
            parent_block(context, Logical(context.key.offset))
        }
        _ => {
            SharedDataRef::parse(context.data)?;
            parent_block(context, Logical(context.key.offset))
        }
    }
}

/// EXTENT_DATA_REF as an item of its own. Its hash cannot be checked: after a collision the writer uses the next free
/// key offset.
pub(super) fn verify_data_refs(context: &Context<'_>) -> Result<(), Corrupt> {
    context.aligned("extent address", context.key.objectid)?;
    let size = to_u64(size_of::<ExtentDataRef>());
    let refs = context.data.chunks_exact(size_of::<ExtentDataRef>());
    require(
        refs.remainder().is_empty(),
        "size of an extent data reference",
        Detail::MultipleOf(size),
        Detail::size(context.data.len()),
    )?;
    for bytes in refs {
        let one = ExtentDataRef::parse(bytes)?;
        let inode = InodeNo(one.objectid.get());
        data_ref(context, TreeId(one.root.get()), inode, one.offset.get())?;
        ref_count(one.count.get())?;
    }
    Ok(())
}
