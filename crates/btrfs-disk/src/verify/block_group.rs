//! Verifies block group items. `tree_block` calls it for each such item.

use super::{Context, chunk, end, equal, require};
use crate::error::{Corrupt, Detail};
use crate::flags::{BlockGroupFlags, Incompat};
use crate::items::{BlockGroupItem, OnDisk};
use crate::key::objectid;

/// Bytes of the item with the feature REMAP_TREE.
const SIZE_WITH_REMAP: usize = 44;

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    let start = context.key.objectid;
    let len = context.key.offset;
    require(len > 0, "block group length", Detail::AtLeast(1), Detail::Number(len))?;
    end("end of the block group", start, len)?;
    let incompat = context.format.incompat;
    if incompat.contains(Incompat::REMAP_TREE) {
        context.size(BlockGroupItem::NAME, SIZE_WITH_REMAP)?;
    } else {
        context.size(BlockGroupItem::NAME, size_of::<BlockGroupItem>())?;
    }
    let (item, _) = BlockGroupItem::parse_prefix(context.data)?;
    // Extent tree v2 keeps the number of a tree here.
    if !incompat.contains(Incompat::EXTENT_TREE_V2) {
        let chunk_objectid = item.chunk_objectid.get();
        equal("chunk of the block group", chunk_objectid, objectid::FIRST_CHUNK_TREE)?;
    }
    let used = item.used.get();
    require(used <= len, "used bytes", Detail::AtMost(len), Detail::Number(used))?;
    flags(item.group_flags())
}

fn flags(flags: BlockGroupFlags) -> Result<(), Corrupt> {
    chunk::profile("block group profile", flags)?;
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    let is_known = kind.bits().count_ones() == 1 || kind == BlockGroupFlags::MIXED;
    require(
        is_known,
        "block group type",
        Detail::Text("data, system, metadata, or data and metadata"),
        Detail::Hex(flags.bits()),
    )
}
