//! Maps bytes of chunks with the profile DUP: each stripe is a whole copy, usually on one device. Called by `profile`.

use super::{Place, Shape};

pub(super) fn locate(shape: Shape, offset: u64, mirror: u32) -> Place {
    Place { stripe_index: u64::from(mirror), offset, run: shape.len - offset }
}
