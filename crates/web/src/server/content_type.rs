//! The content type that a name suggests, for browsers. Unknown names are bytes, which a browser saves.

/// Ends of names, in lower case, and their types.
const TYPES: [(&str, &str); 44] = [
    ("avif", "image/avif"),
    ("bash", TEXT),
    ("c", TEXT),
    ("cfg", TEXT),
    ("conf", TEXT),
    ("cpp", TEXT),
    ("css", "text/css; charset=utf-8"),
    ("csv", TEXT),
    ("diff", TEXT),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("go", TEXT),
    ("h", TEXT),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ini", TEXT),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("log", TEXT),
    ("m4a", "audio/mp4"),
    ("md", TEXT),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("patch", TEXT),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", TEXT),
    ("rs", TEXT),
    ("sh", TEXT),
    ("svg", "image/svg+xml"),
    ("toml", TEXT),
    ("ts", TEXT),
    ("txt", TEXT),
    ("wasm", "application/wasm"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff2", "font/woff2"),
    ("xml", "text/xml; charset=utf-8"),
    ("yaml", TEXT),
    ("yml", TEXT),
];
const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";
/// Names without an end that are text.
const TEXT_NAMES: [&str; 8] =
    ["readme", "license", "copying", "makefile", "changelog", "authors", "dockerfile", "kconfig"];

/// The type for a name.
pub(super) fn of(name: &[u8]) -> &'static str {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let Some((_, end)) = name.rsplit_once('.') else {
        return if TEXT_NAMES.contains(&name.as_str()) { TEXT } else { BYTES };
    };
    TYPES.binary_search_by_key(&end, |(known, _)| known).ok().and_then(|at| TYPES.get(at)).map_or(BYTES, |row| row.1)
}

/// True for a type that can run scripts, which get no access to the other files of the site.
pub(super) fn can_run(kind: &str) -> bool {
    kind.contains("html") || kind.contains("xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_the_end_of_a_name() {
        assert!(TYPES.is_sorted_by_key(|(end, _)| *end));
        for (end, kind) in TYPES {
            assert_eq!(of(format!("a.b.{}", end.to_uppercase()).as_bytes()), kind);
        }
        assert_eq!((of(b"Makefile"), of(b"a.\xff"), of(b"vmlinuz"), of(b"")), (TEXT, BYTES, BYTES, BYTES));
        assert!(can_run(of(b"a.svg")) && can_run(of(b"a.html")) && !can_run(of(b"a.png")));
    }
}
