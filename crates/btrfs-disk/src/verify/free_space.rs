//! Verifies the items of the free-space tree. `tree_block` calls it for each such item.

use super::{Context, end, require};
use crate::error::{Corrupt, Detail};
use crate::items::{FreeSpaceInfo, OnDisk, bitmap_size};

pub(super) fn verify_info(context: &Context<'_>) -> Result<(), Corrupt> {
    range(context)?;
    FreeSpaceInfo::parse(context.data).map(drop)
}

pub(super) fn verify_extent(context: &Context<'_>) -> Result<(), Corrupt> {
    range(context)?;
    context.size("size of a free space extent", 0)?;
    behind_previous(context)
}

pub(super) fn verify_bitmap(context: &Context<'_>) -> Result<(), Corrupt> {
    range(context)?;
    let size = bitmap_size(context.key.offset, context.format.sectorsize);
    context.size("size of a free space bitmap", size)?;
    behind_previous(context)
}

fn range(context: &Context<'_>) -> Result<(), Corrupt> {
    let (start, len) = (context.key.objectid, context.key.offset);
    context.aligned("start of free space", start)?;
    context.aligned("length of free space", len)?;
    require(len > 0, "length of free space", Detail::AtLeast(1), Detail::Number(len))?;
    end("end of free space", start, len).map(drop)
}

/// Ranges do not overlap. Before the first range comes the info item of its block group, whose range covers all of
/// them.
fn behind_previous(context: &Context<'_>) -> Result<(), Corrupt> {
    match context.previous {
        Some((key, _)) if key.item_type == context.key.item_type => {
            let previous_end = key.objectid.saturating_add(key.offset);
            require(
                previous_end <= context.key.objectid,
                "start of free space",
                Detail::AtLeast(previous_end),
                Detail::Number(context.key.objectid),
            )
        }
        _ => Ok(()),
    }
}
