//! RAID1, RAID1C3, RAID1C4: each stripe is a whole copy, on a device of its own.

use super::{Chunk, Place};

pub(super) fn locate(chunk: &Chunk, offset: u64, mirror: u32) -> Place {
    Place {
        stripe_index: u64::from(mirror),
        offset,
        run: chunk.len_bytes() - offset,
    }
}
