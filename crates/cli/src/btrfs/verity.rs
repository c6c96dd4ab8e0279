//! Protects files of a new file system by fs-verity: the options of `mkfs` for that, and their patterns. Called by
//! `btrfs::mkfs` when the contents are copied.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use spinney::btrfs::{TreeOptions, VerityAlgorithm, Volume};
use spinney::vfs::Volume as Files;

use crate::commands::failure::Failure;

/// The options.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct Verity {
    /// Protect the files of the contents whose paths match GLOB by fs-verity, as `fsverity enable` does: they cannot be
    /// written any more. * and ? match within a name, ** also matches slashes. May be given several times
    #[arg(id = "verity", long = "verity", value_name = "GLOB", requires = "rootdir")]
    globs: Vec<OsString>,
    /// Hash function of fs-verity: sha256 or sha512
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = algorithm, requires = "verity")]
    verity_hash_alg: VerityAlgorithm,
    /// Salt of fs-verity, up to 32 bytes in hexadecimal
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true, value_parser = salt)]
    #[arg(requires = "verity")]
    verity_salt: Salt,
}

/// Bytes that are hashed before each block.
#[derive(Debug, Clone)]
struct Salt(Vec<u8>);

fn algorithm(name: &str) -> Result<VerityAlgorithm, String> {
    VerityAlgorithm::from_name(name).ok_or_else(|| format!("`{name}` is no hash; there are sha256 and sha512"))
}

fn salt(text: &str) -> Result<Salt, String> {
    let wrong = || format!("expected up to 32 bytes in hexadecimal, found `{text}`");
    let digits = text.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok()));
    let digits =
        digits.collect::<Option<Vec<u8>>>().filter(|digits| digits.len().is_multiple_of(2) && digits.len() <= 64);
    let pairs = digits.ok_or_else(wrong)?;
    Ok(Salt(pairs.chunks(2).map(|pair| pair.iter().fold(0, |byte: u8, digit| (byte << 4) | digit)).collect()))
}

impl Verity {
    /// True if files are to be protected.
    pub(super) fn is_given(&self) -> bool {
        !self.globs.is_empty()
    }

    /// Protects the files that match, in the order of their paths: it decides where their trees lie.
    ///
    /// # Errors
    /// `Usage` for a pattern that matches no file; those of the volume.
    pub(super) fn apply(&self, volume: &Volume) -> Result<()> {
        if !self.is_given() {
            return Ok(());
        }
        // Data lies where it would without fs-verity.
        volume.by_paths().sync()?;
        let options = TreeOptions { algorithm: self.verity_hash_alg, salt: self.verity_salt.0.clone() };
        let patterns: Vec<&[u8]> = self.globs.iter().map(|glob| plain(glob.as_bytes())).collect();
        let (mut done, mut used) = (BTreeSet::new(), BTreeSet::new());
        for path in files(volume.by_paths())? {
            let name = plain(path.as_os_str().as_bytes());
            let matching: Vec<usize> =
                patterns.iter().enumerate().filter(|(_, glob)| matches(glob, name)).map(|(number, _)| number).collect();
            if matching.is_empty() {
                continue;
            }
            used.extend(matching);
            let home = volume.by_paths().symlink_metadata(&path)?.home;
            // A file with several names is protected once.
            if done.insert((home.subvolume, home.ino)) {
                volume.enable_verity(&path, &options)?;
            }
        }
        match self.globs.iter().enumerate().find(|(number, _)| !used.contains(number)) {
            Some((_, glob)) => {
                let text = format!("--verity: no file of the contents matches `{}`", glob.display());
                Err(Failure::usage(text).into())
            }
            None => Ok(()),
        }
    }
}

/// The pattern or path from the first name on.
fn plain(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    path.get(start..).unwrap_or_default()
}

/// All regular files of a new file system, in the order of their paths.
pub(super) fn files(volume: &Files) -> Result<Vec<PathBuf>> {
    let (mut found, mut dirs) = (Vec::new(), vec![PathBuf::from("/")]);
    while let Some(dir) = dirs.pop() {
        for entry in volume.read_dir(&dir)? {
            let entry = entry?;
            let path = dir.join(Path::new(entry.file_name()));
            match entry.file_type() {
                kind if kind.is_dir() => dirs.push(path),
                kind if kind.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// True if `name` matches `glob`: `?` is a byte and `*` are bytes within a name, `**` are any bytes. The time is at
/// most the product of the lengths.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    // Whether the pattern so far matches, for the name's first 0, 1, .. bytes.
    let mut so_far: Vec<bool> = (0..=name.len()).map(|len| len == 0).collect();
    let mut rest = glob;
    while let Some((wanted, behind)) = rest.split_first() {
        let crosses = rest.starts_with(b"**");
        rest = if crosses { behind.get(1..).unwrap_or_default() } else { behind };
        let mut next = vec![*wanted == b'*' && so_far.first() == Some(&true)];
        for ((byte, shorter), same) in name.iter().zip(&so_far).zip(so_far.iter().skip(1)) {
            next.push(match wanted {
                b'*' => *same || (next.last() == Some(&true) && (crosses || *byte != b'/')),
                b'?' => *shorter && *byte != b'/',
                wanted => *shorter && byte == wanted,
            });
        }
        so_far = next;
    }
    so_far.last() == Some(&true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_names_and_two_cross_them() {
        for (glob, name, expected) in [
            ("usr/bin/*", "usr/bin/tool", true),
            ("usr/bin/*", "usr/bin/a/tool", false),
            ("usr/**", "usr/bin/a/tool", true),
            ("**.so", "usr/lib/libx.so", true),
            ("**/*.so", "lib/x.so", true),
            ("**/*.so", "x.so", false),
            ("*.so", "lib/x.so", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("***", "a/b", true),
        ] {
            assert_eq!(matches(glob.as_bytes(), name.as_bytes()), expected, "{glob} {name}");
        }
        assert!(!matches(&b"*a".repeat(200), &b"a".repeat(150)));
        assert_eq!((plain(b"//a/b"), plain(b"")), (&b"a/b"[..], &b""[..]));
    }

    #[test]
    fn salts_are_hexadecimal() {
        assert_eq!(salt("01fF").unwrap().0, [1, 0xff]);
        assert_eq!(salt("").unwrap().0, [0; 0]);
        assert!(salt(&"00".repeat(32)).is_ok());
        for wrong in ["0", "0g", &"00".repeat(33), "é"] {
            assert!(salt(wrong).is_err(), "{wrong}");
        }
    }
}
