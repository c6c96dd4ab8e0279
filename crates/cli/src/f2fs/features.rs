//! Parses the list of features of `mkfs -t f2fs -O`, by the names that mkfs.f2fs gives them, and prints the list of
//! known ones. Called by `mkfs` of f2fs.

use std::io::Write as _;

use anyhow::Result;
use spinney::f2fs::{CAN_HAVE, Features};

use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;

const ABOUT: &[(Features, &str)] = &[
    (Features::ENCRYPT, "files may be encrypted"),
    (Features::EXTRA_ATTR, "inodes have space for the fields of the other features"),
    (Features::PRJQUOTA, "inodes have project numbers; needs extra_attr"),
    (Features::INODE_CHKSUM, "inodes have checksums; needs extra_attr"),
    (Features::FLEXIBLE_INLINE_XATTR, "inodes say how much room attributes have; needs extra_attr"),
    (Features::QUOTA_INO, "quotas in hidden files"),
    (Features::INODE_CRTIME, "inodes have a time of creation; needs extra_attr"),
    (Features::LOST_FOUND, "a directory lost+found"),
    (Features::VERITY, "files may be sealed by fs-verity"),
    (Features::SB_CHKSUM, "the superblock has a checksum"),
    (Features::CASEFOLD, "directories may ignore the case of names"),
    (Features::COMPRESSION, "files may be compressed; needs extra_attr"),
    (Features::RO, "nothing ever changes"),
];

/// The features of a list such as `extra_attr,inode_checksum`.
///
/// # Errors
/// Unknown names, and features that a new volume cannot have.
pub(super) fn parse(list: &[String]) -> Result<Features> {
    let mut features = Features::empty();
    for word in list.iter().flat_map(|words| words.split(',')).filter(|word| !word.is_empty()) {
        let (name, is_on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let Some(feature) = Features::named(name) else {
            let text = format!("-O {name}: no such feature; `-t f2fs -O list-all` shows them");
            return Err(Failure::usage(text).into());
        };
        if is_on && !CAN_HAVE.contains(feature) {
            let text = format!("-O {name}: not supported");
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        features.set(feature, is_on);
    }
    Ok(features)
}

/// True if the list asks for the known features.
pub(super) fn asks_for_list(list: &[String]) -> bool {
    list.iter().any(|word| word == "list-all")
}

/// Writes the table of features.
pub(super) fn print_list(out: &mut Output) -> Result<()> {
    for (feature, about) in ABOUT {
        let state = if CAN_HAVE.contains(*feature) { "" } else { " (not supported)" };
        writeln!(out, "{:<21} {about}{state}", feature.names().concat())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Result<Features> {
        parse(&[list.to_owned()])
    }

    #[test]
    fn features_are_known_by_name() {
        assert_eq!(parsed("extra_attr,inode_checksum,^extra_attr").unwrap(), Features::INODE_CHKSUM);
        assert_eq!(parsed("").unwrap(), Features::empty());
        assert!(parsed("nonsense").unwrap_err().to_string().contains("no such feature"));
        assert!(parsed("ro").unwrap_err().to_string().contains("not supported"));
        for (feature, _) in ABOUT {
            assert_eq!(Features::named(&feature.names().concat()), Some(*feature));
        }
    }
}
