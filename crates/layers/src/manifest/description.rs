//! Applies one line of a manifest to a tree. The parsers of both forms make descriptions and call it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use transfer::{NewNode, NodeNumber, Stored, plain_metadata};
use vfs::file_system::{NodeKind, Time, Xattrs};

use super::{Target, shown_path};
use crate::content::{Bytes, HostFile, kind_name};
use crate::line::Problem;
use crate::number::to_u64;

/// Most bytes of the target of a symbolic link, as Linux has it.
const TARGET_BYTES_MAX: usize = 4095;

/// Where a line says that the contents of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// In the line.
    Inline(Vec<u8>),
    /// In a file of the host, below the directory of the options.
    Host(PathBuf),
}

/// One node as a line describes it. Parts that the line does not state are `None`.
#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) path: PathBuf,
    pub(super) kind: Option<NodeKind>,
    pub(super) permissions: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
    pub(super) rdev: Option<u32>,
    pub(super) target: Option<Vec<u8>>,
    /// Bytes; means nothing except for a file.
    pub(super) size: Option<u64>,
    pub(super) xattrs: Option<Xattrs>,
    pub(super) content: Option<Content>,
    /// May be missing from the tree.
    pub(super) is_optional: bool,
}

/// Contents that were found, and their size in bytes.
type Contents = (Arc<dyn Stored>, u64);

impl Target<'_> {
    /// Applies a description: changes the node, or adds it.
    pub(super) fn apply(&mut self, line: Description) -> Result<(), Problem> {
        if line.target.as_ref().is_some_and(|target| target.is_empty() || target.len() > TARGET_BYTES_MAX) {
            let expected = format!("1 to {TARGET_BYTES_MAX} bytes");
            return Err(Problem::told("link", expected, line.target.map_or(0, |target| target.len()).to_string()));
        }
        match self.tree.find(&line.path)? {
            Some(number) => self.change(number, line),
            None => self.add(line),
        }
    }

    /// Makes `path` a second name of the node at `first`.
    pub(super) fn link(&mut self, first: &Path, path: &Path) -> Result<(), Problem> {
        let is_there = self.tree.find(path)?.is_some();
        self.tree.link(first, path)?;
        self.count(is_there);
        Ok(())
    }

    fn change(&mut self, number: NodeNumber, line: Description) -> Result<(), Problem> {
        let found = self.tree.node(number).attr;
        if let Some(kind) = line.kind.filter(|kind| *kind != found.kind) {
            return Err(Problem::told(
                "type",
                format!("{}, as {} is", kind_name(found.kind), shown_path(&line.path)),
                kind_name(kind),
            ));
        }
        check_fits(found.kind, &line)?;
        let is_inline = matches!(line.content, Some(Content::Inline(_)));
        // A file of the tree keeps its contents, but a manifest that states contents means those.
        let contents =
            if is_inline || (found.is_file() && self.contents.is_some()) { self.contents_of(&line)? } else { None };
        let size = contents.as_ref().map_or(found.size, |(_, size)| *size);
        if let Some(expected) = line.size.filter(|expected| found.is_file() && *expected != size) {
            let what = format!("{size}, the size of {}", shown_path(&line.path));
            return Err(Problem::told("size", what, expected.to_string()));
        }
        self.tree.edit(number, |node| {
            let Description { permissions, uid, gid, mtime, rdev, target, xattrs, .. } = line;
            let attr = &mut node.attr;
            attr.permissions = permissions.unwrap_or(attr.permissions);
            attr.uid = uid.unwrap_or(attr.uid);
            attr.gid = gid.unwrap_or(attr.gid);
            attr.mtime = mtime.unwrap_or(attr.mtime);
            attr.rdev = rdev.filter(|_| is_device(attr.kind)).unwrap_or(attr.rdev);
            attr.size = size;
            if let Some(target) = target {
                attr.size = to_u64(target.len());
                node.target = Some(target);
            }
            if let Some(xattrs) = xattrs {
                node.xattrs = xattrs;
            }
            if let Some((contents, _)) = contents {
                node.contents = Some(contents);
            }
        });
        self.count(true);
        Ok(())
    }

    fn add(&mut self, line: Description) -> Result<(), Problem> {
        let Some(kind) = line.kind else {
            if line.is_optional {
                self.applied.skipped = self.applied.skipped.saturating_add(1);
                return Ok(());
            }
            let found = format!("none, and {} is not in the tree", shown_path(&line.path));
            return Err(Problem::told("type", "the type of a new node", found));
        };
        check_fits(kind, &line)?;
        let contents = if kind.is_file() { self.contents_of(&line)? } else { None };
        let mut size = contents.as_ref().map_or(0, |(_, size)| *size);
        if let Some(expected) = line.size.filter(|expected| kind.is_file() && *expected != size) {
            if line.is_optional && contents.is_none() {
                self.applied.skipped = self.applied.skipped.saturating_add(1);
                return Ok(());
            }
            let found = match contents {
                Some(_) => format!("contents of {size} bytes"),
                None => "a new file without contents".into(),
            };
            return Err(Problem::told("size", format!("contents of {expected} bytes"), found));
        }
        if kind == NodeKind::Symlink {
            let Some(target) = &line.target else {
                return Err(Problem::told("link", "the target of a new symbolic link", "none"));
            };
            size = to_u64(target.len());
        }
        if is_device(kind) && line.rdev.is_none() {
            return Err(Problem::told("device", "the number of a new device node", "none"));
        }
        let permissions = line.permissions.unwrap_or(match kind {
            NodeKind::Directory => 0o755,
            NodeKind::Symlink => 0o777,
            _ => 0o644,
        });
        let mut attr = plain_metadata(kind, permissions, line.mtime.unwrap_or_default());
        (attr.uid, attr.gid) = (line.uid.unwrap_or(0), line.gid.unwrap_or(0));
        attr.rdev = line.rdev.filter(|_| is_device(kind)).unwrap_or(0);
        attr.size = size;
        let contents = contents.filter(|(_, size)| *size > 0).map(|(contents, _)| contents);
        let node = NewNode { attr, target: line.target, xattrs: line.xattrs.unwrap_or_default(), contents };
        self.tree.put(&line.path, node)?;
        self.count(false);
        Ok(())
    }

    fn contents_of(&self, line: &Description) -> Result<Option<Contents>, Problem> {
        match (&line.content, &self.contents) {
            (None, _) => Ok(None),
            (Some(Content::Inline(bytes)), _) => {
                Ok(Some((Arc::new(Bytes(bytes.as_slice().into())), to_u64(bytes.len()))))
            }
            (Some(Content::Host(path)), None) => Err(Problem::told(
                "contents",
                "no contents outside the tree, since no directory was given for them",
                shown_path(path),
            )),
            (Some(Content::Host(path)), Some(source)) => {
                let found = HostFile::find(source, path);
                let (file, size) = found.map_err(|error| {
                    Problem::told("contents", "a file of the host that can be read", error.to_string())
                })?;
                Ok(Some((Arc::new(file), size)))
            }
        }
    }

    fn count(&mut self, is_there: bool) {
        let counted = if is_there { &mut self.applied.changed } else { &mut self.applied.added };
        *counted = counted.saturating_add(1);
    }
}

/// Refuses parts that a kind of node cannot have.
fn check_fits(kind: NodeKind, line: &Description) -> Result<(), Problem> {
    if line.target.is_some() && kind != NodeKind::Symlink {
        return Err(Problem::told("link", format!("no target, since this is {}", kind_name(kind)), "one"));
    }
    if line.content.is_some() && kind != NodeKind::File {
        return Err(Problem::told("contents", format!("none, since this is {}", kind_name(kind)), "some"));
    }
    Ok(())
}

const fn is_device(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice)
}
