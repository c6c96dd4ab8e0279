//! Converts between `usize` and `u64` by name, so that `as` is needed nowhere else in this crate.

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "Spinney needs a 64-bit target");

/// A length in memory as a 64-bit number. Never loses bits (64-bit targets only).
#[expect(clippy::as_conversions, reason = "both have 64 bits, asserted above")]
pub(crate) const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// A 64-bit number as a length in memory. Never loses bits (64-bit targets only).
#[expect(clippy::as_conversions, reason = "both have 64 bits, asserted above")]
pub(crate) const fn to_usize(value: u64) -> usize {
    value as usize
}
