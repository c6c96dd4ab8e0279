//! Presents the volume to servers: node numbers, references, and errors with their errno. `open_volume` makes it;
//! servers call it as a `vfs::FileSystem`.
//!
//! - `attr`, `names`, `data`, `xattr`: reads and changes of a node
//! - `syncs`: fsyncs that are written together
//! - `references`: references of servers, and openings that were told why writing ended
//!
//! A node's number is that of its inode; a number without an inode is `ESTALE`. The root has the number that servers
//! expect. Any number of threads read at once, without a lock if the volume is read-only; one at a time changes the
//! volume, except for the writes of an fsync in flight.
//!
//! Failure: an error of the device or the image is logged once. If it interrupts a change, all later ones fail with
//! `EROFS` and the reason, and reads go on.

mod attr;
mod data;
mod errno;
mod file_system;
mod names;
mod references;
mod syncs;
mod xattr;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use f2fs_disk::Nid;
use f2fs_disk::inode::Kind;
use vfs::atime::AtimeMode;
use vfs::file_system::{Answer, DirEntry, DirSink, Entry, NodeId};

use crate::blocks::Blocks;
use crate::change::{commit, inodes};
use crate::cluster::LastCluster;
use crate::dir::{self, Listed};
use crate::error::{CallerError, Error, Result};
use crate::info::Info;
use crate::locks::{Mutex, Rank, ReadGuard, RwLock};
use crate::quotas::Quotas;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

use attr::{entry_of, kind};
use errno::FaultLog;
use references::Held;
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
    access: Access,
    held: Held,
    clusters: LastCluster,
    faults: FaultLog,
    serving: Serving,
}

/// How it was opened.
#[derive(Debug)]
enum Access {
    ReadOnly(Box<ReadVolume>),
    Writable(Box<Writable>),
}

/// A volume that is open for writing, and what its writers share.
#[derive(Debug)]
struct Writable {
    /// Those of the volume, readable without its lock.
    blocks: Arc<Blocks>,
    volume: RwLock<WriteVolume>,
    syncs: Syncs,
    due: Mutex<Due>,
    /// Number of requested changes and syncs.
    asked: AtomicU64,
}

/// The volume as one operation reads it.
#[derive(Debug)]
enum View<'a> {
    ReadOnly(&'a ReadVolume),
    Writable(ReadGuard<'a, WriteVolume>),
}

impl View<'_> {
    fn writable(&self) -> Option<&WriteVolume> {
        match self {
            Self::ReadOnly(_) => None,
            Self::Writable(volume) => Some(volume),
        }
    }
}

impl Deref for View<'_> {
    type Target = ReadVolume;

    fn deref(&self) -> &ReadVolume {
        match self {
            Self::ReadOnly(volume) => volume,
            Self::Writable(volume) => volume,
        }
    }
}

/// The next background work.
#[derive(Debug)]
struct Due {
    /// Seconds of the clock at the last periodic commit.
    committed: i64,
    /// Number of requests at the last step, and the time since there was none.
    asked: u64,
    idle_since: i64,
    /// Cleaning has ended until something changes.
    is_clean: bool,
}

impl F2fs {
    pub(crate) fn read_only(volume: ReadVolume, serving: Serving) -> Self {
        Self::new(Access::ReadOnly(Box::new(volume)), serving)
    }

    pub(crate) fn read_write(volume: WriteVolume, serving: Serving) -> Self {
        let now = volume.clock.now().sec;
        let writable = Writable {
            blocks: Arc::clone(&volume.blocks),
            volume: RwLock::new(Rank::Volume, volume),
            syncs: Syncs::default(),
            due: Mutex::new(Rank::Due, Due { committed: now, asked: 0, idle_since: now, is_clean: false }),
            asked: AtomicU64::new(0),
        };
        Self::new(Access::Writable(Box::new(writable)), serving)
    }

    fn new(access: Access, serving: Serving) -> Self {
        let (held, clusters, faults) = (Held::default(), LastCluster::default(), FaultLog::default());
        Self { access, held, clusters, faults, serving }
    }

    /// Properties of the volume, and how full it is.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn info(&self) -> Result<Info> {
        Info::of(&self.view())
    }

    /// Bytes of the file system, according to its superblock, beyond the end of the device.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        let volume = self.view();
        volume.geometry().end().byte().saturating_sub(volume.blocks.size_bytes())
    }

    /// The contents of its quota files, as of the last checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn quotas(&self) -> Result<Quotas> {
        crate::quotas::read(&self.view())
    }

    fn view(&self) -> View<'_> {
        match &self.access {
            Access::ReadOnly(volume) => View::ReadOnly(volume),
            Access::Writable(writable) => View::Writable(writable.volume.read()),
        }
    }

    /// The volume and the state shared by its writers, if it is open for writing.
    fn writers(&self) -> Option<&Writable> {
        match &self.access {
            Access::ReadOnly(_) => None,
            Access::Writable(writable) => Some(writable),
        }
    }

    /// The same, or the error of a change.
    fn writable(&self) -> Answer<&Writable> {
        self.writers().ok_or_else(|| self.faults.report(CallerError::ReadOnly.into()))
    }

    /// Reads the volume.
    fn look<R>(&self, look: impl FnOnce(&View<'_>) -> Result<R>) -> Answer<R> {
        look(&self.view()).map_err(|error| self.faults.report(error))
    }

    /// Changes the volume. If the device or the image fails in the middle, this was the last change.
    fn change<R>(&self, change: impl FnOnce(&mut WriteVolume) -> Result<R>) -> Answer<R> {
        let writable = self.writable()?;
        writable.asked.fetch_add(1, Ordering::Relaxed);
        let changed = change_checked(&mut writable.volume.write(), change);
        changed.map_err(|error| self.faults.report(error))
    }

    /// Adds a reference of the server, and returns the node's entry.
    fn handed_out(&self, volume: &ReadVolume, node: &Node) -> Entry {
        let entry = entry_of(volume, node);
        if self.writers().is_some() {
            self.held.refer(node.ino());
        }
        entry
    }

    /// The name of a node's project for quotas; `None` if it has none.
    ///
    /// # Errors
    /// Those of reading a node.
    pub fn project(&self, node: NodeId) -> Result<Option<u32>> {
        let volume = self.view();
        Ok(node_of(&volume, node)?.inode.project(volume.features()))
    }

    fn find(&self, volume: &View<'_>, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let dir = node_of(volume, parent)?;
        if name == b"." {
            if volume.writable().is_some_and(|volume| volume.is_orphan(dir.ino())) {
                return Err(CallerError::Stale.into());
            }
            return Ok(self.handed_out(volume, &dir));
        }
        if name == b".." && parent == NodeId::ROOT {
            return Ok(self.handed_out(volume, &dir));
        }
        let ino = dir::lookup(volume, &dir, name)?;
        Ok(self.handed_out(volume, &named(volume, ino)?))
    }

    fn list(
        &self,
        volume: &ReadVolume,
        node: NodeId,
        from: u64,
        with_nodes: bool,
        sink: &mut dyn DirSink,
    ) -> Result<()> {
        let dir = node_of(volume, node)?;
        dir::list(volume, &dir, from, &mut |listed| {
            let is_dots = matches!(listed.name, b"." | b"..");
            let target = if with_nodes && !is_dots { Some(named(volume, listed.ino)?) } else { None };
            let entry = target.as_ref().map(|node| entry_of(volume, node));
            let shown = DirEntry {
                name: listed.name,
                ino: u64::from(listed.ino.0),
                kind: kind_of(volume, &listed, entry.as_ref())?,
                next: listed.next,
            };
            if !with_nodes {
                return Ok(sink.add(&shown));
            }
            let is_taken = sink.add_with_node(&shown, entry.as_ref());
            if let Some(node) = target.filter(|_| is_taken) {
                self.handed_out(volume, &node);
            }
            Ok(is_taken)
        })
    }
}

impl Drop for F2fs {
    /// Makes everything durable, and marks the volume as closed, so that it need not be checked.
    fn drop(&mut self) {
        let Access::Writable(writable) = &mut self.access else { return };
        if let Err(error) = close(writable.volume.get_mut()) {
            // It was logged; data of the last sync is durable.
            self.faults.report(error);
        }
    }
}

/// Removes orphans, which no server refers to any more, and writes a last checkpoint.
fn close(volume: &mut WriteVolume) -> Result<()> {
    if volume.progress.is_poisoned() || volume.progress.changes() == 0 {
        return Ok(());
    }
    volume.orphans.all().into_iter().try_for_each(|ino| {
        volume.settle();
        inodes::free(volume, ino)
    })?;
    commit::commit(volume, true)
}

fn change_checked<R>(volume: &mut WriteVolume, change: impl FnOnce(&mut WriteVolume) -> Result<R>) -> Result<R> {
    volume.progress.check()?;
    let before = volume.progress.changes();
    volume.settle();
    let changed = change(volume);
    if let Err(error @ (Error::Io(_) | Error::Corrupt(_) | Error::Cluster { .. } | Error::Bug(_))) = &changed {
        // A half-done change must not become part of a checkpoint.
        if volume.progress.changes() != before {
            volume.progress.poison(error);
        }
    }
    changed
}

/// The inode of a node.
fn ino_of(volume: &ReadVolume, node: NodeId) -> Result<Nid> {
    if node == NodeId::ROOT {
        return Ok(volume.root());
    }
    let ino = u32::try_from(node.0).ok().filter(|ino| (3..volume.geometry().nid_count).contains(ino));
    Ok(Nid(ino.ok_or(CallerError::Stale)?))
}

fn node_of(volume: &ReadVolume, node: NodeId) -> Result<Node> {
    volume.inode(ino_of(volume, node)?)
}

/// The inode of a name, which has to exist.
fn named(volume: &ReadVolume, ino: Nid) -> Result<Node> {
    volume.inode(ino).map_err(|error| match error {
        Error::Caller(CallerError::Stale) => {
            use f2fs_disk::{At, Corrupt, Detail};
            let (expected, found) = (Detail::Text("an inode"), Detail::Text("none with its number"));
            Corrupt::new("target of a name", expected, found).at(At::Inode(ino)).into()
        }
        other => other,
    })
}

/// The kind recorded in the directory, or else in the inode.
fn kind_of(volume: &ReadVolume, listed: &Listed<'_>, entry: Option<&Entry>) -> Result<vfs::file_system::NodeKind> {
    Ok(match (entry, listed.kind) {
        (Some(entry), _) => entry.attr.kind,
        (None, Some(known)) => kind(known),
        (None, None) => kind(named(volume, listed.ino)?.inode.kind()),
    })
}

fn check_is_file(node: &Node) -> Result<()> {
    match node.inode.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(CallerError::IsADirectory.into()),
        _ => Err(CallerError::InvalidArgument.into()),
    }
}
