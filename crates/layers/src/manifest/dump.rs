//! Reads composefs-dump(5): eleven fields and attributes for each node. `manifest::apply` calls it.
//!
//! The digest of fs-verity and the count of links say nothing that a tree keeps; the size of a directory is ignored.

use std::io::BufRead;

use std::ffi::OsStr;
use std::path::PathBuf;

use portable::OsStrExt as _;
use vfs::file_system::NodeKind;

use super::description::{Content, Description};
use super::escape::without_hex;
use super::{ManifestOptions, Target, keyword, plain_path};
use crate::error::Result;
use crate::line::{Lines, Problem};
use crate::number;

/// Names of the fields, in their order.
const FIELDS: [&str; 11] =
    ["path", "size", "mode", "nlink", "uid", "gid", "rdev", "mtime", "payload", "content", "digest"];

/// Applies all lines to the target.
pub(super) fn apply(target: &mut Target<'_>, input: impl BufRead, options: &ManifestOptions) -> Result<()> {
    let mut lines = Lines::new(input, &options.name);
    while let Some((number, line)) = lines.next()? {
        if !line.is_empty() {
            take(target, &line).map_err(|problem| problem.at(&options.name, number))?;
        }
    }
    Ok(())
}

fn take(target: &mut Target<'_>, line: &[u8]) -> Result<(), Problem> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut next = |field: usize| {
        let name = FIELDS.get(field).copied().unwrap_or_default();
        let expected = format!("{} fields", FIELDS.len());
        words.next().filter(|word| !word.is_empty()).ok_or_else(|| Problem::told(name, expected, "none"))
    };
    let path = next(0)?;
    let (size, mode, nlink) = (next(1)?, next(2)?, next(3)?);
    let (uid, gid, rdev, mtime) = (next(4)?, next(5)?, next(6)?, next(7)?);
    let (payload, content, digest) = (next(8)?, next(9)?, next(10)?);
    let path = absolute("path", &plain("path", path)?)?;
    let payload = optional("payload", payload)?;
    let (is_link, mode) = mode.strip_prefix(b"@").map_or((false, mode), |mode| (true, mode));
    if is_link {
        let first = payload.ok_or_else(|| Problem::told("payload", "the path of a hard link's first name", "none"))?;
        return target.link(&absolute("payload", &first)?, &path);
    }
    let mode: u32 = numeral("mode", mode, 8)?;
    let kind = NodeKind::from_mode(mode).ok_or_else(|| {
        Problem::told("mode", "the mode of a known kind of file, and its permissions", format!("{mode:o}"))
    })?;
    numeral::<u32>("nlink", nlink, 10)?;
    let _ = optional("digest", digest)?;
    let mut described = Description {
        path,
        kind: Some(kind),
        permissions: Some(mode & 0o7777),
        uid: Some(numeral("uid", uid, 10)?),
        gid: Some(numeral("gid", gid, 10)?),
        rdev: Some(numeral("rdev", rdev, 10)?),
        mtime: Some(keyword::time(mtime).ok_or_else(|| Problem::new("mtime", "SECONDS.NANOSECONDS", mtime))?),
        size: Some(numeral("size", size, 10)?).filter(|_| kind.is_file()),
        ..Description::default()
    };
    match kind {
        NodeKind::Symlink => described.target = payload,
        NodeKind::File => described.content = content_of(target, payload, optional("content", content)?)?,
        _ => {}
    }
    let mut xattrs = Vec::new();
    for word in words {
        let at = word.iter().position(|byte| *byte == b'=').filter(|at| *at > 0);
        let at = at.ok_or_else(|| Problem::new("xattr", "KEY=VALUE", word))?;
        let (key, value) = (word.get(..at).unwrap_or_default(), word.get(at + 1..).unwrap_or_default());
        xattrs.push((plain("xattr", key)?, plain("xattr", value)?));
    }
    xattrs.sort_unstable();
    if xattrs.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return Err(Problem::told("xattr", "each attribute once", "one of them twice"));
    }
    described.xattrs = Some(xattrs);
    target.apply(described)
}

/// Contents in the line, or in a file below the directory of the options; a payload means nothing without that.
fn content_of(
    target: &Target<'_>,
    payload: Option<Vec<u8>>,
    content: Option<Vec<u8>>,
) -> Result<Option<Content>, Problem> {
    if let Some(bytes) = content {
        return Ok(Some(Content::Inline(bytes)));
    }
    let Some(payload) = payload.filter(|_| target.contents.is_some()) else { return Ok(None) };
    let path = PathBuf::from(OsStr::from_bytes(&payload));
    Ok(Some(Content::Host(path.strip_prefix("/").unwrap_or(&path).to_owned())))
}

fn plain(what: &str, bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    without_hex(bytes).ok_or_else(|| Problem::new(what, r"bytes with the escapes \xXY, \\, \n, \r, \t", bytes))
}

fn optional(what: &str, bytes: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
    if bytes == b"-" { Ok(None) } else { plain(what, bytes).map(Some) }
}

fn absolute(what: &str, path: &[u8]) -> Result<PathBuf, Problem> {
    if !path.starts_with(b"/") {
        return Err(Problem::new(what, "an absolute path", path));
    }
    plain_path(path)
}

fn numeral<N: TryFrom<u64>>(what: &str, bytes: &[u8], radix: u32) -> Result<N, Problem> {
    let expected = if radix == 8 { "an octal number of 32 bits" } else { "a number that fits" };
    number::parse(bytes, radix).ok_or_else(|| Problem::new(what, expected, bytes))
}
