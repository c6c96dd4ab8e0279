//! Converts between integer types; every module uses it.

/// Bytes of memory as a number on the wire.
pub(crate) const fn to_u64(value: usize) -> u64 {
    // No supported machine has wider pointers.
    #[expect(clippy::as_conversions, reason = "usize has at most 64 bits; `From` is not const")]
    {
        value as u64
    }
}

/// A length that was checked against a limit; `usize::MAX` where it does not fit, which no allocation grants.
pub(crate) fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length below 4 GiB; the largest number where it is not.
pub(crate) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
