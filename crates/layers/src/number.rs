//! Converts numbers: lengths in memory to positions in files, and digits to numbers. All modules call it.

/// A length in memory as a count of bytes in files.
pub(crate) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The number that all of `digits` mean in base `radix`; `None` for anything else, a sign included.
pub(crate) fn parse<N: TryFrom<u64>>(digits: &[u8], radix: u32) -> Option<N> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok().and_then(|number| N::try_from(number).ok())
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
}
