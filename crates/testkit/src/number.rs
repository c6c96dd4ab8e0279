//! Converts between lengths in memory and positions in files by name (64-bit targets only). Called by `crash`.

pub(crate) fn to_u64(len: usize) -> u64 {
    u64::try_from(len).expect("usize has 64 bits")
}

pub(crate) fn to_usize(len: u64) -> usize {
    usize::try_from(len).expect("usize has 64 bits")
}
