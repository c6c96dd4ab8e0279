//! Maps logical offsets to stripes for RAID5 and RAID6. A row has one column of 64 KiB on each stripe; one or two of
//! them hold parity, and rotate by one stripe from row to row. Called by `profile` and `parity`.
//!
//! ```text
//! RAID5 over 3      stripe 0  1  2        RAID6 over 4      stripe 0  1  2  3
//!           row 0:         0  1  P                  row 0:         0  1  P  Q
//!           row 1:         P  2  3                  row 1:         Q  2  3  P
//!           row 2:         5  P  4                  row 2:         P  Q  4  5
//! ```

use btrfs_disk::items::STRIPE_LEN;

use super::{Place, Shape};

/// Number of data columns in a row.
pub(super) fn data_columns(shape: Shape, parity_count: u64) -> u64 {
    shape.stripe_count.saturating_sub(parity_count).max(1)
}

/// The stripe that holds a column of a row. Columns are numbered data first, then P, then Q.
pub(super) fn stripe_of(shape: Shape, row: u64, column: u64) -> u64 {
    (row % shape.stripe_count + column) % shape.stripe_count
}

/// The column that a stripe holds in a row.
pub(super) fn column_of(shape: Shape, row: u64, stripe_index: u64) -> u64 {
    (stripe_index + shape.stripe_count - row % shape.stripe_count) % shape.stripe_count
}

pub(super) fn locate(shape: Shape, parity_count: u64, offset: u64) -> Place {
    let (unit, in_unit) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    let columns = data_columns(shape, parity_count);
    let (row, column) = (unit / columns, unit % columns);
    Place { stripe_index: stripe_of(shape, row, column), offset: row * STRIPE_LEN + in_unit, run: STRIPE_LEN - in_unit }
}

/// `None` for parity.
pub(super) fn offset_in_chunk(shape: Shape, parity_count: u64, stripe_index: u64, offset: u64) -> Option<u64> {
    let (row, in_unit) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
    let (columns, column) = (data_columns(shape, parity_count), column_of(shape, row, stripe_index));
    (column < columns).then(|| (row * columns + column) * STRIPE_LEN + in_unit)
}

/// Rounds up to whole rows, so that the last, partial row of a chunk still lies inside its stripes.
pub(super) fn stripe_bytes(shape: Shape, parity_count: u64) -> u64 {
    let unit_count = shape.len.div_ceil(STRIPE_LEN);
    unit_count.div_ceil(data_columns(shape, parity_count)) * STRIPE_LEN
}
