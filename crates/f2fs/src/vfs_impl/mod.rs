//! The volume as servers know it: node numbers, and errors with their errno.
//!
//! A node's number is that of its inode, so no table of references is needed; a number that leads to no inode is
//! `ESTALE`. The root has the number that servers expect. Nothing changes, so any number of threads may read at once.
//!
//! Failure: what is wrong with the device or the image is logged once; every change is `EROFS`, in words.

mod attr;
mod changes;
mod errno;
mod file_system;

use f2fs_disk::Nid;
use f2fs_disk::inode::Kind;
use vfs::file_system::{DirEntry, DirSink, Entry, NodeId};

use crate::cluster::LastCluster;
use crate::dir::{self, Listed};
use crate::error::{CallerError, Error, Result};
use crate::info::Info;
use crate::store::{Node, Store};

use attr::kind;
use errno::FaultLog;

/// An open f2fs volume.
#[derive(Debug)]
pub struct F2fs {
    store: Store,
    clusters: LastCluster,
    faults: FaultLog,
}

impl F2fs {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, clusters: LastCluster::default(), faults: FaultLog::default() }
    }

    /// What the volume is, and how full.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn info(&self) -> Result<Info> {
        Info::of(&self.store)
    }

    /// The name of a node's project, which a quota counts for; `None` where it has none.
    ///
    /// # Errors
    /// As for any look at a node.
    pub fn project(&self, node: NodeId) -> Result<Option<u32>> {
        Ok(self.node(node)?.inode.project(self.store.features()))
    }

    fn ino(&self, node: NodeId) -> Result<Nid> {
        if node == NodeId::ROOT {
            return Ok(self.store.root());
        }
        let ino = u32::try_from(node.0).ok().filter(|ino| (3..self.store.geometry().nid_count).contains(ino));
        Ok(Nid(ino.ok_or(CallerError::Stale)?))
    }

    fn node(&self, node: NodeId) -> Result<Node> {
        self.store.inode(self.ino(node)?)
    }

    fn find(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let dir = self.node(parent)?;
        if name == b"." {
            return Ok(self.entry_of(&dir));
        }
        if name == b".." && parent == NodeId::ROOT {
            return Ok(self.entry_of(&dir));
        }
        let ino = dir::lookup(&self.store, &dir, name)?;
        Ok(self.entry_of(&self.named(ino)?))
    }

    /// The inode that a name leads to: there has to be one.
    fn named(&self, ino: Nid) -> Result<Node> {
        self.store.inode(ino).map_err(|error| match error {
            Error::Caller(CallerError::Stale) => {
                use f2fs_disk::{At, Corrupt, Detail};
                let (expected, found) = (Detail::Text("an inode"), Detail::Text("none with its number"));
                Corrupt::new("target of a name", expected, found).at(At::Inode(ino)).into()
            }
            other => other,
        })
    }

    fn list(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Result<()> {
        let dir = self.node(node)?;
        dir::list(&self.store, &dir, from, &mut |listed| {
            let is_dots = matches!(listed.name, b"." | b"..");
            let entry = if with_nodes && !is_dots { Some(self.entry_of(&self.named(listed.ino)?)) } else { None };
            let shown = DirEntry {
                name: listed.name,
                ino: u64::from(listed.ino.0),
                kind: self.kind_of(&listed, entry.as_ref())?,
                next: listed.next,
            };
            Ok(if with_nodes { sink.add_with_node(&shown, entry.as_ref()) } else { sink.add(&shown) })
        })
    }

    /// The kind that the directory says, or the inode where it does not.
    fn kind_of(&self, listed: &Listed<'_>, entry: Option<&Entry>) -> Result<vfs::file_system::NodeKind> {
        Ok(match (entry, listed.kind) {
            (Some(entry), _) => entry.attr.kind,
            (None, Some(known)) => kind(known),
            (None, None) => kind(self.named(listed.ino)?.inode.kind()),
        })
    }

    fn check_is_file(node: &Node) -> Result<()> {
        match node.inode.kind() {
            Kind::File => Ok(()),
            Kind::Directory => Err(CallerError::IsADirectory.into()),
            _ => Err(CallerError::InvalidArgument.into()),
        }
    }
}
