//! The trait that servers call.

use std::time::Duration;

use f2fs_disk::inode::NAME_BYTES_MAX;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirSink, Entry, Extent, FileSystem, Handle, Layout, NewNode,
    NodeFlags, NodeId, OpenFlags, RenameFlags, Seek, SetAttr, Size, SyncWhat, Trim, VolumeStatus, WriteFlags, Written,
    XattrMode,
};

use super::F2fs;
use crate::{file, xattrs};

/// Nothing is due in the background.
const STEP_WAIT: Duration = Duration::from_secs(3600);
/// Numbers that no node has.
const RESERVED_NODES: u64 = 3;
const BLOCK_BYTES: u32 = 4096;
const NAME_MAX: u32 = 255;
const _: () = assert!(NAME_BYTES_MAX == 255);

impl FileSystem for F2fs {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.find(parent, name).map_err(|error| self.faults.told(error))
    }

    /// Nodes are not counted: their numbers lead to them without that.
    fn forget(&self, _node: NodeId, _count: u64) {}

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        let found = self.node(node).map_err(|error| self.faults.told(error))?;
        Ok(self.attr_of(&found))
    }

    fn set_attr(&self, _caller: &Caller, _node: NodeId, _changes: &SetAttr) -> Answer<Attr> {
        self.refuse()
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        let read = self.node(node).and_then(|node| file::target(&self.store, &self.clusters, &node));
        read.map_err(|error| self.faults.told(error))
    }

    fn create(&self, _caller: &Caller, _parent: NodeId, _name: &[u8], _new: &NewNode<'_>) -> Answer<Entry> {
        self.refuse()
    }

    fn create_unnamed(
        &self,
        _caller: &Caller,
        _parent: NodeId,
        _new: &NewNode<'_>,
        _flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        self.refuse()
    }

    fn link(&self, _node: NodeId, _parent: NodeId, _name: &[u8]) -> Answer<Entry> {
        self.refuse()
    }

    fn unlink(&self, _parent: NodeId, _name: &[u8]) -> Answer<()> {
        self.refuse()
    }

    fn remove_dir(&self, _parent: NodeId, _name: &[u8]) -> Answer<()> {
        self.refuse()
    }

    fn rename(
        &self,
        _caller: &Caller,
        _from: (NodeId, &[u8]),
        _to: (NodeId, &[u8]),
        _flags: RenameFlags,
    ) -> Answer<()> {
        self.refuse()
    }

    fn open(&self, _caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        if flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE) {
            return self.refuse();
        }
        let found = self.node(node).map_err(|error| self.faults.told(error))?;
        if found.inode.kind() == f2fs_disk::inode::Kind::File {
            found.check_is_plain().map_err(|error| self.faults.told(error))?;
        }
        Ok(Handle(0))
    }

    fn release(&self, _node: NodeId, _handle: Handle) {}

    fn read(&self, node: NodeId, _handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let read = self.node(node).and_then(|node| {
            Self::check_is_file(&node)?;
            file::read(&self.store, &self.clusters, &node, offset, buf)
        });
        read.map_err(|error| self.faults.told(error))
    }

    fn write(&self, _node: NodeId, _handle: Handle, _offset: u64, _data: &[u8], _flags: WriteFlags) -> Answer<Written> {
        self.refuse()
    }

    /// Nothing is ever to be made durable.
    fn sync_file(&self, _node: NodeId, _handle: Handle, _what: SyncWhat) -> Answer<()> {
        Ok(())
    }

    fn sync_fs(&self) -> Answer<()> {
        Ok(())
    }

    fn allocate(&self, _node: NodeId, _flags: AllocateFlags, _offset: u64, _len: u64) -> Answer<()> {
        self.refuse()
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        let found = self.node(node).and_then(|node| {
            Self::check_is_file(&node)?;
            file::seek(&self.store, &node, what, offset)
        });
        found.map_err(|error| self.faults.told(error))
    }

    fn copy_range(&self, _range: &CopyRange) -> Answer<u64> {
        self.refuse()
    }

    fn reflink(&self, _range: &CopyRange) -> Answer<()> {
        self.refuse()
    }

    fn dedupe(&self, _range: &CopyRange) -> Answer<bool> {
        self.refuse()
    }

    fn defragment(&self, _node: NodeId, _wanted: &Layout<'_>) -> Answer<u64> {
        self.refuse()
    }

    fn trim(&self, _wanted: &Trim, _watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        self.refuse()
    }

    fn resize(&self, _size: Size) -> Answer<u64> {
        self.refuse()
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        self.list(node, from, with_nodes, sink).map_err(|error| self.faults.told(error))
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        let value = self.node(node).and_then(|node| xattrs::value(&self.store, &node, name));
        value.map_err(|error| self.faults.told(error))
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        let names = self.node(node).and_then(|node| xattrs::names(&self.store, &node));
        names.map_err(|error| self.faults.told(error))
    }

    fn set_xattr(
        &self,
        _node: NodeId,
        _name: &[u8],
        _value: &[u8],
        _mode: XattrMode,
        _clear_set_group: bool,
    ) -> Answer<()> {
        self.refuse()
    }

    fn remove_xattr(&self, _node: NodeId, _name: &[u8]) -> Answer<()> {
        self.refuse()
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        Ok(self.attr(node)?.flags)
    }

    fn set_flags(&self, _caller: &Caller, _node: NodeId, _flags: NodeFlags) -> Answer<()> {
        self.refuse()
    }

    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        let extents = self.node(node).and_then(|node| file::extents(&self.store, &node, offset));
        extents.map_err(|error| self.faults.told(error))
    }

    /// As the kernel counts: blocks of the whole device but those before the first segment, and as many nodes as there
    /// are numbers, or blocks if these are fewer.
    fn status(&self) -> Answer<VolumeStatus> {
        let superblock = self.store.superblock().fields();
        let checkpoint = self.store.checkpoint().fields();
        let start = u64::from(superblock.segment0_blkaddr.get());
        let user = checkpoint.user_block_count.get();
        let free = user.saturating_sub(checkpoint.valid_block_count.get());
        let nodes = u64::from(self.store.geometry().nid_count).saturating_sub(RESERVED_NODES);
        let nodes_left = nodes.saturating_sub(u64::from(checkpoint.valid_node_count.get()));
        let is_limited_by_blocks = nodes > user;
        Ok(VolumeStatus {
            block_bytes: BLOCK_BYTES,
            blocks: superblock.block_count.get().saturating_sub(start),
            blocks_free: free,
            blocks_available: free,
            nodes: if is_limited_by_blocks { user } else { nodes },
            nodes_free: if is_limited_by_blocks { free } else { nodes_left.min(free) },
            name_bytes_max: NAME_MAX,
        })
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn step(&self) -> Duration {
        STEP_WAIT
    }
}
