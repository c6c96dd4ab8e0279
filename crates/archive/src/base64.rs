//! Decodes base64, as libarchive writes the values of attributes. A few lines are less than a dependency. `tar` calls
//! it.

/// The bytes that `text` stands for. Padding and line ends are passed over; `None` for any other character.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0_u32);
    for letter in text.iter().copied().filter(|letter| !matches!(letter, b'=' | b'\n' | b'\r')) {
        let digit = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = ((bits << 6) | u32::from(digit), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_examples_of_the_standard() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")] {
            assert_eq!(decode(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode(b"Z-"), None);
    }
}
