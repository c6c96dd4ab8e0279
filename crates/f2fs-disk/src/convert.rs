//! Converts integers by named functions, so that `as` is needed nowhere else. Used by all f2fs crates.
//!
//! Spinney runs on 64-bit targets only: `usize` and `u64` have the same range.

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "Spinney needs a 64-bit target");

/// A length or index in memory as a 64-bit number. Never loses bits (64-bit targets only).
#[must_use]
#[expect(clippy::as_conversions, reason = "both have 64 bits, asserted above")]
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// A 64-bit number as an index in memory. Never loses bits (64-bit targets only).
#[must_use]
#[expect(clippy::as_conversions, reason = "both have 64 bits, asserted above")]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// A 32-bit number as an index in memory.
#[must_use]
#[expect(clippy::as_conversions, reason = "widening")]
pub const fn usize_from(value: u32) -> usize {
    value as usize
}

/// A length known to fit 32 bits (an index within a block): saturates otherwise, which no caller can reach.
#[must_use]
pub fn u32_len(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The whole part of a number that is not negative; the highest number where it is too large.
#[must_use]
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a conversion saturates"
)]
pub const fn whole(number: f64) -> u32 {
    number as u32
}
