//! Folds the case of names in case-insensitive directories, and hashes the folded form. Two names are equal if their
//! folded forms are. Callers: `f2fs::dir` (look-up), `f2fs::make` (the constants) and `f2fs-check`.
//!
//! Names are compared as with the kernel's `utf8-12.1.0`: canonical decomposition and full case folding; characters
//! that Unicode ignores by default are left out. Successive marks are sorted by their class, but not across an ignored
//! character. A name that is not UTF-8, or has characters unknown to Unicode 12.1, is not text: it is compared byte by
//! byte, and refused if the encoding is strict.
//!
//! The tables are those of newer versions of Unicode, restricted by `assigned` to 12.1: the stability policies of
//! Unicode guarantee that newer versions decompose and fold the characters of 12.1 as that version does.

mod assigned;

use caseless::Caseless as _;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use crate::hash;
use crate::kind::NAME_BYTES_MAX;

/// `s_encoding` of names in UTF-8, version 12.1.
pub const UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not text are refused.
pub const STRICT: u16 = 1;
/// `s_encoding_flags`: a name is searched for by its hash only. Without this flag the whole directory is searched next.
pub const NO_COMPAT_FALLBACK: u16 = 2;

/// Ranges of characters that are ignored by default (`Default_Ignorable_Code_Point` of Unicode 12.1), as far as they
/// are assigned.
const IGNORED: &[(u32, u32)] = &[
    (0xad, 0xad),
    (0x34f, 0x34f),
    (0x61c, 0x61c),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180e),
    (0x200b, 0x200f),
    (0x202a, 0x202e),
    (0x2060, 0x2064),
    (0x2066, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0001, 0xe0001),
    (0xe0020, 0xe007f),
    (0xe0100, 0xe01ef),
];
/// Limit on rounds of folding and decomposing: two rounds are enough, and a third shows that nothing changes any more.
const ROUNDS_MAX: usize = 8;

/// The folded form of a name; `None` if it is not text, or folds to nothing.
#[must_use]
pub fn folded(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase()).filter(|folded| is_stored(folded));
    }
    let text = str::from_utf8(name).ok()?;
    let (mut out, mut marks) = (String::new(), Vec::new());
    for character in text.chars() {
        if !assigned::is_assigned(character) {
            return None;
        }
        if is_ignored(character) {
            empty(&mut marks, &mut out);
            continue;
        }
        for part in parts_of(character) {
            let class = canonical_combining_class(part);
            if class == 0 {
                empty(&mut marks, &mut out);
                out.push(part);
            } else {
                marks.push((class, part));
            }
        }
    }
    empty(&mut marks, &mut out);
    Some(out.into_bytes()).filter(|folded| is_stored(folded))
}

/// True if a folded name can be used: it is not empty, and the kernel's buffer has room for it and a zero byte.
fn is_stored(folded: &[u8]) -> bool {
    !folded.is_empty() && folded.len() < NAME_BYTES_MAX
}

/// The hash of a name in a case-insensitive directory; `folded` is its folded form, if it is text.
#[must_use]
pub fn hash(name: &[u8], folded: Option<&[u8]>) -> u32 {
    match name {
        b"." | b".." => 0,
        name => hash::of_bytes(folded.unwrap_or(name)),
    }
}

/// The folded form of a character: small letters, and separate marks.
fn parts_of(character: char) -> Vec<char> {
    let mut parts = vec![character];
    for _ in 0..ROUNDS_MAX {
        let mut next = Vec::new();
        for folded in parts.iter().copied().default_case_fold() {
            decompose_canonical(folded, |part| next.push(part));
        }
        if next == parts {
            break;
        }
        parts = next;
    }
    parts
}

fn is_ignored(character: char) -> bool {
    let code = u32::from(character);
    IGNORED.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

/// Moves the collected marks to `out`, sorted by their class; those of one class keep their order.
fn empty(marks: &mut Vec<(u8, char)>, out: &mut String) {
    marks.sort_by_key(|(class, _)| *class);
    out.extend(marks.drain(..).map(|(_, mark)| mark));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksum over the folded forms of all characters, each followed by a byte 0xff.
    const CRC_OF_ALL: u32 = 0x1369_366b;

    fn fold(name: &str) -> Option<String> {
        folded(name.as_bytes()).map(|folded| String::from_utf8(folded).unwrap())
    }

    #[test]
    fn case_and_form_make_no_difference() {
        for (name, expected) in [
            ("README.TXT", "readme.txt"),
            ("Straße", "strasse"),
            ("ÄÖÜ", "a\u{308}o\u{308}u\u{308}"),
            ("İ", "i\u{307}"),
            ("Σίσυφος", "σι\u{301}συφοσ"),
            ("ﬁle", "file"),
            ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("soft\u{ad}hyphen", "softhyphen"),
            // A mark below sorts before one above, but not across an ignored character.
            ("q\u{307}\u{323}", "q\u{323}\u{307}"),
            ("q\u{307}\u{ad}\u{323}", "q\u{307}\u{323}"),
            ("\u{1f88}", "α\u{313}ι"),
        ] {
            assert_eq!(fold(name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn what_is_no_text_is_not_folded() {
        // Not UTF-8; a surrogate; a character of Unicode 13; an unassigned one; and ones that fold to nothing.
        for name in [&b"\xff"[..], b"a\xc3", b"\xed\xa0\x80", "\u{1f972}".as_bytes(), "\u{378}".as_bytes()] {
            assert_eq!(folded(name), None);
        }
        assert_eq!(fold("\u{ad}"), None);
        assert_eq!(fold(""), None);
        assert_eq!(folded(&[b'A'; 255]), None);
        assert_eq!(folded(&[b'A'; 254]).unwrap(), [b'a'; 254]);
        // Sharp s takes as many bytes folded, some letters take more.
        assert_eq!(fold(&"\u{390}".repeat(100)), None);
    }

    /// All of 275,528 characters, compared with the result of the Unicode files (15.0, from Debian's package, without
    /// characters newer than 12.1) for the kernel's generator of tables.
    #[test]
    fn every_character_is_folded_as_the_kernel_does() {
        let (mut all, mut count) = (Vec::new(), 0);
        for character in '\0'..=char::MAX {
            if assigned::is_assigned(character) {
                let parts = if is_ignored(character) { Vec::new() } else { parts_of(character) };
                all.extend(parts.into_iter().collect::<String>().into_bytes());
                all.push(0xff);
                count += 1;
            }
        }
        assert_eq!((count, hash::crc32(&all)), (275_528, CRC_OF_ALL));
    }
}
