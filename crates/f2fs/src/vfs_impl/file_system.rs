//! Implements `vfs::FileSystem`, the trait that servers call. The FUSE server and `vfs::Volume` make the calls.

use std::time::Duration;

use f2fs_disk::flags::Features;
use f2fs_disk::inode::NAME_BYTES_MAX;
use vfs::file_system::{
    AllocateFlags, Answer, Attr, Caller, CopyRange, DirSink, Entry, Errno, Extent, FileSystem, Handle, Maintenance,
    NewNode, NodeFlags, NodeId, OpenFlags, RenameFlags, Seek, SetAttr, SyncTicket, SyncWhat, Trim, VolumeStatus,
    WriteFlags, Written, XattrMode,
};

use super::attr::attr_of;
use super::data::{allocate, sync_marked};
use super::{F2fs, View, attr, check_is_file, ino_of, names, node_of, xattr};
use crate::change::discard::{self, Trimmed};
use crate::change::{Rewrite, flush};
use crate::error::CallerError;
use crate::write_volume::WriteVolume;
use crate::{file, xattrs};

/// Numbers that no node has.
const RESERVED_NODES: u64 = 3;
const BLOCK_BYTES: u32 = 4096;
const NAME_MAX: u32 = 255;
const _: () = assert!(NAME_BYTES_MAX == 255);

impl FileSystem for F2fs {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.look(|volume| self.find(volume, parent, name))
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.give_back(node, count);
    }

    fn attr(&self, node: NodeId) -> Answer<Attr> {
        self.look(|volume| Ok(attr_of(volume, &node_of(volume, node)?)))
    }

    fn set_attr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> Answer<Attr> {
        self.change(|volume| {
            let ino = ino_of(volume, node)?;
            attr::change_attr(volume, caller, ino, changes)?;
            sync_marked(volume, ino)?;
            Ok(attr_of(volume, &volume.inode(ino)?))
        })
    }

    fn read_link(&self, node: NodeId) -> Answer<Vec<u8>> {
        let (target, is_due) = self.look(|volume| {
            let found = node_of(volume, node)?;
            let target = file::target(volume, &self.clusters, &found)?;
            Ok((target, self.is_access_due(volume, &found)))
        })?;
        if is_due {
            self.note_access(node);
        }
        Ok(target)
    }

    fn create(&self, caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Answer<Entry> {
        self.change(|volume| {
            let ino = names::create(volume, caller, parent, Some(name), new)?;
            self.added(volume, parent, ino)
        })
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: NodeId,
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Answer<(Entry, Handle)> {
        self.change(|volume| {
            if !new.kind.is_file() {
                return Err(CallerError::InvalidArgument.into());
            }
            let ino = names::create(volume, caller, parent, None, new)?;
            let node = volume.inode(ino)?;
            let entry = self.handed_out(volume, &node);
            Ok((entry, self.opened(&node, flags, volume.progress.is_poisoned())))
        })
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Answer<Entry> {
        self.change(|volume| {
            let ino = names::link(volume, node, parent, name)?;
            self.added(volume, parent, ino)
        })
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.removed(parent, name, false)
    }

    fn remove_dir(&self, parent: NodeId, name: &[u8]) -> Answer<()> {
        self.removed(parent, name, true)
    }

    fn rename(&self, caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> Answer<()> {
        self.change(|volume| {
            let lost = names::rename(volume, caller, from, to, flags)?;
            volume.settle();
            names::drop_if_free(volume, &self.held, lost)?;
            for dir in [from.0, to.0] {
                sync_marked(volume, ino_of(volume, dir)?)?;
            }
            Ok(())
        })
    }

    fn open(&self, _caller: &Caller, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        self.open_node(node, flags)
    }

    fn release(&self, node: NodeId, _handle: Handle) {
        self.give_back(node, 1);
    }

    fn read(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        self.read_node(node, handle, offset, buf)
    }

    fn write(&self, node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Answer<Written> {
        self.write_node(node, handle, offset, data, flags)
    }

    fn sync_file(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        self.sync_node(node, handle, what)
    }

    fn begin_sync(&self, node: NodeId, _handle: Handle, what: SyncWhat) -> Answer<Option<SyncTicket>> {
        self.begin_sync_node(node, what)
    }

    fn end_sync(&self, node: NodeId, handle: Handle, begun: SyncTicket) -> Answer<()> {
        self.end_sync_node(node, handle, begun)
    }

    fn sync_fs(&self) -> Answer<()> {
        self.sync_volume(false)
    }

    fn finish(&self) -> Answer<()> {
        self.let_go();
        self.sync_volume(true)
    }

    fn allocate(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Answer<()> {
        self.change(|volume| allocate(volume, node, flags, (offset, len)))
    }

    /// Dirty pages get their blocks first: reserved blocks are neither data nor holes.
    fn seek(&self, node: NodeId, what: Seek, offset: u64) -> Answer<u64> {
        self.place(node)?;
        self.look(|volume| {
            let found = node_of(volume, node)?;
            check_is_file(&found)?;
            file::seek(volume, &found, what, offset)
        })
    }

    fn copy_range(&self, range: &CopyRange) -> Answer<u64> {
        self.copy_nodes(range)
    }

    fn read_dir(&self, node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> Answer<()> {
        let is_due = self.look(|volume| {
            self.list(volume, node, from, with_nodes, sink)?;
            Ok(self.is_access_due(volume, &node_of(volume, node)?))
        })?;
        if is_due {
            self.note_access(node);
        }
        Ok(())
    }

    fn get_xattr(&self, node: NodeId, name: &[u8]) -> Answer<Vec<u8>> {
        self.look(|volume| xattr::get(volume, &node_of(volume, node)?, name))
    }

    fn list_xattrs(&self, node: NodeId) -> Answer<Vec<Vec<u8>>> {
        self.look(|volume| xattrs::names(volume, &node_of(volume, node)?))
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> Answer<()> {
        self.change(|volume| {
            let ino = ino_of(volume, node)?;
            xattr::set(volume, ino, name, value, mode, clear_set_group)?;
            sync_marked(volume, ino)
        })
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Answer<()> {
        self.change(|volume| {
            let ino = ino_of(volume, node)?;
            xattr::remove(volume, ino, name)?;
            sync_marked(volume, ino)
        })
    }

    fn flags(&self, node: NodeId) -> Answer<NodeFlags> {
        self.look(|volume| Ok(attr::flags(&node_of(volume, node)?.inode)))
    }

    fn set_flags(&self, caller: &Caller, node: NodeId, flags: NodeFlags) -> Answer<()> {
        self.change(|volume| {
            let ino = ino_of(volume, node)?;
            attr::change_flags(volume, caller, ino, flags)?;
            sync_marked(volume, ino)
        })
    }

    fn extents(&self, node: NodeId, offset: u64) -> Answer<Vec<Extent>> {
        self.place(node)?;
        self.look(|volume| file::extents(volume, &node_of(volume, node)?, offset))
    }

    fn status(&self) -> Answer<VolumeStatus> {
        Ok(status(&self.view()))
    }

    fn ignores_case(&self) -> bool {
        self.view().features().contains(Features::CASEFOLD)
    }

    fn is_read_only(&self) -> bool {
        self.writers().is_none()
    }

    fn step(&self) -> Duration {
        self.run_step()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for F2fs {
    fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        self.trim_volume(wanted, watch)
    }
}

impl F2fs {
    /// The entry of a node after its name was added to a directory.
    fn added(&self, volume: &mut WriteVolume, parent: NodeId, ino: f2fs_disk::Nid) -> crate::Result<Entry> {
        sync_marked(volume, ino_of(volume, parent)?)?;
        let node = volume.inode(ino)?;
        Ok(self.handed_out(volume, &node))
    }

    fn removed(&self, parent: NodeId, name: &[u8], is_dir: bool) -> Answer<()> {
        self.change(|volume| {
            let lost = names::remove(volume, parent, name, is_dir)?;
            volume.settle();
            names::drop_if_free(volume, &self.held, lost)?;
            sync_marked(volume, ino_of(volume, parent)?)
        })
    }

    /// Discards free space, a part at a time.
    fn trim_volume(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Answer<u64> {
        let status = self.look(|volume| Ok(status(volume)))?;
        if wanted.range.start >= status.blocks.saturating_mul(u64::from(status.block_bytes)) {
            return Err(Errno::EINVAL.into());
        }
        let writable = self.writable()?;
        let told = |error| self.faults.report(error);
        writable.volume.read().progress.check().map_err(told)?;
        self.sync_volume(false)?;
        // The program that wrote the checkpoint may have ended before it was durable.
        self.look(|volume| volume.blocks.flush())?;
        let mut done = Trimmed::default();
        let mut goes_on = true;
        while goes_on {
            goes_on = discard::trim_some(&writable.volume.read().space, wanted, &mut done).map_err(told)?;
            watch(bytes_of(done.seen), bytes_of(done.all));
        }
        Ok(done.bytes)
    }

    /// Allocates the blocks of a file's dirty pages.
    fn place(&self, node: NodeId) -> Answer<()> {
        let has_pages = self.look(|volume| {
            let ino = ino_of(volume, node)?;
            let is_poisoned = volume.writable().is_none_or(|volume| volume.progress.is_poisoned());
            Ok(!is_poisoned && volume.dirty.pages.of(ino).is_some())
        })?;
        if !has_pages {
            return Ok(());
        }
        self.change(|volume| flush::files(volume, &[(ino_of(volume, node)?, Rewrite::Usual)]))
    }
}

fn bytes_of(blocks: u32) -> u64 {
    u64::from(blocks).saturating_mul(u64::from(BLOCK_BYTES))
}

/// As in the kernel: blocks of the whole device except those before the first segment, and as many nodes as there are
/// numbers, or blocks if these are fewer.
fn status(volume: &View<'_>) -> VolumeStatus {
    let superblock = volume.superblock().fields();
    let checkpoint = volume.checkpoint().fields();
    let start = u64::from(superblock.segment0_blkaddr.get());
    let user = checkpoint.user_block_count.get();
    let counted = (checkpoint.valid_block_count.get(), checkpoint.valid_node_count.get());
    let now = |volume: &WriteVolume| (volume.counters.blocks, volume.counters.nodes);
    let (used, used_nodes) = volume.writable().map_or(counted, now);
    let free = user.saturating_sub(used);
    let nodes = u64::from(volume.geometry().nid_count).saturating_sub(RESERVED_NODES);
    let nodes_left = nodes.saturating_sub(u64::from(used_nodes));
    let is_limited_by_blocks = nodes > user;
    VolumeStatus {
        block_bytes: BLOCK_BYTES,
        blocks: superblock.block_count.get().saturating_sub(start),
        blocks_free: free,
        blocks_available: free,
        nodes: if is_limited_by_blocks { user } else { nodes },
        nodes_free: if is_limited_by_blocks { free } else { nodes_left.min(free) },
        name_bytes_max: NAME_MAX,
    }
}
