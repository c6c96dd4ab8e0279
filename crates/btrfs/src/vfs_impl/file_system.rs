//! Implements [`vfs::FileSystem`]: passes each request to the module for it. Servers of mounts and the volume by paths
//! call it through the trait.

use std::time::Duration;

use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, Control, ControlAnswer, CopyRange, DirSink, EncodedData, Entry, Extent,
    Follow, Handle, Layout, NewNode, NodeAt, NodeFlags, OpenFlags, RenameFlags, Seek, SetAttr, Size, Subvolumes,
    SyncTicket, SyncWhat, Trim, VolumeStatus, WholeNode, WriteFlags, Written, XattrMode,
};
use vfs::{Controls, FileSystem, Maintenance, NodeId};

use super::BtrfsFs;
use super::stat::attr_of;
use crate::balance::BalanceStatus;
use crate::error::CallerError;
use crate::open_volume::SpaceUsage;

impl FileSystem for BtrfsFs {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.answer(self.lookup_entry(parent, name))
    }

    fn resolve(&self, path: &[u8], follow: Follow) -> Answer<Entry> {
        match self.answer(self.resolve_path(path, follow))? {
            Some(entry) => Ok(entry),
            None => vfs::resolve(self, path, follow),
        }
    }

    fn attr_at(&self, path: &[u8], follow: Follow) -> Answer<Attr> {
        match self.inode_at(path, follow) {
            Ok((inode, Some(number))) => Ok(attr_of(&inode.metadata(), number)),
            Ok((_, None)) => {
                let entry = self.resolve(path, follow)?;
                self.forget(entry.node, 1);
                Ok(entry.attr)
            }
            Err(error) => Err(self.faults.answer(error)),
        }
    }

    fn node_at(&self, path: &[u8], follow: Follow) -> Answer<NodeAt> {
        if let Some(at) = self.answer(self.node_of_path(path, follow))? {
            return Ok(at);
        }
        let entry = self.resolve(path, follow)?;
        Ok(NodeAt { node: entry.node, kind: entry.attr.kind, is_referenced: true })
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.forget_node(node, count);
        self.clean();
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.answer(self.attr_of_node(node))
    }

    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        self.answer(self.change_attr(caller, node, changes))
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        self.answer(self.link_target(node))
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
        self.answer(self.create_entry(caller, parent, name, new))
    }

    fn create_whole(&self, parent: NodeId, name: &[u8], node: &WholeNode<'_>) -> Answer<Attr> {
        self.answer(self.create_whole_node(parent, name, node))
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        let entry = self.answer(self.create_unnamed_entry(caller, parent, new))?;
        Ok((entry, self.handle(flags)))
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.answer(self.link_entry(node, parent, name))
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.answer(self.unlink_name(parent, name))
    }

    fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.answer(self.remove_dir_name(parent, name))
    }

    fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.answer(self.rename_name(caller, from, to, flags))
    }

    fn open(&self, caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        self.answer(self.open_node(caller, node, flags))
    }

    fn release(&self, node: NodeId, handle: Handle) {
        self.handles.close(handle);
        self.release_node(node);
        self.clean();
    }

    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.answer(self.read_node(node, handle, offset, buf))
    }

    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        self.answer(self.write_node(node, handle, offset, data, flags))
    }

    fn write_encoded(&self, node: NodeId, encoded: &EncodedData<'_>) -> Answer<bool> {
        self.answer(self.write_encoded_node(node, encoded))
    }

    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        self.answer(self.sync_node(node, handle, what))
    }

    fn begin_sync(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<Option<SyncTicket>> {
        self.answer(self.begin_sync_node(node, handle, what))
    }

    fn end_sync(&self, node: NodeId, handle: Handle, begun: SyncTicket) -> Answer<()> {
        self.answer(self.end_sync_node(node, handle, begun))
    }

    fn sync_fs(&self) -> Answer<()> {
        self.answer(self.sync_volume())
    }

    fn finish(&self) -> Answer<()> {
        self.let_go();
        self.sync_fs()
    }

    fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        self.answer(self.allocate_node(node, flags, offset, len))
    }

    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        self.answer(self.seek_node(node, what, offset))
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        self.answer(self.copy_nodes(range))
    }

    fn reflink(&self, range: &CopyRange) -> Answer<()> {
        self.answer(self.reflink_nodes(range))
    }

    fn dedupe(&self, range: &CopyRange) -> Answer<bool> {
        self.answer(self.dedupe_nodes(range))
    }

    fn subvolumes(&self) -> Option<&dyn Subvolumes> {
        Some(self)
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        self.answer(self.list_names(node, from, with_nodes, sink))
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        self.answer(self.xattr(node, name))
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        self.answer(self.xattr_names(node))
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        self.answer(self.put_xattr(node, name, value, mode, clear_set_group))
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        self.answer(self.drop_xattr(node, name))
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        self.answer(self.flags_of(node))
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        self.answer(self.change_flags(caller, node, flags))
    }

    fn flag_names(&self, node: NodeId) -> Answer<String> {
        Ok(self.answer(self.inode(node))?.state().flags.to_string())
    }

    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        self.answer(self.extents_of(node, offset))
    }

    fn status(&self) -> Answer<VolumeStatus> {
        Ok(self.volume.status())
    }

    fn is_read_only(&self) -> bool {
        self.volume.is_read_only()
    }

    fn step(&self) -> Duration {
        self.run_step()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn controls(&self) -> Option<&dyn Controls> {
        Some(self)
    }
}

impl Maintenance for BtrfsFs {
    fn defragment(&self, node: NodeId, wanted: &Layout<'_>) -> Answer<u64> {
        self.answer(self.defragment_node(node, wanted))
    }

    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        if wanted.range.start >= self.core().store.addresses_end() {
            return self.answer(Err(CallerError::InvalidArgument.into()));
        }
        let discarded = self.core().store.trim(wanted.range.clone(), wanted.bytes_min, watch);
        self.answer(discarded.map_err(Into::into))
    }

    fn resize(&self, size: Size) -> Answer<u64> {
        self.answer(self.volume.resize(size))
    }

    fn is_order(&self, name: &[u8]) -> bool {
        [BalanceStatus::XATTR.as_bytes(), SpaceUsage::RESIZE_XATTR.as_bytes()].contains(&name)
    }

    fn order(&self, name: &[u8], value: &[u8]) -> Answer<()> {
        match name == SpaceUsage::RESIZE_XATTR.as_bytes() {
            true => self.answer(self.order_resize(value)),
            false => self.answer(self.order_balance(value)),
        }
    }
}

impl Controls for BtrfsFs {
    fn control(&self, control: &Control<'_>) -> Answer<ControlAnswer> {
        Ok(self.control_node(control)?)
    }

    fn control_names(&self, control: &Control<'_>) -> Vec<(NodeId, Vec<u8>)> {
        let changed = self.control_changes(control);
        changed.map_or_else(Vec::new, |name| vec![name])
    }

    fn needs_callers(&self) -> bool {
        self.options.user_subvol_ioctls
    }

    fn control_takes_data(&self, control: &Control<'_>) -> bool {
        self.control_takes(control)
    }
}
