//! Maps bytes of chunks with the profile RAID10: 64 KiB rows alternate between pairs of stripes; both stripes of a pair
//! have the same contents. Called by `profile`.
//!
//! ```text
//! stripes 0 and 1: rows 0 2 4    stripes 2 and 3: rows 1 3 5
//! ```

use btrfs_disk::items::STRIPE_LEN;

use super::{Place, Shape};

/// Stripes with the same content (`sub_stripes`).
const SUB_STRIPES: u64 = 2;

pub(super) fn locate(shape: Shape, offset: u64, mirror: u32) -> Place {
    let (row, in_row) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    Place {
        stripe_index: row % width(shape) * SUB_STRIPES + u64::from(mirror),
        offset: row / width(shape) * STRIPE_LEN + in_row,
        run: STRIPE_LEN - in_row,
    }
}

pub(super) fn offset_in_chunk(shape: Shape, stripe_index: u64, offset: u64) -> u64 {
    let (turn, in_row) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    (turn * width(shape) + stripe_index / SUB_STRIPES) * STRIPE_LEN + in_row
}

/// Rounded up to whole rows, so that a chunk of odd length stays inside its stripes.
pub(super) fn stripe_bytes(shape: Shape) -> u64 {
    let row_count = shape.len.div_ceil(STRIPE_LEN);
    row_count.div_ceil(width(shape)) * STRIPE_LEN
}

/// Pairs of stripes.
fn width(shape: Shape) -> u64 {
    shape.stripe_count / SUB_STRIPES
}
