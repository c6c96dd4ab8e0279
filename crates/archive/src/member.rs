//! Defines a member of an archive, and puts it into a tree. Readers of both formats make them; programs that lay
//! several archives on top of each other interpret them before.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use portable::OsStringExt as _;
use transfer::{NODE_COUNT_MAX, NewNode, Stored, Tree};

use crate::bytes::number;
use crate::error::{Error, Place, Result, shown};

/// Longest path of a member or of a link's target, in bytes (`PATH_MAX`).
pub(crate) const PATH_BYTES_MAX: u64 = 4096;
/// Most bytes of names, attributes and places of contents in one archive: they stay in memory.
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// A member of an archive.
#[derive(Debug)]
pub struct Member {
    /// Its path as the archive names it. It may begin with a slash or `./`, end with a slash, and have `..` parts:
    /// [`Tree`] roots all of them. Whoever uses it elsewhere has to do the same.
    pub path: PathBuf,
    /// A node or a link.
    pub kind: MemberKind,
    /// Contents that a hard link carries, which the file has from then on. Most archives have them at the first name
    /// only, so that this is `None`.
    pub link_contents: Option<LinkContents>,
}

/// The kinds of members.
#[derive(Debug)]
pub enum MemberKind {
    /// A file, directory or anything else with attributes of its own.
    Node(NewNode),
    /// One more name of the file at this path.
    HardLink(PathBuf),
}

/// Contents of a hard link.
pub struct LinkContents {
    /// Bytes.
    pub size: u64,
    /// Where they are.
    pub contents: Arc<dyn Stored>,
}

impl std::fmt::Debug for LinkContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkContents").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Member {
    /// Puts the member into a tree: what has its path is replaced, a directory over a directory keeps its names.
    ///
    /// # Errors
    /// Those of [`Tree::put`] and [`Tree::link`].
    pub fn put_into(self, tree: &mut Tree) -> Result<()> {
        match self.kind {
            MemberKind::Node(node) => {
                tree.put(&self.path, node)?;
            }
            MemberKind::HardLink(first) => {
                tree.link(&first, &self.path)?;
                let found = tree.find(&self.path)?;
                if let Some((number, LinkContents { size, contents })) = found.zip(self.link_contents) {
                    tree.edit(number, |node| {
                        node.attr.size = size;
                        node.contents = Some(contents);
                    });
                }
            }
        }
        Ok(())
    }
}

/// Counts what a reader has made so far, against its limits.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    members: usize,
    bytes: u64,
}

impl Tally {
    /// Counts a member that keeps about `bytes` in memory.
    pub(crate) fn count(&mut self, bytes: u64, place: &Place) -> Result<()> {
        self.members = self.members.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.members > NODE_COUNT_MAX {
            return Err(place.unsupported(format!("more than {NODE_COUNT_MAX} members")));
        }
        if self.bytes > KEPT_BYTES_MAX { Err(Error::TooManyNames { max: KEPT_BYTES_MAX }) } else { Ok(()) }
    }
}

/// Refuses a path that Linux would refuse.
pub(crate) fn check_path(path: &[u8], field: &'static str, place: &Place) -> Result<()> {
    if number(path.len()) > PATH_BYTES_MAX {
        return Err(place.field(field, "at most 4096 bytes", format!("{} bytes", path.len())));
    }
    let is_path = !path.is_empty() && !path.contains(&0);
    if is_path { Ok(()) } else { Err(place.field(field, "a path", shown(path))) }
}

/// A path of any bytes.
pub(crate) fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
