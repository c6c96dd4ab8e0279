//! Maps bytes of chunks with the profile single: a chunk has one stripe, which holds its bytes in order. Called by
//! `profile`.

use super::{Place, Shape};

pub(super) fn locate(shape: Shape, offset: u64) -> Place {
    Place { stripe_index: 0, offset, run: shape.len - offset }
}
