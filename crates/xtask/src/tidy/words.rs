//! Checks words: format names in neutral crates, `unsafe` outside the places that may use it. Called by `tidy::run`.

use super::Problem;
use super::source::{SourceFile, TextFile};
use proc_macro2::{TokenStream, TokenTree};

/// Crates that serve every file system and so may not name one.
const NEUTRAL_CRATES: &[&str] = &[
    "access",
    "archive",
    "blockdev",
    "checking",
    "codec",
    "cli/src/commands",
    "disk",
    "formats",
    "fuse",
    "host",
    "layers",
    "portable",
    "remote",
    "transfer",
    "vfs",
    "vfs-conformance",
];
/// Files that recognise other formats on the users' disks, in order not to overwrite them.
const RECOGNISING: &[&str] = &["crates/formats/src/magic.rs"];
const FORMAT_NAMES: &[&str] = &["btrfs", "f2fs", "ext4", "xfs", "zfs", "ntfs"];
/// Folders in which `unsafe` is legal (each block with its SAFETY comment, which clippy checks).
const UNSAFE_FOLDERS: &[&str] = &["crates/blockdev/", "crates/capi/", "crates/codec/", "crates/fuse/src/sys/"];

/// Fails on format names anywhere in a neutral crate, comments and manifest included.
pub(super) fn check(file: &TextFile) -> Vec<Problem> {
    let is_neutral = NEUTRAL_CRATES.iter().any(|name| file.path.starts_with(&format!("crates/{name}/")));
    if !is_neutral || RECOGNISING.iter().any(|path| file.path == *path) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if let Some(name) = format_named(line) {
            let text = format!("names the format `{name}` in a crate that serves every format");
            problems.push(Problem { path: file.path.clone(), line: index.saturating_add(1), text });
        }
    }
    problems
}

/// Whether a line names a format of our own.
pub(super) fn names_a_format(line: &str) -> bool {
    matches!(format_named(line), Some("btrfs" | "f2fs"))
}

fn format_named(line: &str) -> Option<&'static str> {
    let lower = line.to_lowercase();
    FORMAT_NAMES.iter().find(|name| has_word(&lower, name)).copied()
}

/// `xfs` is a word in `an xfs volume` and `xfs_freeze`, not in `vxfs`.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line.get(..at).unwrap_or_default().ends_with(char::is_alphanumeric))
}

/// Fails on the keyword `unsafe` where it is not allowed, inside macro calls too.
pub(super) fn check_unsafe(file: &SourceFile) -> Vec<Problem> {
    let is_allowed = |folder: &&str| file.path.starts_with(*folder);
    if UNSAFE_FOLDERS.iter().any(is_allowed) {
        return Vec::new();
    }
    let Ok(tokens) = file.text.parse::<TokenStream>() else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    find_unsafe(tokens, &mut lines);
    let text = format!("unsafe code outside {}", UNSAFE_FOLDERS.join(" and "));
    lines.into_iter().map(|line| Problem { path: file.path.clone(), line, text: text.clone() }).collect()
}

fn find_unsafe(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "unsafe" => lines.push(ident.span().start().line),
            TokenTree::Group(group) => find_unsafe(group.stream(), lines),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        check(&file).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn neutral_crates_name_no_format() {
        assert_eq!(lines("crates/vfs/src/lib.rs", "ok\n/// As Btrfs does.\n"), [2]);
        assert_eq!(lines("crates/codec/Cargo.toml", "x\ny\ndescription = \"for xfs\"\n"), [3]);
        assert_eq!(lines("crates/vfs/src/lib.rs", "fn vxfsx() {}\n"), Vec::<usize>::new());
        assert_eq!(lines("crates/btrfs/src/lib.rs", "btrfs\n"), Vec::<usize>::new());
    }

    #[test]
    fn unsafe_is_found_in_blocks_and_macros() {
        let text = "#![forbid(unsafe_code)]\nfn f() { unsafe { g() } }\nm! { unsafe }\n// unsafe\n";
        let found = |path| check_unsafe(&SourceFile::sample(path, text)).len();
        assert_eq!(found("crates/btrfs/src/lib.rs"), 2);
        assert_eq!(found("crates/codec/src/lib.rs"), 0);
        assert_eq!(found("crates/fuse/src/sys/clone.rs"), 0);
        assert_eq!(found("crates/fuse/src/lib.rs"), 2);
    }
}
