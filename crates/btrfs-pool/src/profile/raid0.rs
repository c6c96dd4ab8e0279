//! Maps bytes of chunks with the profile RAID0: 64 KiB rows alternate between the stripes. Called by `profile`.
//!
//! ```text
//! stripe 0: rows 0 3 6    stripe 1: rows 1 4 7    stripe 2: rows 2 5 8
//! ```

use btrfs_disk::items::STRIPE_LEN;

use super::{Place, Shape};

pub(super) fn locate(shape: Shape, offset: u64) -> Place {
    let (row, in_row) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    let width = shape.stripe_count;
    Place { stripe_index: row % width, offset: row / width * STRIPE_LEN + in_row, run: STRIPE_LEN - in_row }
}

pub(super) fn offset_in_chunk(shape: Shape, stripe_index: u64, offset: u64) -> u64 {
    let (turn, in_row) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    (turn * shape.stripe_count + stripe_index) * STRIPE_LEN + in_row
}

/// Rounded up to whole rows, so that a chunk of odd length stays inside its stripes.
pub(super) fn stripe_bytes(shape: Shape) -> u64 {
    let row_count = shape.len.div_ceil(STRIPE_LEN);
    row_count.div_ceil(shape.stripe_count) * STRIPE_LEN
}
