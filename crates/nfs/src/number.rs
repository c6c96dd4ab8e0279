//! Converts between integer types; every module uses it.

/// Converts a size in memory to a number for the wire.
pub(crate) const fn to_u64(value: usize) -> u64 {
    // No supported machine has wider pointers.
    #[expect(clippy::as_conversions, reason = "usize has at most 64 bits; `From` is not const")]
    {
        value as u64
    }
}

/// Converts a length that was checked against a limit. Gives `usize::MAX` if it does not fit: allocating that much
/// fails.
pub(crate) fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length; `u32::MAX` for 4 GiB and more.
pub(crate) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
