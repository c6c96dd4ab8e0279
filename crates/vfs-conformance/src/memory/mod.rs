//! Implements a complete file system in memory: the model that the others are compared with, and the server's
//! counterpart where only the cost of the server is to be measured.
//!
//! It keeps every promise of [`FileSystem`] in the plainest way, and nothing across a restart unless it is kept on a
//! device (`device_image`). Directories report one link and twice the bytes of their names, as copy-on-write formats do
//! that do not count subdirectories.
//!
//! Locks, from the outside in
//! * the table of nodes: held for writing by whatever changes names, so a rename is seen wholly or
//!   not at all; held for reading by lookups and listings, and for a moment by everything else;
//! * one node: its attributes and contents. No call holds two nodes at once.
//!
//! Invariants
//! * a node is in the table while it has a name, is referred to or is open;
//! * every page of every file is paid for in `Space`, from before it is filled until it is gone;
//! * bytes of a page behind the end of its file are zero.
//!
//! Failure: the errors that the trait names, and nothing has changed. `EIO` and `EROFS` never happen here. Callers: the
//! tests of `fuse`, `remote` and `access`, and the server `empty` of `bench requests`.

mod attributes;
mod contents;
mod data;
mod device_image;
mod directory;
mod handle;
mod image;
mod names;
mod node;
mod rename;
mod space;
mod xattrs;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;

use vfs::atime::AtimeMode;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirSink, Entry, Errno, FileSystem, Handle, NewNode, NodeFlags,
    NodeId, OpenFlags, RenameFlags, Result, Seek, SetAttr, SyncWhat, Time, VolumeStatus, WriteFlags, Written,
    XattrMode,
};

use node::Node;
use space::Space;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Nothing is due in the background.
const STEP_WAIT: Duration = Duration::from_secs(3600);

/// How a [`MemoryFs`] is made.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Bytes that files may occupy together, in whole pages. Names and attributes cost nothing.
    pub capacity_bytes: u64,
    /// How far access times are kept.
    pub atime: AtimeMode,
    /// A fixed time of the clock, instead of the host's.
    pub clock: Option<Time>,
    /// Nothing that is changed in memory gets to the device.
    pub read_only: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { capacity_bytes: 16 << 30, atime: AtimeMode::default(), clock: None, read_only: false }
    }
}

/// The file system in memory.
#[derive(Debug)]
pub struct MemoryFs {
    table: RwLock<Table>,
    next_node: AtomicU64,
    space: Arc<Space>,
    atime: AtimeMode,
    clock: Option<Time>,
    is_read_only: bool,
    keeper: Option<device_image::Keeper>,
}

type Table = HashMap<NodeId, Arc<Node>>;

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new(&MemoryOptions::default())
    }
}

impl MemoryFs {
    /// A file system with an empty root directory that belongs to root, mode 0755.
    #[must_use]
    pub fn new(options: &MemoryOptions) -> Self {
        let root = Node::root(options.clock.unwrap_or_else(host_time));
        Self {
            next_node: AtomicU64::new(root.id.0 + 1),
            table: RwLock::new(HashMap::from([(root.id, Arc::new(root))])),
            space: Arc::new(Space::new(options.capacity_bytes)),
            atime: options.atime,
            clock: options.clock,
            is_read_only: options.read_only,
            keeper: None,
        }
    }

    /// Count of nodes that have a name, are referred to or are open.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.table.read().len()
    }

    fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        find(&self.table.read(), id).cloned()
    }

    fn now(&self) -> Time {
        self.clock.unwrap_or_else(host_time)
    }

    fn new_node_id(&self) -> NodeId {
        NodeId(self.next_node.fetch_add(1, Ordering::Relaxed))
    }

    /// Lets go of a node that lost its last reference, opening or name.
    fn remove_if_unused(&self, node: &Node) {
        if node.is_needed() {
            return;
        }
        let mut table = self.table.write();
        remove_if_unused(&mut table, node);
    }
}

/// While the table is held for writing the node can be neither referred to nor opened.
fn remove_if_unused(table: &mut Table, node: &Node) {
    if !node.is_needed() {
        table.remove(&node.id);
    }
}

fn find(table: &Table, id: NodeId) -> Result<&Arc<Node>> {
    table.get(&id).ok_or(Errno::ESTALE)
}

fn host_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}

fn to_u64(value: usize) -> u64 {
    u64::try_from(value).expect("no address is wider than 64 bits")
}

impl FileSystem for MemoryFs {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        Ok(self.look_up(parent, name)?)
    }

    fn forget(&self, node: NodeId, count: u64) {
        if let Ok(node) = self.node(node) {
            node.drop_references(count);
            self.remove_if_unused(&node);
        }
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        Ok(self.node(node)?.attr())
    }

    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        Ok(self.change_attributes(caller, node, changes)?)
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        Ok(self.symlink_target(node)?)
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
        Ok(self.make_named(caller, parent, name, new)?)
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        Ok(self.make_unnamed(caller, parent, new, flags)?)
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        Ok(self.add_link(node, parent, name)?)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        Ok(self.remove_name(parent, name, names::Remove::Other)?)
    }

    fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        Ok(self.remove_name(parent, name, names::Remove::Directory)?)
    }

    fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Answer<()> {
        Ok(self.move_name(caller, from, to, flags)?)
    }

    fn open(&self, _caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        Ok(self.open_node(node, flags)?)
    }

    fn release(&self, node: NodeId, _handle: Handle) {
        if let Ok(node) = self.node(node) {
            node.close();
            self.remove_if_unused(&node);
        }
    }

    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        Ok(self.read_at(node, handle, offset, buf)?)
    }

    fn write(&self, node: NodeId, _handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        Ok(self.write_at(node, offset, data, flags)?)
    }

    fn sync_file(&self, node: NodeId, _handle: Handle, _what: SyncWhat) -> Answer<()> {
        self.node(node)?;
        self.keep()
    }

    fn sync_fs(&self) -> Answer<()> {
        self.keep()
    }

    fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        Ok(self.allocate_range(node, flags, offset, len)?)
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        Ok(self.seek_from(node, what, offset)?)
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        Ok(self.copy(range)?)
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        Ok(self.list(node, from, with_nodes, sink)?)
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        Ok(self.xattr(node, name)?)
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        Ok(self.xattr_names(node)?)
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        Ok(self.change_xattr(node, name, value, mode, clear_set_group)?)
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        Ok(self.delete_xattr(node, name)?)
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        Ok(self.node_flags(node)?)
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        Ok(self.change_flags(caller, node, flags)?)
    }

    fn status(&self) -> Answer<VolumeStatus> {
        Ok(self.space.status())
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn step(&self) -> Duration {
        STEP_WAIT
    }
}
