//! Rewrites the command line of `mkfs.btrfs` 6.19 into one of `spinney mkfs`. The options are those of its manual page.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::Rewritten;
use super::words::{Known, Word, known, split};

pub(super) const NAME: &str = "mkfs.btrfs";
/// The version of btrfs-progs that is followed.
pub(crate) const PROGS_VERSION: &str = "6.19";

/// The options, and what each becomes: `None` where it is an error or means nothing here.
const OPTIONS: &[(Known, Option<&str>)] = &[
    (known(Some(b'd'), "data", true), Some("--data")),
    (known(Some(b'm'), "metadata", true), Some("--metadata")),
    (known(Some(b'M'), "mixed", false), Some("--mixed")),
    (known(None, "csum", true), Some("--csum")),
    (known(None, "checksum", true), Some("--csum")),
    (known(Some(b'n'), "nodesize", true), Some("--nodesize")),
    (known(Some(b's'), "sectorsize", true), Some("--sectorsize")),
    (known(Some(b'O'), "features", true), Some("--features")),
    (known(Some(b'R'), "runtime-features", true), Some("--features")),
    (known(Some(b'L'), "label", true), Some("--label")),
    (known(Some(b'U'), "uuid", true), Some("--uuid")),
    (known(None, "device-uuid", true), Some("--device-uuid")),
    (known(Some(b'b'), "byte-count", true), Some("--size")),
    (known(Some(b'r'), "rootdir", true), Some("--rootdir")),
    (known(Some(b'u'), "subvol", true), Some("--subvol")),
    (known(None, "inode-flags", true), Some("--inode-flags")),
    (known(None, "compress", true), Some("--compress")),
    (known(None, "reflink", false), Some("--reflink")),
    (known(None, "shrink", false), Some("--shrink")),
    (known(Some(b'K'), "nodiscard", false), Some("--nodiscard")),
    (known(Some(b'f'), "force", false), Some("--force")),
    (known(Some(b'q'), "quiet", false), Some("--quiet")),
    (known(Some(b'v'), "verbose", false), None),
    (known(Some(b'l'), "leafsize", true), None),
    (known(Some(b'V'), "version", false), None),
    (known(None, "help", false), None),
];

/// Options that may be given several times.
const REPEATED: &[&str] = &["--features", "--subvol", "--inode-flags"];

const HELP: &str = "\
usage: mkfs.btrfs [options] FILE...

    Make a btrfs file system; this is Spinney under the name mkfs.btrfs

    -d|--data PROFILE         profile of file contents: single, dup, raid0, raid1, raid1c3, raid1c4, raid10
    -m|--metadata PROFILE     profile of metadata, likewise
    -M|--mixed                keep both in the same block groups
    --csum|--checksum TYPE    crc32c, xxhash64, sha256 or blake2b
    -n|--nodesize SIZE        bytes of a tree block
    -s|--sectorsize SIZE      bytes of a data block: 4096
    -O|--features LIST        features; -O list-all shows them
    -R|--runtime-features LIST  the same
    -L|--label LABEL
    -U|--uuid UUID            UUID of the file system
    --device-uuid UUID        UUID of the device
    -b|--byte-count SIZE      bytes of the file system
    -r|--rootdir DIR          copy what is in DIR (or an archive: see `spinney mkfs --help`)
    -u|--subvol [KIND:]PATH   make PATH of DIR a subvolume: rw, ro, default, default-ro
    --inode-flags FLAGS:PATH  nodatacow, nodatasum
    --compress ALGO[:LEVEL]
    --reflink                 share data with the files of DIR, if their file system can
    --shrink                  make the image as small as possible
    -K|--nodiscard            keep allocated blocks
    -f|--force                overwrite a file system
    -q|--quiet, -v|--verbose, -V|--version, --help

Example:
  mkfs.btrfs -q --rootdir ./root --subvol default:root --shrink disk.img
";

/// Rewrites the words after the name.
pub(super) fn rewrite(args: &[OsString]) -> Rewritten {
    let table: Vec<Known> =
        OPTIONS.iter().map(|(option, _)| known(option.letter, option.long, option.has_value)).collect();
    let words = match split(args, &table) {
        Ok(words) => words,
        Err(text) => return Rewritten::Wrong(text),
    };
    let mut line: Vec<OsString> = ["spinney", "mkfs", "--called-as", NAME].map(OsString::from).to_vec();
    let mut targets = Vec::new();
    for word in words {
        match word {
            Word::Plain(target) => targets.push(target),
            Word::Option(index, value) => {
                let Some((option, becomes)) = OPTIONS.get(index) else { continue };
                match (option.long, becomes) {
                    ("help", _) => return Rewritten::Text(HELP.to_owned()),
                    ("version", _) => return Rewritten::Text(version()),
                    ("leafsize", _) => {
                        return Rewritten::Wrong("--leafsize was removed in 6.0, use --nodesize".to_owned());
                    }
                    (_, None) => {}
                    // No compression is the default.
                    ("compress", _) if value == "no" || value == "none" => {}
                    (_, Some(name)) if option.has_value => {
                        // In one word, so that a value may begin with a dash.
                        let mut word = OsString::from(format!("{name}="));
                        if !REPEATED.contains(name) {
                            // The last one counts.
                            line.retain(|earlier| !earlier.as_bytes().starts_with(word.as_bytes()));
                        }
                        word.push(value);
                        line.push(word);
                    }
                    (_, Some(name)) if line.iter().any(|word| word == name) => {}
                    (_, Some(name)) => line.push(name.into()),
                }
            }
        }
    }
    let lists_features = line.iter().any(|word| word == "--features=list-all");
    if targets.is_empty() && !lists_features {
        return Rewritten::Wrong("no file or device is given; --help shows the options".to_owned());
    }
    line.push("--".into());
    line.extend(targets);
    Rewritten::Words(line)
}

fn version() -> String {
    format!("mkfs.btrfs of spinney {}, as btrfs-progs v{PROGS_VERSION}\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match rewrite(&args) {
            Rewritten::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| word.display().to_string()).collect();
                words.join(" ")
            }
            Rewritten::Text(text) | Rewritten::Wrong(text) => text,
        }
    }

    #[test]
    fn calls_of_builders_are_understood() {
        for (line, expected) in [
            (
                "-L root -U 0-1 -r DIR --sectorsize=4096 FILE --subvol a",
                "--label=root --uuid=0-1 --rootdir=DIR --sectorsize=4096 --subvol=a -- FILE",
            ),
            ("-fqKvO ^no-holes x", "--force --quiet --nodiscard --features=^no-holes -- x"),
            ("-L a -n 16k -L b x", "--nodesize=16k --label=b -- x"),
            ("-b 1G -R quota --checksum xxhash x", "--size=1G --features=quota --csum=xxhash -- x"),
        ] {
            assert_eq!(rewritten(line), format!("spinney mkfs --called-as mkfs.btrfs {expected}"), "{line}");
        }
        assert!(rewritten("-V").contains("v6.19"));
        assert!(rewritten("--help").starts_with("usage: mkfs.btrfs"));
        assert!(rewritten("-l 4k x").starts_with("--leafsize"));
        assert!(rewritten("-d raid1 a b").ends_with("--data=raid1 -- a b"));
    }
}
