//! Maps bytes of chunks with the profiles RAID1, RAID1C3 and RAID1C4: each stripe is a whole copy, on a device of its
//! own. Called by `profile`.

use super::{Place, Shape};

pub(super) fn locate(shape: Shape, offset: u64, mirror: u32) -> Place {
    Place { stripe_index: u64::from(mirror), offset, run: shape.len - offset }
}
