//! Reads manifests, which describe the nodes of an image line by line, and applies them to a tree; writes one of a
//! tree.
//!
//! Forms: mtree(5), as `bsdtar --format=mtree`, `mtree -c` and the package tools of Arch Linux write it, plain or
//! compressed by gzip; and composefs-dump(5).
//!
//! Invariants
//! * A node that the tree has keeps its contents and gets the owner, mode, time, device number, target and attributes
//!   that the line states; what the line does not state stays. Its kind and its size have to be those of the line.
//! * A node that the tree does not have is added. A file that has contents needs them: inline, or in a file of the host
//!   below a directory that the options name. No path of a manifest leads out of it.
//! * A manifest has the last word on owners (see [`crate::owners`]).
//!
//! Failure: [`crate::Error::Line`] names file, line and field; a line of more than 1 MiB is one. The lines before are
//! applied then. Callers: `mkfs` and `put` of the program.

mod description;
mod dump;
mod escape;
mod keyword;
mod mtree;
mod write;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use transfer::{HostSource, Tree};

use crate::error::{Error, Result};
use crate::line::Problem;
use crate::number;

pub use write::write_composefs_dump;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Most bytes of a manifest, uncompressed: a compressed one may be small and mean endless lines.
pub const MANIFEST_BYTES_MAX: u64 = 16 << 30;

/// The form of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// mtree(5).
    Mtree,
    /// composefs-dump(5).
    ComposefsDump,
}

/// The numbers of user and group names. `root` is 0 without being told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, u32>);

impl Names {
    /// Reads a file of the form of `/etc/passwd` or `/etc/group`: `name:password:number:...`. Lines of another form are
    /// left out, as the C library does.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let entry = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b':');
            let name = String::from_utf8(fields.next()?.to_vec()).ok().filter(|name| !name.is_empty())?;
            Some((name, number::parse(fields.nth(1)?, 10)?))
        };
        Self(text.split(|byte| *byte == b'\n').filter_map(entry).collect())
    }

    fn number(&self, name: &[u8]) -> Option<u32> {
        let known = std::str::from_utf8(name).ok().and_then(|name| self.0.get(name).copied());
        known.or((name == b"root").then_some(0))
    }
}

/// How a manifest is applied.
#[derive(Debug, Clone, Default)]
pub struct ManifestOptions {
    /// Name of the manifest, for messages.
    pub name: String,
    /// Numbers of the user names in it.
    pub users: Names,
    /// Numbers of the group names in it.
    pub groups: Names,
    /// The directory of the host below which files lie that `contents=` of mtree, or the payload field of a
    /// composefs dump, names. Without it, `contents=` is refused and a payload is ignored, so that a file with contents
    /// has to be in the tree.
    pub contents_below: Option<PathBuf>,
}

/// The effect of a manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Names that were added.
    pub added: u64,
    /// Names that were there; their nodes were changed.
    pub changed: u64,
    /// Lines of optional nodes that are not in the tree and could not be added.
    pub skipped: u64,
}

/// The tree that lines are applied to, and where contents come from.
struct Target<'a> {
    tree: &'a mut Tree,
    contents: Option<Arc<HostSource>>,
    applied: Applied,
}

/// Applies a manifest to a tree.
///
/// # Errors
/// [`Error::Line`]; those of reading, and of opening [`ManifestOptions::contents_below`].
pub fn apply(tree: &mut Tree, input: impl Read, form: Form, options: &ManifestOptions) -> Result<Applied> {
    tree.begin_source(options.name.as_str());
    let contents = options.contents_below.as_deref().map(HostSource::open).transpose()?.map(Arc::new);
    let mut target = Target { tree, contents, applied: Applied::default() };
    let mut input = BufReader::new(input);
    let is_gzip = input.fill_buf().map_err(Error::host(&options.name))?.starts_with(&GZIP_MAGIC);
    let plain: Box<dyn Read + '_> = if is_gzip { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) };
    let limited = BufReader::new(Limited { input: plain, left: MANIFEST_BYTES_MAX });
    match form {
        Form::Mtree => mtree::apply(&mut target, limited, options)?,
        Form::ComposefsDump => dump::apply(&mut target, limited, options)?,
    }
    Ok(target.applied)
}

/// Fails, rather than ends, at a limit.
struct Limited<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let left = self.left.checked_sub(number::to_u64(count));
        self.left = left.ok_or_else(|| io::Error::other(format!("more than {MANIFEST_BYTES_MAX} bytes")))?;
        Ok(count)
    }
}

/// Longest name, in bytes, as Linux has it.
const NAME_BYTES_MAX: usize = 255;

/// A path of a manifest below the root of the tree: names only, so that none can lead elsewhere than it says.
fn plain_path(path: &[u8]) -> Result<PathBuf, Problem> {
    use portable::OsStrExt as _;
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let mut plain = PathBuf::new();
    for name in names {
        if name == b".." || name.contains(&0) {
            return Err(Problem::new("path", "names without `..` and without zero bytes", path));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Problem::new("path", format!("names of at most {NAME_BYTES_MAX} bytes"), name));
        }
        plain.push(std::ffi::OsStr::from_bytes(name));
    }
    Ok(plain)
}

/// A path as a message shows it.
fn shown_path(path: &Path) -> String {
    format!("`/{}`", path.display().to_string().escape_debug())
}
