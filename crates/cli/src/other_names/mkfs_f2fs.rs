//! Rewrites the command lines of `mkfs.f2fs` and `sload.f2fs` 1.15 into those of `spinney mkfs` and `spinney put`, for
//! `rewrite` of the folder. Options that have no counterpart are refused by name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::Rewritten;
use super::words::{Known, Word, known, split};

pub(super) const MKFS_NAME: &str = "mkfs.f2fs";
pub(super) const SLOAD_NAME: &str = "sload.f2fs";
/// `mkfs.f2fs` takes a size in sectors of this many bytes.
const SECTOR_BYTES: u64 = 512;

/// The features that `-g android` stands for; systemd-repart gives it.
const ANDROID: &str = "--features=encrypt,extra_attr,project_quota,quota,verity";

/// The counterpart of an option.
#[derive(Clone, Copy)]
enum Becomes {
    /// This option, with the value if it has one.
    Option(&'static str),
    /// It changes nothing that Spinney could do otherwise.
    Nothing,
    Refused,
}

const MKFS: &[(Known, Becomes)] = &[
    (known(Some(b'l'), "", true), Becomes::Option("--label")),
    (known(Some(b'O'), "", true), Becomes::Option("--features")),
    (known(Some(b'o'), "", true), Becomes::Option("--overprovision")),
    (known(Some(b's'), "", true), Becomes::Option("--section-segments")),
    (known(Some(b'z'), "", true), Becomes::Option("--zone-sections")),
    (known(Some(b'U'), "", true), Becomes::Option("--uuid")),
    (known(Some(b'R'), "", true), Becomes::Option("--owner")),
    (known(Some(b'f'), "", false), Becomes::Option("--force")),
    (known(Some(b'q'), "", false), Becomes::Option("--quiet")),
    (known(Some(b'i'), "", false), Becomes::Option("--features=extra_attr")),
    (known(Some(b't'), "", true), Becomes::Nothing),
    (known(Some(b'd'), "", true), Becomes::Nothing),
    (known(Some(b'a'), "", true), Becomes::Refused),
    (known(Some(b'c'), "", true), Becomes::Refused),
    (known(Some(b'C'), "", true), Becomes::Refused),
    (known(Some(b'e'), "", true), Becomes::Refused),
    (known(Some(b'E'), "", true), Becomes::Refused),
    (known(Some(b'g'), "", true), Becomes::Refused),
    (known(Some(b'm'), "", false), Becomes::Refused),
    (known(Some(b'r'), "", false), Becomes::Refused),
    (known(Some(b'T'), "", true), Becomes::Refused),
    (known(Some(b'w'), "", true), Becomes::Refused),
    (known(Some(b'V'), "", false), Becomes::Nothing),
];

const SLOAD: &[(Known, Becomes)] = &[
    (known(Some(b'f'), "", true), Becomes::Nothing),
    (known(Some(b't'), "", true), Becomes::Nothing),
    (known(Some(b'd'), "", true), Becomes::Nothing),
    (known(Some(b'P'), "", false), Becomes::Nothing),
    (known(Some(b'V'), "", false), Becomes::Nothing),
];

fn version(name: &str) -> Rewritten {
    Rewritten::Text(format!("{name} of spinney {}, as f2fs-tools 1.15\n", env!("CARGO_PKG_VERSION")))
}

fn words(args: &[OsString], table: &[(Known, Becomes)]) -> Result<Vec<Word>, String> {
    let table: Vec<Known> =
        table.iter().map(|(option, _)| known(option.letter, option.long, option.has_value)).collect();
    split(args, &table)
}

/// Rewrites the words after `mkfs.f2fs`.
pub(super) fn rewrite_mkfs(args: &[OsString]) -> Rewritten {
    let words = match words(args, MKFS) {
        Ok(words) => words,
        Err(text) => return Rewritten::Wrong(text),
    };
    let mut line: Vec<OsString> =
        ["spinney", "mkfs", "-t", "f2fs", "--called-as", MKFS_NAME].map(OsString::from).to_vec();
    let mut plain = Vec::new();
    for word in words {
        let (index, value) = match word {
            Word::Plain(word) => {
                plain.push(word);
                continue;
            }
            Word::Option(index, value) => (index, value),
        };
        let Some((option, becomes)) = MKFS.get(index) else { continue };
        let letter = char::from(option.letter.unwrap_or_default());
        match becomes {
            _ if letter == 'V' => return version(MKFS_NAME),
            Becomes::Option(name) if option.has_value => {
                let mut word = OsString::from(format!("{name}="));
                word.push(value);
                line.push(word);
            }
            Becomes::Option(name) => line.push((*name).into()),
            Becomes::Refused if letter == 'g' && value == "android" => line.push(ANDROID.into()),
            // As mkfs.f2fs, which takes any other set for none: systemd-repart gives `-g -f`.
            Becomes::Refused if letter == 'g' => {}
            Becomes::Refused if letter == 'C' && value == "utf8" => line.push("--features=casefold".into()),
            // Without trimming, old blocks stay.
            Becomes::Nothing if letter == 't' && value == "0" => line.push("--nodiscard".into()),
            Becomes::Nothing => {}
            Becomes::Refused => return Rewritten::Wrong(format!("-{letter}: spinney does not have this option")),
        }
    }
    let mut plain = plain.into_iter();
    let target = plain.next();
    if let Some(sectors) = plain.next() {
        let bytes = sectors.to_str().and_then(|text| text.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES));
        match bytes {
            Some(bytes) => line.push(format!("--size={bytes}").into()),
            None => return Rewritten::Wrong(format!("expected a number of sectors, found `{}`", sectors.display())),
        }
    }
    line.push("--".into());
    line.extend(target);
    Rewritten::Words(line)
}

/// Rewrites the words after `sload.f2fs`.
pub(super) fn rewrite_sload(args: &[OsString]) -> Rewritten {
    let words = match words(args, SLOAD) {
        Ok(words) => words,
        Err(text) => return Rewritten::Wrong(text),
    };
    let (mut from, mut image) = (None, None);
    for word in words {
        match word {
            Word::Plain(word) => image = Some(word),
            Word::Option(index, value) => match SLOAD.get(index).and_then(|(option, _)| option.letter) {
                Some(b'f') => from = Some(value),
                Some(b'V') => return version(SLOAD_NAME),
                Some(b'P') => return Rewritten::Wrong("-P: spinney does not have this option".to_owned()),
                _ => {}
            },
        }
    }
    let (Some(mut from), Some(image)) = (from, image) else {
        return Rewritten::Wrong("usage: sload.f2fs -f SOURCE [-t DIRECTORY] DEVICE".to_owned());
    };
    from.push(if from.as_bytes().ends_with(b"/") { "." } else { "/." });
    let line = ["spinney", "put", "--quiet", "--force", "--"].map(OsString::from);
    // The mount point that -t names only selects owners from a table that Android has.
    Rewritten::Words(line.into_iter().chain([image, from, "/".into()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rewritten: Rewritten) -> String {
        match rewritten {
            Rewritten::Words(words) => {
                words.iter().map(|word| word.display().to_string()).collect::<Vec<_>>().join(" ")
            }
            Rewritten::Text(text) | Rewritten::Wrong(text) => text,
        }
    }

    fn args(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn calls_of_android_builders_are_understood() {
        let made = rewrite_mkfs(&args("-q -l data -O extra_attr,quota -t 0 -R 0:0 x.img 1024"));
        let expected = "spinney mkfs -t f2fs --called-as mkfs.f2fs --quiet --label=data --features=extra_attr,quota \
                        --nodiscard --owner=0:0 --size=524288 -- x.img";
        assert_eq!(line(made), expected);
        assert_eq!(line(rewrite_mkfs(&args("-C utf8:strict x"))), "-C: spinney does not have this option");
        assert!(line(rewrite_mkfs(&args("-g android x"))).contains("project_quota"));
        let loaded = line(rewrite_sload(&args("-f dir -t /data x.img")));
        assert_eq!(loaded, "spinney put --quiet --force -- x.img dir/. /");
        assert!(line(rewrite_sload(&args("x.img"))).starts_with("usage"));
    }
}
