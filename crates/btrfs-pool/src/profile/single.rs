//! Single: the chunk is its one stripe.

use super::{Place, Shape};

pub(super) fn locate(shape: Shape, offset: u64) -> Place {
    Place { stripe_index: 0, offset, run: shape.len - offset }
}
