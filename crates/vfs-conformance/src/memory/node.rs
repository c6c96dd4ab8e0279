//! Holds a node: attributes, extended attributes, contents, and its references. The other files of `memory` use it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use vfs::atime::{AtimeMode, should_update_atime};
use vfs::file_system::{Attr, Entry, Errno, NodeFlags, NodeId, NodeKind, Result, Time};
use vfs::privileges::{self, BareSetGroup};

use super::data::Data;
use super::directory::Directory;
use super::space::PAGE_BYTES;
use super::to_u64;

/// Preferred size of I/O, in bytes, and the unit of `st_blocks`.
const IO_BYTES: u32 = 4096;
const STAT_BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) kind: NodeKind,
    pub(super) state: RwLock<State>,
    references: AtomicU64,
    openings: AtomicU64,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) permissions: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) atime: Time,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) btime: Time,
    pub(super) flags: NodeFlags,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) body: Body,
    /// Never had a name and may get one.
    pub(super) is_linkable: bool,
}

#[derive(Debug)]
pub(super) enum Body {
    File(Data),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

impl Node {
    pub(super) fn new(id: NodeId, kind: NodeKind, state: State) -> Self {
        Self { id, kind, state: RwLock::new(state), references: AtomicU64::new(0), openings: AtomicU64::new(0) }
    }

    /// The root directory, above which it is itself.
    pub(super) fn root(now: Time) -> Self {
        let body = Body::Directory(Directory::new(NodeId::ROOT));
        let mut state = State::new(body, now);
        state.permissions = 0o755;
        Self::new(NodeId::ROOT, NodeKind::Directory, state)
    }

    pub(super) fn attr(&self) -> Attr {
        self.attr_of(&self.state.read())
    }

    pub(super) fn attr_of(&self, state: &State) -> Attr {
        let (size, pages) = match &state.body {
            Body::File(data) => (data.size(), data.page_count()),
            Body::Directory(directory) => (directory.size(), 0),
            Body::Symlink(target) => (to_u64(target.len()), 0),
            Body::Special => (0, 0),
        };
        Attr {
            ino: self.id.0,
            kind: self.kind,
            permissions: state.permissions,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev: state.rdev,
            size,
            blocks: pages * (PAGE_BYTES / STAT_BLOCK_BYTES),
            block_bytes: IO_BYTES,
            atime: state.atime,
            mtime: state.mtime,
            ctime: state.ctime,
            btime: state.btime,
            flags: state.flags,
            home: vfs::file_system::Home { subvolume: 0, ino: self.id.0, generation: 0 },
        }
    }

    /// Hands the node out: one reference more. The table is held.
    pub(super) fn entry(&self) -> Entry {
        self.references.fetch_add(1, Ordering::Relaxed);
        Entry { node: self.id, generation: 0, attr: self.attr() }
    }

    pub(super) fn drop_references(&self, count: u64) {
        reduce(&self.references, count);
    }

    /// One opening more. The table is held.
    pub(super) fn open(&self) {
        self.openings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        reduce(&self.openings, 1);
    }

    pub(super) fn is_needed(&self) -> bool {
        self.references.load(Ordering::Relaxed) > 0
            || self.openings.load(Ordering::Relaxed) > 0
            || self.state.read().nlink > 0
    }

    /// Notes an access now, if one is to be noted.
    pub(super) fn touch(&self, mode: AtimeMode, now: Time) {
        let is_due = |state: &State| {
            !state.flags.contains(NodeFlags::NOATIME)
                && should_update_atime(mode, now, state.atime, state.mtime, state.ctime)
        };
        if is_due(&self.state.read()) {
            self.state.write().atime = now;
        }
    }
}

/// A server that gives back more than it got must not make the count wrap.
fn reduce(count: &AtomicU64, by: u64) {
    let lower = |count: u64| Some(count.saturating_sub(by));
    // It always has a new value, so the update never fails.
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
}

impl State {
    /// One name, no permissions, root's.
    pub(super) const fn new(body: Body, now: Time) -> Self {
        Self {
            permissions: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            flags: NodeFlags::empty(),
            xattrs: BTreeMap::new(),
            body,
            is_linkable: false,
        }
    }

    pub(super) const fn data(&self) -> Result<&Data> {
        match &self.body {
            Body::File(data) => Ok(data),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) const fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.body {
            Body::File(data) => Ok(data),
            Body::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) const fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) const fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Refuses a forbidden change of an immutable or append-only node.
    pub(super) fn check_changeable(&self) -> Result<()> {
        self.refuse(NodeFlags::IMMUTABLE | NodeFlags::APPEND)
    }

    pub(super) fn refuse(&self, flags: NodeFlags) -> Result<()> {
        if self.flags.intersects(flags) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Notes a change of contents or names.
    pub(super) const fn changed(&mut self, now: Time) {
        self.mtime = now;
        self.ctime = now;
    }

    /// Removes the capability, as every change of contents does, by any caller. True if there was one.
    pub(super) fn drop_capability(&mut self) -> bool {
        self.xattrs.remove(privileges::CAPABILITY_NAME).is_some()
    }

    /// True where there was something to clear.
    pub(super) fn clear_privileges(&mut self, kind: NodeKind, bare: BareSetGroup) -> bool {
        let left = privileges::cleared(kind, self.permissions, bare);
        std::mem::replace(&mut self.permissions, left) != left
    }
}
