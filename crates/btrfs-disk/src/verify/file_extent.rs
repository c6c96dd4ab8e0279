//! Verifies file extents. `tree_block` calls it for each such item.

use super::{Context, end, equal, require};
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail};
use crate::items::{COMPRESSION_MAX, FileExtent, FileExtentHead, FileExtentItem};
use crate::key::item_type;

/// Longest inline extent after decompression. The kernel stops at one sector; this is the
/// largest sector there is.
pub const INLINE_LEN_MAX: u64 = 65536;

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    context.aligned("file offset of an extent", context.key.offset)?;
    context.follows_its_inode()?;
    let extent = FileExtent::parse(context.data)?;
    encoding(extent.head())?;
    match extent {
        FileExtent::Inline { head, data } => inline(context, head, data)?,
        FileExtent::Extent(item) => regular(context, item)?,
    }
    overlap(context)
}

fn encoding(head: &FileExtentHead) -> Result<(), Corrupt> {
    require(
        head.compression <= COMPRESSION_MAX,
        "compression of a file extent",
        Detail::AtMost(u64::from(COMPRESSION_MAX)),
        Detail::Number(u64::from(head.compression)),
    )?;
    equal("encryption of a file extent", u64::from(head.encryption), 0)
}

fn inline(context: &Context<'_>, head: &FileExtentHead, data: &[u8]) -> Result<(), Corrupt> {
    equal("file offset of an inline extent", context.key.offset, 0)?;
    let ram_bytes = head.ram_bytes.get();
    if head.compression == 0 {
        return equal("length of an inline extent", ram_bytes, to_u64(data.len()));
    }
    require(
        ram_bytes <= INLINE_LEN_MAX,
        "length of a compressed inline extent",
        Detail::AtMost(INLINE_LEN_MAX),
        Detail::Number(ram_bytes),
    )
}

fn regular(context: &Context<'_>, item: &FileExtentItem) -> Result<(), Corrupt> {
    let (disk, disk_len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    let (offset, len) = (item.offset.get(), item.num_bytes.get());
    let ram_bytes = item.head.ram_bytes.get();
    context.aligned("uncompressed size of a file extent", ram_bytes)?;
    context.aligned("address of a file extent", disk)?;
    context.aligned("size on disk of a file extent", disk_len)?;
    context.aligned("offset in a file extent", offset)?;
    context.aligned("length of a file extent", len)?;
    require(len > 0, "length of a file extent", Detail::AtLeast(1), Detail::Number(len))?;
    end("end of a file extent in its file", context.key.offset, len)?;
    end("end of a file extent on disk", disk, disk_len)?;
    let used = end("used end of a file extent", offset, len)?;
    if item.is_hole() {
        return Ok(());
    }
    // Decompression gives `ram_bytes`. For uncompressed extents of older kernels that may differ from the size on disk,
    // which is authoritative then.
    let available = if item.head.compression == 0 { disk_len } else { ram_bytes };
    require(used <= available, "used end of a file extent", Detail::AtMost(available), Detail::Number(used))
}

/// The previous extent ends before this one begins.
fn overlap(context: &Context<'_>) -> Result<(), Corrupt> {
    let Some((key, data)) = context.previous else {
        return Ok(());
    };
    if key.item_type != item_type::EXTENT_DATA || key.objectid != context.key.objectid {
        return Ok(());
    }
    let previous = FileExtent::parse(data)?;
    let previous_end = match previous {
        FileExtent::Inline { head, .. } => {
            let sector = u64::from(context.format.sectorsize.max(1));
            let inline_end = key.offset.saturating_add(head.ram_bytes.get());
            inline_end.checked_next_multiple_of(sector).unwrap_or(u64::MAX)
        }
        FileExtent::Extent(item) => key.offset.saturating_add(item.num_bytes.get()),
    };
    require(
        previous_end <= context.key.offset,
        "file offset of an extent",
        Detail::AtLeast(previous_end),
        Detail::Number(context.key.offset),
    )
}
