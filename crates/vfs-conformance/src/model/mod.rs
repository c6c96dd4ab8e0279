//! Models a file system by plain maps: the expected state of a volume after a list of operations.
//!
//! A [`Model`] is a tree of [`Node`]s: directories are maps of names, files are [`Content`]s, subvolumes are marked
//! directories. A snapshot is a deep copy in which nested subvolumes become empty stubs; a reflink is a copy.
//! Properties that the model cannot know (the owner of a new inode, times set by the volume's clock) are `None` and not
//! compared.
//!
//! Operations are in [`Operation`]; for an invalid one `apply` returns the error that a volume has to give, and changes
//! nothing. It has no space limits: the caller decides about a NoSpace of the volume.
//!
//! It never fails otherwise; a wrong path is a caller's error. Called by [`crate::property`].

mod apply;
mod content;
mod operation;
mod reasons;

pub use content::{Content, PAGE_BYTES};
pub use operation::Operation;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use vfs::Errno;
use vfs::file_system::{NodeKind, Time as Timestamp};

/// Longest name of a directory entry.
pub const NAME_LEN_MAX: usize = 255;

/// Number of a node within the model; says nothing about inode numbers.
pub type NodeId = u64;

/// The whole tree.
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    root: NodeId,
}

/// One inode.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its contents.
    pub kind: Kind,
    /// Names it has.
    pub links: u32,
    /// Permission bits, once they were set.
    pub mode: Option<u32>,
    /// Owner and group, once they were set.
    pub owner: Option<(u32, u32)>,
    /// Time of change, when it was set after the last change.
    pub mtime: Option<Timestamp>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Contents of an inode.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A directory or a subvolume.
    Directory(Directory),
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A special file and its device number.
    Special(NodeKind, u32),
}

/// The names of a directory.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    /// Name to node.
    pub entries: BTreeMap<Vec<u8>, NodeId>,
    /// Kind of directory.
    pub role: Role,
}

/// Special kinds of directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing more.
    #[default]
    Plain,
    /// A subvolume's root that can be changed.
    Subvolume,
    /// A subvolume's root that cannot.
    Frozen,
    /// The place in a snapshot where its source has a subvolume: empty for ever.
    Stub,
}

/// Where a path leads.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) parent: NodeId,
    pub(crate) name: Vec<u8>,
    /// The node of that name, where there is one.
    pub(crate) node: Option<NodeId>,
    /// The subvolume of the parent.
    pub(crate) subvolume: NodeId,
    /// Directories from the root down to the parent.
    pub(crate) trail: Vec<NodeId>,
}

impl Node {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, links: 1, mode: None, owner: None, mtime: None, xattrs: BTreeMap::new() }
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn directory(&self) -> Option<&Directory> {
        if let Kind::Directory(directory) = &self.kind { Some(directory) } else { None }
    }

    /// The content, if it is a regular file.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        if let Kind::File(content) = &self.kind { Some(content) } else { None }
    }

    /// Its type as a volume reports it.
    #[must_use]
    pub fn file_type(&self) -> NodeKind {
        match &self.kind {
            Kind::File(_) => NodeKind::File,
            Kind::Directory(_) => NodeKind::Directory,
            Kind::Symlink(_) => NodeKind::Symlink,
            Kind::Special(kind, _) => *kind,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty top-level subvolume.
    #[must_use]
    pub fn new() -> Self {
        let root = Directory { role: Role::Subvolume, ..Directory::default() };
        let nodes = BTreeMap::from([(0, Node::new(Kind::Directory(root)))]);
        Self { nodes, next: 1, root: 0 }
    }

    /// The top-level directory.
    #[must_use]
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// A node that exists.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// How many inodes there are.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of the node at a path.
    #[must_use]
    pub fn id_at(&self, path: &Path) -> Option<NodeId> {
        self.place(path).ok()?.node
    }

    /// The node at a path.
    #[must_use]
    pub fn lookup(&self, path: &Path) -> Option<&Node> {
        if names_of(path).next().is_none() {
            return self.node(self.root);
        }
        self.place(path).ok()?.node.and_then(|id| self.node(id))
    }

    /// Every path with its node, directories before their contents.
    #[must_use]
    pub fn walk(&self) -> Vec<(PathBuf, NodeId)> {
        let mut found = vec![(PathBuf::new(), self.root)];
        let mut index = 0;
        while let Some((path, id)) = found.get(index).cloned() {
            if let Some(directory) = self.node(id).and_then(Node::directory) {
                found.extend(directory.entries.iter().map(|(name, node)| (path.join(OsStr::from_bytes(name)), *node)));
            }
            index = index.saturating_add(1);
        }
        found
    }

    /// Follows the directories of a path. Symbolic links on the way are followed too, but nothing is ever made under
    /// the names that they lead to.
    pub(crate) fn place(&self, path: &Path) -> Result<Place, Errno> {
        let names: Vec<&[u8]> = names_of(path).collect();
        let Some((last, above)) = names.split_last() else {
            let (parent, subvolume) = (self.root, self.root);
            return Ok(Place { parent, name: Vec::new(), node: Some(self.root), subvolume, trail: vec![self.root] });
        };
        let mut place =
            Place { parent: self.root, name: last.to_vec(), node: None, subvolume: self.root, trail: vec![self.root] };
        for name in above {
            place.parent = self.child(place.parent, name)?.ok_or(Errno::ENOENT)?;
            let directory = match self.node(place.parent).map(|node| &node.kind) {
                Some(Kind::Directory(directory)) => directory,
                Some(Kind::Symlink(target)) if target.len() > NAME_LEN_MAX => return Err(Errno::ENAMETOOLONG),
                Some(Kind::Symlink(_)) => return Err(Errno::ENOENT),
                _ => return Err(Errno::ENOTDIR),
            };
            if matches!(directory.role, Role::Subvolume | Role::Frozen) {
                place.subvolume = place.parent;
            }
            place.trail.push(place.parent);
        }
        place.node = self.child(place.parent, last)?;
        Ok(place)
    }

    fn child(&self, parent: NodeId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        let directory = self.node(parent).and_then(Node::directory).ok_or(Errno::ENOTDIR)?;
        if name.len() > NAME_LEN_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(directory.entries.get(name).copied())
    }

    pub(crate) fn role(&self, id: NodeId) -> Role {
        self.node(id).and_then(Node::directory).map_or(Role::Plain, |directory| directory.role)
    }

    /// Whether something below `id` is (the place of) a subvolume.
    pub(crate) fn holds_subvolumes(&self, id: NodeId) -> bool {
        let Some(directory) = self.node(id).and_then(Node::directory) else {
            return false;
        };
        directory.entries.values().any(|child| self.role(*child) != Role::Plain || self.holds_subvolumes(*child))
    }
}

fn names_of(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.as_os_str().as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
