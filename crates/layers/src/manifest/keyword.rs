//! The keywords of mtree: which are read, and which are known but say nothing that an image keeps. `mtree` calls it.
//!
//! Not kept: digests (`cksum`, `md5`, `sha256` and the like) and sizes of hard links (`nlink`), since the tree's
//! contents are what they are; flags of BSD (`flags`), inode and device numbers of the place where the manifest was
//! made (`inode`, `resdevice`), `tags`; and what only a comparison heeds: `ignore`, `nochange`.

use std::ffi::OsStr;
use std::path::PathBuf;

use archive::device_number as joined_device;
use portable::OsStrExt as _;
use vfs::file_system::{NodeKind, Time};

use super::ManifestOptions;
use super::description::{Content, Description};
use super::escape::{from_base64, without_vis};
use crate::line::Problem;
use crate::number;

/// Keywords that are read over.
const IGNORED: &[&str] = &[
    "cksum",
    "flags",
    "ignore",
    "inode",
    "md5",
    "md5digest",
    "nlink",
    "nochange",
    "resdevice",
    "ripemd160digest",
    "rmd160",
    "rmd160digest",
    "sha1",
    "sha1digest",
    "sha256",
    "sha256digest",
    "sha384",
    "sha384digest",
    "sha512",
    "sha512256",
    "sha512256digest",
    "sha512digest",
    "tags",
];
/// Begins the keywords of extended attributes, whose values are base64 (as go-mtree writes them).
const XATTR: &[u8] = b"xattr.";

/// Adds what `word` says, a keyword with or without a value, to `line`.
pub(super) fn read(word: &[u8], line: &mut Description, options: &ManifestOptions) -> Result<(), Problem> {
    let (name, value) = match word.iter().position(|byte| *byte == b'=') {
        Some(at) => (word.get(..at).unwrap_or_default(), word.get(at + 1..)),
        None => (word, None),
    };
    let shown = String::from_utf8_lossy(name).escape_debug().to_string();
    if name == b"optional" {
        line.is_optional = true;
        return Ok(());
    }
    if IGNORED.iter().any(|ignored| ignored.as_bytes() == name) {
        return Ok(());
    }
    let wrong = |expected: &str| Problem::new(shown.clone(), expected, value.unwrap_or_default());
    let given = value.ok_or_else(|| wrong("a value"))?;
    let id = |what: &str| number::parse::<u32>(given, 10).filter(|id| *id != u32::MAX).ok_or_else(|| wrong(what));
    match name {
        b"type" => line.kind = Some(kind(given).ok_or_else(|| wrong(TYPES))?),
        b"mode" => {
            let mode = number::parse::<u32>(given, 8).map(|mode| mode & !NodeKind::MODE_MASK);
            line.permissions = Some(mode.filter(|mode| *mode <= 0o7777).ok_or_else(|| wrong("an octal mode"))?);
        }
        b"uid" => line.uid = Some(id("a user id below 4294967295")?),
        b"gid" => line.gid = Some(id("a group id below 4294967295")?),
        // A number has the last word, wherever it stands in the line.
        b"uname" | b"gname" => {}
        b"time" | b"tar_time" => line.mtime = Some(time(given).ok_or_else(|| wrong("SECONDS.NANOSECONDS"))?),
        b"size" => line.size = Some(number::parse(given, 10).ok_or_else(|| wrong("a count of bytes"))?),
        b"link" => line.target = Some(without_vis(given).ok_or_else(|| wrong(ESCAPES))?),
        b"device" | b"rdev" => line.rdev = Some(device_number(given).ok_or_else(|| wrong(DEVICES))?),
        b"contents" | b"content" => {
            let path = without_vis(given).ok_or_else(|| wrong(ESCAPES))?;
            let path = PathBuf::from(OsStr::from_bytes(&path));
            line.content = Some(Content::Host(path.strip_prefix("/").unwrap_or(&path).to_owned()));
        }
        name if name.starts_with(XATTR) => {
            let name = name.get(XATTR.len()..).and_then(without_vis).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| Problem::new("xattr", "`xattr.` and a name", word))?;
            let value = from_base64(given).ok_or_else(|| wrong("base64"))?;
            line.xattrs.get_or_insert_default().push((name, value));
        }
        _ => return Err(Problem::new("keyword", "a keyword of mtree(5)", name)),
    }
    let _ = options;
    Ok(())
}

const TYPES: &str = "one of block, char, dir, fifo, file, link, socket";
const ESCAPES: &str = "bytes with the escapes of vis(3)";
const DEVICES: &str = "a number, or native or linux, MAJOR and MINOR";

/// Resolves the names of owners where a line has no number. `words` are those that count, later ones more.
pub(super) fn resolve_names(words: &[&[u8]], line: &mut Description, options: &ManifestOptions) -> Result<(), Problem> {
    let named = |keyword: &[u8]| words.iter().rev().find_map(|word| word.strip_prefix(keyword));
    let resolve = |what: &str, names: &super::Names, value: &[u8]| {
        let name = without_vis(value).ok_or_else(|| Problem::new(what, ESCAPES, value))?;
        let number = names.number(&name).or_else(|| number::parse(&name, 10));
        number.ok_or_else(|| Problem::new(what, "a name that the given names contain, or a number", &name))
    };
    if let (None, Some(value)) = (line.uid, named(b"uname=")) {
        line.uid = Some(resolve("uname", &options.users, value)?);
    }
    if let (None, Some(value)) = (line.gid, named(b"gname=")) {
        line.gid = Some(resolve("gname", &options.groups, value)?);
    }
    Ok(())
}

fn kind(name: &[u8]) -> Option<NodeKind> {
    Some(match name {
        b"block" => NodeKind::BlockDevice,
        b"char" => NodeKind::CharDevice,
        b"dir" => NodeKind::Directory,
        b"fifo" => NodeKind::Fifo,
        b"file" => NodeKind::File,
        b"link" => NodeKind::Symlink,
        b"socket" => NodeKind::Socket,
        _ => return None,
    })
}

/// Seconds, and after a point the count of nanoseconds: `1.5` is five nanoseconds after one second, as libarchive and
/// composefs have it; those who write all nine digits mean the same.
pub(super) fn time(text: &[u8]) -> Option<Time> {
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let (seconds, fraction) = (parts.next()?, parts.next().unwrap_or(b"0"));
    let sec = match seconds.strip_prefix(b"-") {
        Some(digits) => number::parse::<i64>(digits, 10)?.checked_neg()?,
        None => number::parse(seconds, 10)?,
    };
    let nsec = number::parse::<u32>(fraction, 10).filter(|nsec| *nsec < 1_000_000_000)?;
    Some(Time::new(sec, nsec))
}

fn device_number(text: &[u8]) -> Option<u32> {
    let mut parts = text.split(|byte| *byte == b',');
    let first = parts.next()?;
    let number = |digits: &[u8]| match digits.strip_prefix(b"0x") {
        Some(hex) => number::parse::<u32>(hex, 16),
        None => number::parse(digits, 10),
    };
    let parts = (parts.next(), parts.next(), parts.next());
    match (first, parts) {
        (b"native" | b"linux", (Some(major), Some(minor), None)) => joined_device(number(major)?, number(minor)?),
        (single, (None, None, None)) => number(single),
        _ => None,
    }
}
