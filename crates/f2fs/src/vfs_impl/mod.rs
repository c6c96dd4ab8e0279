//! The volume as servers know it: node numbers, references, and errors with their errno.
//!
//! - `attr`, `names`, `data`, `xattr`: what is asked for of a node, and what changes
//! - `syncs`: fsyncs that come together
//! - `held`: which nodes servers refer to, and who was told of what stopped writing
//!
//! A node's number is that of its inode; a number that leads to no inode is `ESTALE`. The root has the number that
//! servers expect. Any number of threads read at once; who changes something has the volume to itself, but for what an
//! fsync has on its way to the device.
//!
//! Failure: what is wrong with the device or the image is logged once. Where it strikes a change, nothing is changed
//! any more: every later one is `EROFS`, in words, and reads go on.

mod attr;
mod data;
mod errno;
mod file_system;
mod held;
mod names;
mod syncs;
mod xattr;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use f2fs_disk::Nid;
use f2fs_disk::inode::Kind;
use vfs::atime::AtimeMode;
use vfs::file_system::{Answer, DirEntry, DirSink, Entry, NodeId};

use crate::cluster::LastCluster;
use crate::dir::{self, Listed};
use crate::error::{CallerError, Error, Result};
use crate::info::Info;
use crate::locks::{Mutex, Rank, RwLock};
use crate::quotas::Quotas;
use crate::store::{Node, Store};

use attr::kind;
use errno::FaultLog;
use held::Held;
use syncs::Syncs;

/// How a volume is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Serving {
    pub(crate) atime: AtimeMode,
    pub(crate) commit_interval: Duration,
}

/// An open f2fs volume.
#[derive(Debug)]
pub struct F2fs {
    store: RwLock<Store>,
    held: Held,
    clusters: LastCluster,
    faults: FaultLog,
    syncs: Syncs,
    serving: Serving,
    due: Mutex<Due>,
    /// Changes and syncs that were asked for.
    asked: AtomicU64,
}

/// What the background does next.
#[derive(Debug)]
struct Due {
    /// Seconds of the clock at the last periodic commit.
    committed: i64,
    /// What had been asked for, and since when nothing has.
    asked: u64,
    idle_since: i64,
    /// Cleaning has ended until something changes.
    is_clean: bool,
}

impl F2fs {
    pub(crate) fn new(store: Store, serving: Serving) -> Self {
        let now = store.now().sec;
        Self {
            store: RwLock::new(Rank::Store, store),
            held: Held::default(),
            clusters: LastCluster::default(),
            faults: FaultLog::default(),
            syncs: Syncs::default(),
            serving,
            due: Mutex::new(Rank::Due, Due { committed: now, asked: 0, idle_since: now, is_clean: false }),
            asked: AtomicU64::new(0),
        }
    }

    /// What the volume is, and how full.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn info(&self) -> Result<Info> {
        Info::of(&self.store.read())
    }

    /// Bytes of the file system, by its superblock, that lie beyond the end of the device.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        let store = self.store.read();
        store.geometry().end().byte().saturating_sub(store.blocks.size_bytes())
    }

    /// What its quota files say, as of the last checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn quotas(&self) -> Result<Quotas> {
        crate::quotas::read(&self.store.read())
    }

    /// Looks at the volume.
    fn look<R>(&self, look: impl FnOnce(&Store) -> Result<R>) -> Answer<R> {
        look(&self.store.read()).map_err(|error| self.faults.told(error))
    }

    /// Changes the volume. Where the device or the image fails it in the middle, that was the last change.
    fn change<R>(&self, change: impl FnOnce(&mut Store) -> Result<R>) -> Answer<R> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut store = self.store.write();
        let changed = change_checked(&mut store, change);
        drop(store);
        changed.map_err(|error| self.faults.told(error))
    }

    /// The server has an entry more for a node.
    fn handed_out(&self, store: &Store, node: &Node) -> Entry {
        let entry = self.entry_of(store, node);
        if store.writer.is_some() {
            self.held.refer(node.ino());
        }
        entry
    }

    /// The name of a node's project, which a quota counts for; `None` where it has none.
    ///
    /// # Errors
    /// As for any look at a node.
    pub fn project(&self, node: NodeId) -> Result<Option<u32>> {
        let store = self.store.read();
        Ok(node_of(&store, node)?.inode.project(store.features()))
    }

    fn find(&self, store: &Store, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let dir = node_of(store, parent)?;
        if name == b"." {
            if store.is_orphan(dir.ino()) {
                return Err(CallerError::Stale.into());
            }
            return Ok(self.handed_out(store, &dir));
        }
        if name == b".." && parent == NodeId::ROOT {
            return Ok(self.handed_out(store, &dir));
        }
        let ino = dir::lookup(store, &dir, name)?;
        Ok(self.handed_out(store, &named(store, ino)?))
    }

    fn list(&self, store: &Store, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Result<()> {
        let dir = node_of(store, node)?;
        dir::list(store, &dir, from, &mut |listed| {
            let is_dots = matches!(listed.name, b"." | b"..");
            let target = if with_nodes && !is_dots { Some(named(store, listed.ino)?) } else { None };
            let entry = target.as_ref().map(|node| self.entry_of(store, node));
            let shown = DirEntry {
                name: listed.name,
                ino: u64::from(listed.ino.0),
                kind: kind_of(store, &listed, entry.as_ref())?,
                next: listed.next,
            };
            if !with_nodes {
                return Ok(sink.add(&shown));
            }
            let is_taken = sink.add_with_node(&shown, entry.as_ref());
            if let Some(node) = target.filter(|_| is_taken) {
                self.handed_out(store, &node);
            }
            Ok(is_taken)
        })
    }
}

impl Drop for F2fs {
    /// Makes everything durable, and marks the volume as closed, for those who would check it otherwise.
    fn drop(&mut self) {
        let store = self.store.get_mut();
        if let Err(error) = close(store) {
            // It was logged; what the last sync promised is there.
            self.faults.told(error);
        }
    }
}

/// Nobody refers to anything any more: inodes without names go, and a last checkpoint is written.
fn close(store: &mut Store) -> Result<()> {
    let Some(writer) = store.writer.as_deref() else { return Ok(()) };
    if writer.poison.is_some() || writer.changes == 0 {
        return Ok(());
    }
    let orphans: Vec<Nid> = writer.orphans.iter().copied().collect();
    orphans.into_iter().try_for_each(|ino| {
        store.settle()?;
        store.free_inode(ino)
    })?;
    store.commit(true)
}

fn change_checked<R>(store: &mut Store, change: impl FnOnce(&mut Store) -> Result<R>) -> Result<R> {
    let writer = store.writer()?;
    writer.check()?;
    let before = writer.changes;
    store.settle()?;
    let changed = change(store);
    if let Err(error @ (Error::Io(_) | Error::Corrupt(_) | Error::Cluster { .. } | Error::Bug(_))) = &changed {
        let writer = store.writer_mut()?;
        // What is half done must not become part of a checkpoint.
        if writer.changes != before && writer.poison.is_none() {
            writer.poison = Some(Box::new(error.clone()));
        }
    }
    changed
}

/// The inode of a node.
fn ino_of(store: &Store, node: NodeId) -> Result<Nid> {
    if node == NodeId::ROOT {
        return Ok(store.root());
    }
    let ino = u32::try_from(node.0).ok().filter(|ino| (3..store.geometry().nid_count).contains(ino));
    Ok(Nid(ino.ok_or(CallerError::Stale)?))
}

fn node_of(store: &Store, node: NodeId) -> Result<Node> {
    store.inode(ino_of(store, node)?)
}

/// The inode that a name leads to: there has to be one.
fn named(store: &Store, ino: Nid) -> Result<Node> {
    store.inode(ino).map_err(|error| match error {
        Error::Caller(CallerError::Stale) => {
            use f2fs_disk::{At, Corrupt, Detail};
            let (expected, found) = (Detail::Text("an inode"), Detail::Text("none with its number"));
            Corrupt::new("target of a name", expected, found).at(At::Inode(ino)).into()
        }
        other => other,
    })
}

/// The kind that the directory says, or the inode where it does not.
fn kind_of(store: &Store, listed: &Listed<'_>, entry: Option<&Entry>) -> Result<vfs::file_system::NodeKind> {
    Ok(match (entry, listed.kind) {
        (Some(entry), _) => entry.attr.kind,
        (None, Some(known)) => kind(known),
        (None, None) => kind(named(store, listed.ino)?.inode.kind()),
    })
}

fn check_is_file(node: &Node) -> Result<()> {
    match node.inode.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(CallerError::IsADirectory.into()),
        _ => Err(CallerError::InvalidArgument.into()),
    }
}
