//! Verifies checksum items. `tree_block` calls it for each such item.

use super::{Context, end, equal, require};
use crate::convert::{to_u64, u32_len};
use crate::error::{Corrupt, Detail};
use crate::items::CsumGeometry;
use crate::key::{item_type, objectid};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    if !context.format.checks_csum_items {
        return Ok(());
    }
    equal("checksum object id", context.key.objectid, objectid::EXTENT_CSUM)?;
    context.aligned("address of checksums", context.key.offset)?;
    let csum_len = context.format.csum_type.len();
    require(
        context.data.len().is_multiple_of(csum_len),
        "size of a checksum item",
        Detail::MultipleOf(to_u64(csum_len)),
        Detail::size(context.data.len()),
    )?;
    let geometry = CsumGeometry { sectorsize: context.format.sectorsize, csum_len: u32_len(csum_len) };
    let covered = geometry.covered_bytes(context.data.len());
    end("end of the checksums", context.key.offset, covered)?;
    match context.previous {
        Some((key, data)) if key.item_type == item_type::EXTENT_CSUM => {
            let previous_end = key.offset.saturating_add(geometry.covered_bytes(data.len()));
            require(
                previous_end <= context.key.offset,
                "address of checksums",
                Detail::AtLeast(previous_end),
                Detail::Number(context.key.offset),
            )
        }
        _ => Ok(()),
    }
}
