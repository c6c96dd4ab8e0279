//! Base64 without padding (RFC 4648), in its one canonical form, as heads have it. Pure.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for group in bytes.chunks(3) {
        let value = (0..3).fold(0u32, |value, at| value << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for place in 0..=group.len() {
            let digit = usize::try_from(value >> (18 - 6 * place) & 63).unwrap_or(0);
            text.push(DIGITS.get(digit).copied().map_or('A', char::from));
        }
    }
    text
}

/// The bytes of a text; `None` for one that is not in canonical form.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for group in text.as_bytes().chunks(4) {
        let mut value = 0u32;
        for place in 0..4 {
            let digit = match group.get(place) {
                None => 0,
                Some(byte) => DIGITS.iter().position(|digit| digit == byte)?,
            };
            value = value << 6 | u32::try_from(digit).ok()?;
        }
        let count = group.len().checked_sub(1).filter(|count| *count > 0)?;
        let [_, all @ ..] = value.to_be_bytes();
        bytes.extend(all.iter().take(count));
        if all.iter().skip(count).any(|rest| *rest != 0) {
            return None;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_right() {
        for (bytes, text) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        for wrong in ["Z", "Zh", "Zm9", "Zg==", "Zm9v\n", "Zm 9"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
