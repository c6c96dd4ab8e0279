//! Decodes the escapes of mtree (those of `vis(3)`) and of composefs dumps, and base64. The parsers of both forms call
//! it. The crates for base64 decode more alphabets than needed, and these thirty lines are all that is.

/// Bytes without the escapes of mtree: `\` and three octal digits, or a letter. `None` for another escape.
pub(super) fn without_vis(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let octal = after.first_chunk::<3>().and_then(|digits| crate::number::parse::<u8>(digits, 8));
        let (byte, length) = match (octal, after.first()?) {
            (Some(byte), _) => (byte, 3),
            (None, b'\\') => (b'\\', 1),
            (None, b'#') => (b'#', 1),
            (None, b'0') => (0, 1),
            (None, b'a') => (0x07, 1),
            (None, b'b') => (0x08, 1),
            (None, b'f') => (0x0c, 1),
            (None, b'n') => (b'\n', 1),
            (None, b'r') => (b'\r', 1),
            (None, b's') => (b' ', 1),
            (None, b't') => (b'\t', 1),
            (None, b'v') => (0x0b, 1),
            (None, _) => return None,
        };
        plain.push(byte);
        rest = after.get(length..)?;
    }
    Some(plain)
}

/// Bytes without the escapes of a composefs dump: `\xXY`, `\\`, `\n`, `\r`, `\t`. `None` for another escape.
pub(super) fn without_hex(bytes: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let (byte, length) = match after.first()? {
            b'x' => (crate::number::parse::<u8>(after.get(1..3)?, 16)?, 3),
            b'\\' => (b'\\', 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b't' => (b'\t', 1),
            _ => return None,
        };
        plain.push(byte);
        rest = after.get(length..)?;
    }
    Some(plain)
}

/// Appends bytes with the escapes of a composefs dump.
pub(super) fn push_hex(out: &mut Vec<u8>, bytes: &[u8], escapes_equals: bool) {
    for byte in bytes {
        match byte {
            b'\\' => out.extend(b"\\\\"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            b'=' if escapes_equals => out.extend(b"\\x3d"),
            byte if byte.is_ascii_graphic() => out.push(*byte),
            byte => out.extend(format!("\\x{byte:02x}").into_bytes()),
        }
    }
}

/// Decodes base64 of the standard alphabet, padded or not.
pub(super) fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let (mut bytes, mut bits, mut held) = (Vec::with_capacity(text.len()), 0_u32, 0_u32);
    for letter in text {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    // One letter alone has six bits, which are no byte.
    (bits < 6 && held == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(without_vis(b"a\\040b\\134\\377\\n\\s").unwrap(), b"a b\\\xff\n ");
        assert!(without_vis(b"\\").is_none() && without_vis(b"\\q").is_none() && without_vis(b"\\777").is_none());
        assert_eq!(without_hex(b"\\x2d\\x00\\\\\\n\\r\\t").unwrap(), b"-\0\\\n\r\t");
        for bad in [&b"\\"[..], b"\\x", b"\\x1", b"\\xg0", b"\\s", b"\\x+1"] {
            assert!(without_hex(bad).is_none());
        }
        let all: Vec<u8> = (0..=255).collect();
        for escapes_equals in [false, true] {
            let mut out = Vec::new();
            push_hex(&mut out, &all, escapes_equals);
            assert_eq!(without_hex(&out).unwrap(), all);
        }
    }

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")] {
            assert_eq!(from_base64(text.as_bytes()).unwrap(), bytes.as_bytes());
        }
        assert!(from_base64(b"Z").is_none() && from_base64(b"Zh==").is_none() && from_base64(b"Zg-=").is_none());
    }
}
