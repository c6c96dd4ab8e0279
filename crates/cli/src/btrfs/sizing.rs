//! Estimates how large an image must be to hold a directory. Called by `mkfs` of btrfs when `--size` is not given.

use spinney::btrfs::disk::items::{DirItem, FileExtentItem, InodeItem, InodeRef};
use spinney::btrfs::disk::node::ITEM_SIZE;

use spinney::transfer::Totals;

/// The smallest image that is made without `--size`: room for the first chunks and their growth.
const IMAGE_BYTES_MIN: u64 = 128 << 20;
/// Sizes are rounded up to this.
const IMAGE_BYTES_STEP: u64 = 1 << 20;
/// Chunks of an image that is cut to its contents, about.
const CHUNKS: u64 = 400;
/// A data sector.
const SECTOR_BYTES: u64 = 4096;
/// Extent item, its header and the reference inside it.
const EXTENT_ITEM_BYTES: u64 = 25 + 24 + 29;
/// Largest extent in bytes.
const EXTENT_BYTES: u64 = 16 << 20;

/// Properties of the file system that its size depends on, beside the contents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of a checksum.
    pub(super) csum_bytes: u64,
    /// Copies of data.
    pub(super) data_copies: u64,
    /// Copies of metadata.
    pub(super) metadata_copies: u64,
}

/// Bytes of an image that has room for everything, with a margin.
pub(super) fn image_bytes(totals: &Totals, shape: Shape) -> u64 {
    let data = totals.block_bytes.saturating_mul(shape.data_copies);
    // Leaves are two thirds full after random insertions, so twice the items is enough.
    let metadata = item_bytes(totals, shape).saturating_mul(2 * shape.metadata_copies);
    // Chunks are up to a tenth of the device, and the last of each kind stays partly empty.
    let needed = data.saturating_add(metadata);
    let size = needed.saturating_add(needed / 5).saturating_add(IMAGE_BYTES_MIN);
    size.div_ceil(IMAGE_BYTES_STEP).saturating_mul(IMAGE_BYTES_STEP)
}

/// Bytes of the longest chunk of an image that is cut to its contents: the last chunk of each kind stays partly empty.
pub(super) fn chunk_bytes(image_bytes: u64) -> u64 {
    (image_bytes / CHUNKS / IMAGE_BYTES_STEP).max(1).saturating_mul(IMAGE_BYTES_STEP)
}

fn item_bytes(totals: &Totals, shape: Shape) -> u64 {
    let item = |data: usize| u64::try_from(data.saturating_add(ITEM_SIZE)).unwrap_or(u64::MAX);
    // A name is stored in a DIR_ITEM, a DIR_INDEX and an INODE_REF.
    let per_name = item(size_of::<InodeItem>())
        .saturating_add(item(size_of::<InodeRef>()))
        .saturating_add(item(size_of::<DirItem>()).saturating_mul(2));
    let per_file = item(size_of::<FileExtentItem>());
    let extents = totals.large_files.saturating_add(totals.block_bytes / EXTENT_BYTES);
    let sectors = totals.block_bytes / SECTOR_BYTES;
    [
        totals.names.saturating_mul(per_name),
        totals.names.saturating_mul(per_file),
        totals.name_bytes.saturating_mul(3),
        totals.small_bytes,
        extents.saturating_mul(per_file.saturating_add(EXTENT_ITEM_BYTES)),
        sectors.saturating_mul(shape.csum_bytes),
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_data_and_its_copies() {
        let totals = Totals { block_bytes: 1 << 30, large_files: 1000, ..Totals::default() };
        let single = Shape { csum_bytes: 4, data_copies: 1, metadata_copies: 2 };
        let size = image_bytes(&totals, single);
        assert!((1 << 30..2 << 30).contains(&size), "{size}");
        let dup = Shape { data_copies: 2, ..single };
        assert!(image_bytes(&totals, dup) > 2 << 30);
        assert_eq!(image_bytes(&Totals::default(), single), IMAGE_BYTES_MIN);
        let huge = Totals { block_bytes: u64::MAX, ..Totals::default() };
        assert!(image_bytes(&huge, dup) > u64::MAX / 2);
    }
}
