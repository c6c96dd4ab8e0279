//! Verifies devices and device extents. `tree_block` calls it for each such item.

use super::{Context, end, equal, require};
use crate::TreeId;
use crate::error::{Corrupt, Detail};
use crate::items::{DevExtent, DevItem, OnDisk};
use crate::key::{item_type, objectid};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    equal("device object id", context.key.objectid, objectid::DEV_ITEMS)?;
    let item = DevItem::parse(context.data)?;
    equal("device number", item.devid.get(), context.key.offset)?;
    // The size is 0 while a device is being removed, but nothing is in use then.
    let (used, total) = (item.bytes_used.get(), item.total_bytes.get());
    require(used <= total, "used bytes of a device", Detail::AtMost(total), Detail::Number(used))
}

pub(super) fn verify_extent(context: &Context<'_>) -> Result<(), Corrupt> {
    let item = DevExtent::parse(context.data)?;
    let start = context.key.offset;
    equal("chunk tree of a device extent", item.chunk_tree.get(), TreeId::CHUNK.0)?;
    equal("chunk object id", item.chunk_objectid.get(), objectid::FIRST_CHUNK_TREE)?;
    context.aligned("start of a device extent", start)?;
    context.aligned("chunk of a device extent", item.chunk_offset.get())?;
    let len = item.length.get();
    context.aligned("length of a device extent", len)?;
    end("end of a device extent", start, len)?;
    match context.previous {
        Some((key, data)) if key.item_type == item_type::DEV_EXTENT && key.objectid == context.key.objectid => {
            let previous = DevExtent::parse(data)?;
            let previous_end = key.offset.saturating_add(previous.length.get());
            require(
                previous_end <= start,
                "start of a device extent",
                Detail::AtLeast(previous_end),
                Detail::Number(start),
            )
        }
        _ => Ok(()),
    }
}
