//! Writes names of files, which are bytes and need not be text, to the terminal and into JSON. All reports call it.
//!
//! On a terminal, bytes that are not printable text are escaped (`\n`, `\x1b`), so that no name in
//! an image can send control sequences to it; a backslash is doubled. Into a pipe or a file, names
//! are written unchanged. In JSON a name is a string; if it is not UTF-8, a second field has its
//! bytes in hex.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

/// The bytes of a name as text without control characters, from which the bytes can be restored.
pub(crate) fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(needs_escape) => Cow::Borrowed(text),
        _ => Cow::Owned(escape(bytes)),
    }
}

/// Text with control characters escaped; backslashes stay, since the text has its own escapes.
pub(crate) fn escaped_text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| c != '\\' && needs_escape(c)) {
        return Cow::Borrowed(text);
    }
    let parts = text.split('\\').map(|part| escape(part.as_bytes()));
    Cow::Owned(parts.collect::<Vec<_>>().join("\\"))
}

fn needs_escape(c: char) -> bool {
    // The listed characters change the direction of writing.
    c.is_control()
        || c == '\\'
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if !needs_escape(c) => text.push(c),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '\\' => text.push_str("\\\\"),
                c => push_hex(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A UUID in its usual form.
pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*bytes).to_string()
}

/// A name in JSON, to be flattened: `name`, and `name_hex` when the name is not UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct JsonName(pub(crate) Vec<u8>);

/// A path in JSON, to be flattened: `path`, and `path_hex` when the path is not UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct JsonPath(pub(crate) Vec<u8>);

/// The target of a symbolic link in JSON: `target`, and `target_hex` when it is not UTF-8.
#[derive(Debug, Clone)]
pub(crate) struct JsonTarget(pub(crate) Vec<u8>);

macro_rules! json_bytes {
    ($($type:ident: $text:literal, $hex:literal;)*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_struct(stringify!($type), 2)?;
                fields.serialize_field($text, &String::from_utf8_lossy(&self.0))?;
                if std::str::from_utf8(&self.0).is_err() {
                    fields.serialize_field($hex, &hex(&self.0))?;
                }
                fields.end()
            }
        }
    )*};
}

json_bytes! {
    JsonName: "name", "name_hex";
    JsonPath: "path", "path_hex";
    JsonTarget: "target", "target_hex";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped(b"plain name"), "plain name");
        assert_eq!(escaped("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
        assert_eq!(escaped(b"a\x1b[2Jb\n"), "a\\x1b[2Jb\\n");
        assert_eq!(escaped(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(escaped(b"a\\nb"), "a\\\\nb");
        assert_eq!(escaped("\u{202e}txt".as_bytes()), "\\xe2\\x80\\xaetxt");
    }

    #[test]
    fn json_keeps_every_byte() {
        let json = |name: &[u8]| serde_json::to_string(&JsonName(name.to_vec())).unwrap();
        assert_eq!(json(b"a\n"), r#"{"name":"a\n"}"#);
        assert_eq!(json(b"\xff"), "{\"name\":\"\u{fffd}\",\"name_hex\":\"ff\"}");
    }
}
