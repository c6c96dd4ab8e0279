//! Converts numbers: lengths in memory to positions in files, digits to numbers, and device numbers. All modules call
//! it.

/// A length in memory as a count of bytes in files.
pub(crate) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The number that all of `digits` mean in base `radix`; `None` for anything else, a sign included.
pub(crate) fn parse<N: TryFrom<u64>>(digits: &[u8], radix: u32) -> Option<N> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok().and_then(|number| N::try_from(number).ok())
}

/// The device number of `major` and `minor`, in the 32 bits of `stat`; `None` where they do not fit.
pub(crate) fn device(major: u32, minor: u32) -> Option<u32> {
    const MAJOR_MAX: u32 = 0xfff;
    const MINOR_MAX: u32 = 0xf_ffff;
    let fits = major <= MAJOR_MAX && minor <= MINOR_MAX;
    fits.then_some((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_all_or_nothing() {
        assert_eq!(parse::<u32>(b"755", 8), Some(0o755));
        for bad in [&b""[..], b"+1", b"-1", b"8", b" 1", b"1 ", b"\xff"] {
            assert_eq!(parse::<u32>(bad, 8), None);
        }
        assert_eq!(parse::<u32>(b"4294967296", 10), None);
    }

    #[test]
    fn devices_are_as_stat_has_them() {
        assert_eq!(device(5, 1), Some(0x501));
        assert_eq!(device(259, 70_000), Some((70_000 & 0xff) | (259 << 8) | ((70_000 & !0xff) << 12)));
        assert_eq!(device(4096, 0), None);
        assert_eq!(device(0, 1 << 20), None);
    }
}
