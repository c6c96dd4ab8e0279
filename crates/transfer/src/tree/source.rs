//! Implements a source over a `Tree`. `mkfs` and `put` of the program copy from it.

use std::path::{Path, PathBuf};

use vfs::Metadata;
use vfs::file_system::{KnownNode, Xattrs};

use super::{NodeNumber, Stored, Tree, refused};
use crate::contents::{Contents, copy_data};
use crate::error::{Error, Result};
use crate::source::{Found, Name, Source};

/// Files up to this size without holes are made with their contents in one call; larger ones are copied in pieces of
/// this size.
const PIECE_BYTES: usize = 1 << 20;

/// The contents of a file of a tree, opened.
#[derive(Default)]
pub struct TreeContents(Option<Box<dyn Contents + Send + Sync>>);

impl Contents for TreeContents {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        self.0.as_ref().map_or(Ok(None), |contents| contents.next_data(at, size))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        self.0.as_ref().map_or(Ok(0), |contents| contents.read_at(buffer, at))
    }

    fn size(&self) -> Result<u64> {
        self.0.as_ref().map_or(Ok(0), |contents| contents.size())
    }
}

impl Tree {
    fn dir(&self, path: &Path) -> Result<NodeNumber> {
        let number = self.find(path)?.filter(|number| self.node(*number).attr.is_dir());
        number.ok_or_else(|| refused(path, "no such directory"))
    }

    fn named(&self, dir: NodeNumber, name: &Name) -> Result<NodeNumber> {
        let number = self.at(dir).names.get(&name.name).copied();
        number.ok_or_else(|| refused(Path::new(&name.name), "no such name"))
    }

    fn look_at(&self, dir: NodeNumber, name: &Name) -> Result<Found<TreeContents>> {
        let node = self.node(self.named(dir, name)?);
        let known =
            KnownNode { attr: node.attr, target: node.target.clone(), xattrs: Some(node.xattrs.clone()), data: None };
        let contents = node.contents.as_deref().map(Stored::open).transpose()?;
        Ok(Found { node: known, contents: TreeContents(contents) })
    }
}

impl Source for Tree {
    type Dir = NodeNumber;
    type Contents = TreeContents;

    fn top(&self, path: &Path) -> Result<KnownNode> {
        let node = self.node(self.dir(path)?);
        Ok(KnownNode { attr: node.attr, target: None, xattrs: Some(node.xattrs.clone()), data: None })
    }

    fn open_dir(&self, path: &Path) -> Result<NodeNumber> {
        self.dir(path)
    }

    fn names(&self, dir: &NodeNumber, _failed: &mut dyn FnMut(Error) -> Result<()>) -> Result<Vec<Name>> {
        let kind = |number| Some(self.node(number).attr.kind);
        Ok(self.names(*dir).map(|(name, number)| Name { name: name.to_owned(), kind: kind(number) }).collect())
    }

    fn stat(&self, dir: &NodeNumber, name: &Name) -> Result<Metadata> {
        Ok(self.node(self.named(*dir, name)?).attr)
    }

    fn look(&self, dir: &NodeNumber, names: &[Name]) -> Vec<Result<Found<TreeContents>>> {
        names.iter().map(|name| self.look_at(*dir, name)).collect()
    }

    fn complete(&self, Found { node, contents }: &mut Found<TreeContents>) -> Result<()> {
        let size = usize::try_from(node.attr.size).ok().filter(|size| *size <= PIECE_BYTES);
        let Some(size) = size.filter(|_| node.attr.is_file()) else { return Ok(()) };
        if contents.next_data(0, node.attr.size)? != Some((0, node.attr.size)) {
            return Ok(());
        }
        let (mut data, mut piece) = (Vec::with_capacity(size), vec![0; size]);
        copy_data(contents, node.attr.size, &mut piece, |_, part| {
            data.extend_from_slice(part);
            Ok::<_, Error>(())
        })?;
        node.data = Some(data);
        Ok(())
    }

    fn xattrs(&self, path: &Path) -> Result<Xattrs> {
        Ok(self.node(self.dir(path)?).xattrs.clone())
    }

    fn piece_bytes(&self) -> usize {
        PIECE_BYTES
    }

    /// A directory has one name, since hard links to directories are refused.
    fn is_tree(&self) -> bool {
        true
    }

    fn display(&self, path: &Path) -> Option<PathBuf> {
        Some(self.shown(path))
    }
}
