//! Computes BLAKE2b with 32 bytes of output. Called by `checksum`.

use blake2b_simd::many::{HashManyJob, MAX_DEGREE, hash_many};
use blake2b_simd::{Hash, Params};

fn params() -> Params {
    let mut params = Params::new();
    params.hash_length(32);
    params
}

fn copy(hash: &Hash, out: &mut [u8]) {
    for (to, from) in out.iter_mut().zip(hash.as_bytes()) {
        *to = *from;
    }
}

/// As stored.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    copy(&params().hash(bytes), &mut out);
    out
}

/// Computes one checksum for each sector that has a slot. Hashing as many sectors at once as the processor has lanes is
/// 1.6 times faster.
pub(super) fn checksum_many<'a>(sectors: impl Iterator<Item = &'a [u8]>, slots: impl Iterator<Item = &'a mut [u8]>) {
    let params = params();
    let mut pairs = sectors.zip(slots);
    loop {
        let mut group: Vec<_> =
            pairs.by_ref().take(MAX_DEGREE).map(|(bytes, slot)| (HashManyJob::new(&params, bytes), slot)).collect();
        if group.is_empty() {
            return;
        }
        hash_many(group.iter_mut().map(|(job, _)| job));
        for (job, slot) in group {
            copy(&job.to_hash(), slot);
        }
    }
}
