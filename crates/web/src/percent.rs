//! Percent-encoding of paths (RFC 3986, section 2.1), for bytes that need not be UTF-8. Pure.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

/// Bytes that stand for themselves in a path and in a signature.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The bytes that a text with `%XX` stands for; `None` if two hexadecimal digits do not follow a percent sign.
pub(crate) fn decode(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        if *byte != b'%' {
            bytes.push(*byte);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        bytes.push(hex(digits.first()?)? << 4 | hex(digits.get(1)?)?);
        rest = behind;
    }
    Some(OsString::from_vec(bytes))
}

fn hex(digit: &u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Encodes all bytes but the plain ones and slashes.
pub(crate) fn encode_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        if is_plain(*byte) || *byte == b'/' {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn any_bytes_survive() {
        let bytes: Vec<u8> = (1..=255).collect();
        let text = encode_path(&bytes);
        assert!(text.is_ascii());
        assert_eq!(decode(&text).unwrap().as_bytes(), bytes);
        assert_eq!(encode_path(b"/a b/%\xff"), "/a%20b/%25%FF");
    }

    #[test]
    fn cut_sequences_are_refused() {
        for text in ["%", "%a", "%g0", "a%0", "%+1", "%é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
