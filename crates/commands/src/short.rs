//! The short way to name what is mounted: paths as any program takes them, instead of a mount and paths in it.
//!
//! `spinney rm /mnt/site/old` becomes `spinney rm /mnt/site /old`; `put` and `get` have one side on this machine. Where
//! the words can mean an image and paths in it, they do.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Command;

use crate::mounts::{self, Row};

/// Which of the words that are no options are paths of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sides {
    All,
    /// All but the last.
    From,
    /// The last.
    To,
}

/// The commands that take paths of a mount.
const COMMANDS: &[(&str, Sides)] = &[
    ("cat", Sides::All),
    ("cp", Sides::All),
    ("get", Sides::From),
    ("ls", Sides::All),
    ("mkdir", Sides::All),
    ("mv", Sides::All),
    ("put", Sides::To),
    ("rm", Sides::All),
    ("stat", Sides::All),
    ("tree", Sides::All),
];

/// The words of a command line in their long form. `program` tells which options take a value.
#[must_use]
pub fn lengthen(words: Vec<OsString>, program: impl FnOnce() -> Command) -> Vec<OsString> {
    lengthened(&words, program).unwrap_or(words)
}

fn lengthened(words: &[OsString], program: impl FnOnce() -> Command) -> Option<Vec<OsString>> {
    let name = words.get(1)?;
    let (_, sides) = COMMANDS.iter().find(|(command, _)| name == command)?;
    let program = program();
    let places = positions(words, program.find_subcommand(name)?);
    let plain: Vec<&OsStr> = places.iter().filter_map(|at| words.get(*at)).map(OsString::as_os_str).collect();
    let (first, last) = (plain.first()?, plain.last()?);
    let (from, to) = match sides {
        Sides::All => (0, plain.len()),
        Sides::From => (0, plain.len().checked_sub(1)?),
        Sides::To => (plain.len().checked_sub(1)?, plain.len()),
    };
    let root = match sides {
        Sides::To => mount_of(Path::new(last))?,
        _ => mount_of(Path::new(first))?,
    };
    // A directory of a mount, and what is in it.
    let has_image = match sides {
        Sides::All => plain.len() == 1 && Path::new(first).is_dir() && (name == "ls" || name == "tree"),
        Sides::From => plain.len() < 2,
        Sides::To => plain.len() < 2 || (plain.len() > 2 && is_image(Path::new(first))),
    };
    if has_image {
        return None;
    }
    let inner: Option<Vec<PathBuf>> = plain.get(from..to)?.iter().map(|path| inside(&root, Path::new(path))).collect();
    let mut long = words.to_vec();
    for (at, path) in places.get(from..to)?.iter().zip(inner?) {
        *long.get_mut(*at)? = path.into_os_string();
    }
    long.insert(*places.first()?, root.dir.into_os_string());
    Some(long)
}

/// Where the words are that are neither options nor their values.
fn positions(words: &[OsString], command: &Command) -> Vec<usize> {
    let takes_value = |word: &OsStr| {
        let word = word.to_string_lossy();
        let found = command.get_arguments().find(|argument| match word.strip_prefix("--") {
            Some(long) => argument.get_long() == Some(long),
            // Of short ones that stand together, only the last takes a value.
            None => argument.get_short().is_some_and(|short| word.ends_with(short)),
        });
        found.is_some_and(|argument| argument.get_action().takes_values())
    };
    let (mut places, mut at, mut has_ended) = (Vec::new(), 2, false);
    while let Some(word) = words.get(at) {
        let bytes = word.as_bytes();
        match bytes {
            b"--" if !has_ended => has_ended = true,
            [b'-', _, ..] if !has_ended => at += usize::from(!bytes.contains(&b'=') && takes_value(word)),
            _ => places.push(at),
        }
        at += 1;
    }
    places
}

/// A path without links, but for its last part. What does not exist yet is taken as it is.
fn real(path: &Path) -> Option<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    if let Some(contents) = bytes.strip_suffix(b"/.").filter(|rest| !rest.is_empty()) {
        return Path::new(OsStr::from_bytes(contents)).canonicalize().ok();
    }
    let Some(name) = path.file_name() else { return path.canonicalize().ok() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().ok().or_else(|| real(parent))?;
    Some(parent.join(name))
}

/// The mount of ours that a path is in.
fn mount_of(path: &Path) -> Option<Row> {
    let path = real(path)?;
    let there =
        path.ancestors().find_map(|above| std::fs::symlink_metadata(above).ok().filter(std::fs::Metadata::is_dir));
    let row = mounts::of(&there?).ok()??;
    // Of several places where it is mounted, the one that the path leads through.
    mounts::alike(&row)
        .ok()?
        .into_iter()
        .filter(|row| path.starts_with(&row.dir))
        .max_by_key(|row| row.dir.as_os_str().len())
}

/// The path in a mount.
fn inside(root: &Row, path: &Path) -> Option<PathBuf> {
    if mount_of(path)?.dir != root.dir {
        return None;
    }
    let path = real(path)?;
    // With its end, which `Path` leaves out.
    let end = if path.as_os_str().as_bytes().ends_with(b"/.") { "/." } else { "" };
    let mut inner = Path::new("/").join(path.strip_prefix(&root.dir).ok()?).into_os_string();
    if !end.is_empty() {
        inner.push(end);
    }
    Some(inner.into())
}

/// True for what an image can be: a file, a device, or a directory of a mount.
fn is_image(path: &Path) -> bool {
    let part = crate::image::ImagePath::parse(path);
    let Ok(found) = std::fs::metadata(&part.path) else { return false };
    if found.is_dir() {
        return mounts::of(&found).is_ok_and(|row| row.is_some());
    }
    let known = crate::format::recognise(&part.path, part.offset);
    known.is_ok_and(|name| crate::format::known().iter().any(|format| Some(format.name) == name))
}
