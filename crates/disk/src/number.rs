//! Converts and rounds numbers without surprises, and prints sizes. Called by every module of the crate.

/// Bytes of a kibibyte.
pub(crate) const KIB: u64 = 1024;
/// Bytes of a mebibyte.
pub(crate) const MIB: u64 = 1024 * KIB;
/// Bytes of a gibibyte.
pub(crate) const GIB: u64 = 1024 * MIB;
/// Bytes of a tebibyte.
pub(crate) const TIB: u64 = 1024 * GIB;

/// A length in memory as a number of bytes of a file.
pub(crate) fn bytes(len: usize) -> u64 {
    u64::try_from(len).expect("memory has less than 2^64 bytes")
}

/// The smaller of a number and a length in memory, as a length.
pub(crate) fn at_most(number: u64, len_max: usize) -> usize {
    usize::try_from(number).map_or(len_max, |number| number.min(len_max))
}

/// The next multiple of `unit`, or nothing beyond 2^64.
pub(crate) fn up(number: u64, unit: u64) -> Option<u64> {
    number.checked_next_multiple_of(unit)
}

/// The multiple of `unit` at or before a number.
pub(crate) fn down(number: u64, unit: u64) -> u64 {
    number - number.checked_rem(unit).unwrap_or(0)
}

/// A size as people write it: `8 GiB`, `1.5 MiB`, `512 bytes`.
pub(crate) fn human(bytes: u64) -> String {
    let units = [(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} bytes");
    };
    let whole = bytes / unit;
    // Tenths are cut, not rounded: a size never looks larger than it is.
    match (bytes % unit).saturating_mul(10) / unit {
        0 if bytes.is_multiple_of(unit) => format!("{whole} {name}"),
        tenths => format!("{whole}.{tenths} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_with_a_unit() {
        assert_eq!(human(511), "511 bytes");
        assert_eq!(human(KIB), "1 KiB");
        assert_eq!(human(MIB + MIB / 2), "1.5 MiB");
        assert_eq!(human(GIB + 1), "1.0 GiB");
        assert_eq!(human(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn rounding_stops_at_the_end() {
        assert_eq!(up(4097, 4096), Some(8192));
        assert_eq!(up(u64::MAX, 4096), None);
        assert_eq!(down(4097, 4096), 4096);
        assert_eq!(at_most(u64::MAX, 7), 7);
    }
}
