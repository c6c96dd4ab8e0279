//! Single: the chunk is its one stripe.

use super::{Chunk, Place};

pub(super) fn locate(chunk: &Chunk, offset: u64) -> Place {
    Place {
        stripe_index: 0,
        offset,
        run: chunk.len_bytes() - offset,
    }
}
