//! Keeps a tree of nodes in memory, whose contents lie elsewhere: an image is built from it when its source is no
//! single directory. Archives, layers and manifests fill it by paths; `source` copies from it, in the order of names.
//!
//! ```text
//!  directory --\
//!  tar ---------> Tree (later ones on top) --Source--> Transfer --> image
//!  layers -----/
//! ```
//!
//! Invariants
//! * Node 0 is the root, a directory. Every node that has a name is reached by exactly one path, a hard link by one
//!   more each; `nlink` of a file counts them.
//! * A path never leads above the root: `..` there is the root, as in `chroot(2)`. Symbolic links on the way to the
//!   last name are followed within the tree, as when an archive is unpacked below a root directory.
//! * A name is plain: not empty, no `.`, no `..`, no slash and no NUL.
//!
//! Failure: [`Cause::Tree`] names the path. Memory is a few hundred bytes for each node, and [`Tree`] refuses more than
//! [`NODE_COUNT_MAX`] of them.

mod names;
mod reading;
mod source;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portable::OsStrExt as _;
use vfs::Metadata;
use vfs::file_system::{Home, NodeFlags, NodeKind, Time, Xattrs};

use crate::contents::Contents;
use crate::error::{Cause, Error, Result};

pub use names::Walk;
pub use reading::read_source;
pub use source::TreeContents;

/// Most nodes in a tree.
pub const NODE_COUNT_MAX: usize = 16 << 20;
/// Most symbolic links that are followed on the way to one name, as Linux does.
const LINKS_FOLLOWED_MAX: usize = 40;
/// Permissions of a directory that nobody described.
const IMPLIED_PERMISSIONS: u32 = 0o755;

/// The number of a node in its [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeNumber(usize);

/// The contents of a file that lie outside the tree.
pub trait Stored: Send + Sync {
    /// Opens them.
    ///
    /// # Errors
    /// Those of the host, or of what holds them.
    fn open(&self) -> Result<Box<dyn Contents + Send + Sync>>;
}

/// A node: its attributes, and where its contents are.
#[derive(Clone)]
pub struct NewNode {
    /// Kind, owner, permissions, times, device number and size. `ino`, `nlink` and `home` are set by the tree.
    pub attr: Metadata,
    /// Where a symbolic link leads.
    pub target: Option<Vec<u8>>,
    /// Names and values of extended attributes.
    pub xattrs: Xattrs,
    /// Contents of a file that has some.
    pub contents: Option<Arc<dyn Stored>>,
}

impl fmt::Debug for NewNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attr, target, xattrs, contents } = self;
        let is_stored = contents.is_some();
        f.debug_struct("NewNode")
            .field("attr", attr)
            .field("target", target)
            .field("xattrs", xattrs)
            .field("is_stored", &is_stored)
            .finish()
    }
}

/// A node of a tree.
#[derive(Debug)]
struct Node {
    node: NewNode,
    /// The names in a directory.
    names: BTreeMap<OsString, NodeNumber>,
    /// The index of the source that described it, for messages.
    origin: usize,
    /// A directory that only the names below it imply.
    is_implied: bool,
}

/// A tree of nodes in memory.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Names of the sources, for messages.
    origins: Vec<PathBuf>,
    /// The time of directories that nobody described.
    implied_time: Time,
}

/// Attributes of a new node: mode bits of the kind, owner root, times 1970, no contents.
#[must_use]
pub fn plain_metadata(kind: NodeKind, permissions: u32, time: Time) -> Metadata {
    Metadata {
        ino: 0,
        kind,
        permissions,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        block_bytes: 4096,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        flags: NodeFlags::empty(),
        home: Home { subvolume: 0, ino: 0, generation: 0 },
    }
}

fn implied(time: Time) -> NewNode {
    let attr = plain_metadata(NodeKind::Directory, IMPLIED_PERMISSIONS, time);
    NewNode { attr, target: None, xattrs: Xattrs::new(), contents: None }
}

/// The failure of a path, in words.
fn refused(path: &Path, what: impl Into<String>) -> Error {
    Error::from(Cause::Tree(what.into())).about(path)
}

impl Tree {
    /// A tree with a root directory of root, mode 755. `implied_time` is the time of directories that no source
    /// describes.
    #[must_use]
    pub fn new(implied_time: Time) -> Self {
        let mut tree = Self { nodes: Vec::new(), origins: vec![PathBuf::new()], implied_time };
        tree.nodes.push(Node { node: implied(implied_time), names: BTreeMap::new(), origin: 0, is_implied: true });
        tree.number_node(NodeNumber(0));
        tree
    }

    /// The root directory.
    #[must_use]
    pub const fn root(&self) -> NodeNumber {
        NodeNumber(0)
    }

    /// Names the source of the nodes that are made from now on, for messages.
    pub fn begin_source(&mut self, name: impl Into<PathBuf>) {
        self.origins.push(name.into());
    }

    /// Number of nodes that were made, those that were replaced since included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The attributes of a node, and where its contents are.
    #[must_use]
    pub fn node(&self, number: NodeNumber) -> &NewNode {
        &self.at(number).node
    }

    /// Changes attributes, target or extended attributes of a node. Kind and identity stay.
    pub fn edit(&mut self, number: NodeNumber, change: impl FnOnce(&mut NewNode)) {
        let node = self.at_mut(number);
        let (kind, nlink) = (node.node.attr.kind, node.node.attr.nlink);
        change(&mut node.node);
        (node.node.attr.kind, node.node.attr.nlink) = (kind, nlink);
        node.is_implied = false;
        self.number_node(number);
    }

    /// True for a directory that no source described.
    #[must_use]
    pub fn is_implied(&self, number: NodeNumber) -> bool {
        self.at(number).is_implied
    }

    /// The names in a directory, in the order of their bytes.
    pub fn names(&self, dir: NodeNumber) -> impl Iterator<Item = (&OsStr, NodeNumber)> {
        self.at(dir).names.iter().map(|(name, number)| (name.as_os_str(), *number))
    }

    /// Makes `node` at `path`, with the directories on the way. A directory over a directory keeps the names in it and
    /// gets the new attributes; anything else that has the name is replaced.
    ///
    /// # Errors
    /// [`Cause::Tree`]: a name that is not plain, something on the way is no directory, links go round, too many nodes.
    pub fn put(&mut self, path: &Path, node: NewNode) -> Result<NodeNumber> {
        let Some((dir, name)) = self.place(path)? else {
            if !node.attr.is_dir() {
                return Err(refused(path, "the root is a directory"));
            }
            return Ok(self.describe(self.root(), node));
        };
        if let Some(old) = self.at(dir).names.get(&name).copied() {
            if node.attr.is_dir() && self.node(old).attr.is_dir() {
                return Ok(self.describe(old, node));
            }
            self.unlink(dir, &name);
        }
        self.add(path, dir, name, node, false)
    }

    /// Makes the file at `first` known by the name `path`, too. What has the name is replaced.
    ///
    /// # Errors
    /// As [`Tree::put`]; `first` does not exist or is a directory.
    pub fn link(&mut self, first: &Path, path: &Path) -> Result<()> {
        let number = self.find(first)?;
        let number =
            number.ok_or_else(|| refused(path, format!("a hard link to `{}`, which is not there", first.display())))?;
        if self.node(number).attr.is_dir() {
            return Err(refused(path, format!("a hard link to the directory `{}`", first.display())));
        }
        let (dir, name) = self.place(path)?.ok_or_else(|| refused(path, "the root is a directory"))?;
        match self.at(dir).names.get(&name) {
            Some(old) if *old == number => return Ok(()),
            Some(_) => self.unlink(dir, &name),
            None => {}
        }
        let links = &mut self.at_mut(number).node.attr.nlink;
        *links = links.saturating_add(1);
        self.at_mut(dir).names.insert(name, number);
        Ok(())
    }

    /// Removes a name with everything below it. Returns false if it is not there.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn remove(&mut self, path: &Path) -> Result<bool> {
        let Some((dir, name)) = self.look_for(path)? else { return Ok(false) };
        let is_there = self.at(dir).names.contains_key(&name);
        self.unlink(dir, &name);
        Ok(is_there)
    }

    /// Removes all names in a directory, if it is there.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn clear(&mut self, path: &Path) -> Result<()> {
        let Some(number) = self.find(path)?.filter(|number| self.node(*number).attr.is_dir()) else { return Ok(()) };
        let names: Vec<OsString> = self.at(number).names.keys().cloned().collect();
        names.iter().for_each(|name| self.unlink(number, name));
        Ok(())
    }

    /// The node at `path`; a symbolic link there is not followed.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn find(&self, path: &Path) -> Result<Option<NodeNumber>> {
        match self.look_for(path)? {
            Some((dir, name)) => Ok(self.at(dir).names.get(&name).copied()),
            None => Ok(is_root(path).then(|| self.root())),
        }
    }

    /// Every node with its path, each directory before what is in it, names in the order of their bytes.
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }

    /// Replaces all attributes of a directory, whose names stay.
    fn describe(&mut self, number: NodeNumber, node: NewNode) -> NodeNumber {
        let origin = self.origins.len().saturating_sub(1);
        let old = self.at_mut(number);
        let nlink = old.node.attr.nlink;
        old.node = node;
        old.node.attr.nlink = nlink;
        (old.is_implied, old.origin) = (false, origin);
        self.number_node(number);
        number
    }

    fn add(
        &mut self,
        path: &Path,
        dir: NodeNumber,
        name: OsString,
        node: NewNode,
        is_implied: bool,
    ) -> Result<NodeNumber> {
        if self.nodes.len() >= NODE_COUNT_MAX {
            return Err(refused(path, format!("more than {NODE_COUNT_MAX} nodes")));
        }
        let number = NodeNumber(self.nodes.len());
        let origin = self.origins.len().saturating_sub(1);
        self.nodes.push(Node { node, names: BTreeMap::new(), origin, is_implied });
        self.at_mut(number).node.attr.nlink = 1;
        self.number_node(number);
        self.at_mut(dir).names.insert(name, number);
        Ok(number)
    }

    fn unlink(&mut self, dir: NodeNumber, name: &OsStr) {
        let mut removed: Vec<NodeNumber> = self.at_mut(dir).names.remove(name).into_iter().collect();
        while let Some(number) = removed.pop() {
            let node = self.at_mut(number);
            node.node.attr.nlink = node.node.attr.nlink.saturating_sub(1);
            if node.node.attr.nlink == 0 {
                node.node.contents = None;
            }
            removed.extend(std::mem::take(&mut node.names).into_values());
        }
    }

    /// Gives a node the identity that it has in this tree.
    fn number_node(&mut self, number: NodeNumber) {
        let ino = u64::try_from(number.0).unwrap_or(u64::MAX).saturating_add(1);
        let attr = &mut self.at_mut(number).node.attr;
        attr.ino = ino;
        attr.home = Home { subvolume: 0, ino, generation: 0 };
    }

    /// Where a message says that the node at `path` comes from.
    fn shown(&self, path: &Path) -> PathBuf {
        let number = self.find(path).ok().flatten().unwrap_or(self.root());
        match self.origins.get(self.at(number).origin) {
            Some(origin) if !origin.as_os_str().is_empty() => {
                let mut shown = origin.as_os_str().to_owned();
                shown.push(":");
                shown.push(path);
                shown.into()
            }
            _ => path.to_owned(),
        }
    }

    fn at(&self, number: NodeNumber) -> &Node {
        self.nodes.get(number.0).expect("a tree numbers its own nodes")
    }

    fn at_mut(&mut self, number: NodeNumber) -> &mut Node {
        self.nodes.get_mut(number.0).expect("a tree numbers its own nodes")
    }
}

/// True for a path that has no names.
fn is_root(path: &Path) -> bool {
    path.as_os_str().as_bytes().split(|byte| *byte == b'/').all(|part| part.is_empty() || part == b".")
}
