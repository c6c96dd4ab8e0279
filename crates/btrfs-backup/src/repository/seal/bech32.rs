//! The texts of keys: Bech32 (BIP 173) of 32 bytes, without its limit of the length. Pure.

const DIGITS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// Digits of the checksum.
const SUM_DIGITS: usize = 6;

fn checksum(values: impl Iterator<Item = u8>) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |sum, value| {
        let top = sum >> 25;
        let next = (sum & 0x01ff_ffff) << 5 ^ u32::from(value);
        let chosen = (0u32..).zip(GENERATOR).filter(|(bit, _)| top >> bit & 1 == 1);
        chosen.fold(next, |next, (_, constant)| next ^ constant)
    })
}

/// The 32 bytes of a text that begins with `prefix` and is written in its case; `None` for another text.
pub(super) fn decode(prefix: &str, text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix(prefix)?.strip_prefix('1')?;
    let is_lower = prefix.bytes().all(|byte| !byte.is_ascii_uppercase());
    let has_case = |byte: u8| if is_lower { !byte.is_ascii_uppercase() } else { !byte.is_ascii_lowercase() };
    let value = |byte: u8| {
        let found = DIGITS.iter().position(|digit| *digit == byte.to_ascii_lowercase());
        found.filter(|_| has_case(byte)).and_then(|found| u8::try_from(found).ok())
    };
    let values: Vec<u8> = digits.bytes().map(value).collect::<Option<_>>()?;
    let lower = prefix.to_ascii_lowercase();
    let expanded = lower.bytes().map(|byte| byte >> 5).chain([0]).chain(lower.bytes().map(|byte| byte & 31));
    if checksum(expanded.chain(values.iter().copied())) != 1 {
        return None;
    }
    let data = values.get(..values.len().checked_sub(SUM_DIGITS)?)?;
    let (mut bytes, mut rest, mut bits) = (Vec::new(), 0u32, 0u32);
    for value in data {
        rest = (rest << 5 | u32::from(*value)) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(rest >> bits & 0xff).ok()?);
        }
    }
    // The bits that are left over have to be zeros, and fewer than a digit has.
    let is_clean = bits < 5 && rest & ((1 << bits) - 1) == 0;
    bytes.try_into().ok().filter(|_| is_clean)
}
