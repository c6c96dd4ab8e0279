//! Reads, writes, allocates and copies contents of files. Called by `memory` for `FileSystem`.

use std::sync::Arc;

use vfs::append_only;
use vfs::atime::AtimeMode;
use vfs::file_system::{
    AllocateFlags, CopyRange, Errno, Handle, NodeFlags, NodeId, NodeKind, OpenFlags, Result, Seek, Time, WriteFlags,
    Written,
};
use vfs::privileges::BareSetGroup;

use super::data::range_end;
use super::node::{Body, Node};
use super::{MemoryFs, find, handle, to_u64};

/// A copy goes through a buffer; one call copies no more than this.
const COPY_BYTES_MAX: u64 = 1 << 20;

impl MemoryFs {
    pub(super) fn open_node(&self, id: NodeId, flags: OpenFlags) -> Result<Handle> {
        let node = {
            let table = self.table.read();
            let node = find(&table, id)?;
            node.open();
            Arc::clone(node)
        };
        prepare(&node, flags, self.now()).inspect_err(|_| {
            node.close();
            self.remove_if_unused(&node);
        })?;
        Ok(handle::new(flags))
    }

    pub(super) fn read_at(&self, id: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(id)?;
        let count = node.state.read().data()?.read(offset, buf);
        if !handle::leaves_atime(handle) && self.atime != AtimeMode::No {
            node.touch(self.atime, self.now());
        }
        Ok(count)
    }

    pub(super) fn write_at(&self, id: NodeId, offset: u64, data: &[u8], flags: WriteFlags) -> Result<Written> {
        let node = self.node(id)?;
        let mut state = node.state.write();
        let size = state.data()?.size();
        let offset = if flags.contains(WriteFlags::APPEND) { size } else { offset };
        // Data from the kernel's cache was written when that was permitted.
        if !flags.contains(WriteFlags::FROM_CACHE) {
            state.refuse(NodeFlags::IMMUTABLE)?;
            if offset < size {
                state.refuse(NodeFlags::APPEND)?;
            }
        } else if state.flags.contains(NodeFlags::APPEND) {
            let mut old = vec![0; data.len()];
            let count = state.data()?.read(offset, &mut old);
            if !append_only::may_overwrite(&old[..count], data, flags) {
                return Err(Errno::EPERM);
            }
        }
        let mut written = Written::default();
        if data.is_empty() {
            return Ok(written);
        }
        range_end(offset, to_u64(data.len()))?;
        state.data_mut()?.write(offset, data)?;
        state.changed(self.now());
        if !flags.contains(WriteFlags::FROM_CACHE) {
            written.cleared_privileges |= state.drop_capability();
        }
        if flags.contains(WriteFlags::CLEAR_PRIVILEGES) {
            let bare = BareSetGroup::for_write(flags);
            written.cleared_privileges |= state.clear_privileges(node.kind, bare);
        }
        Ok(written)
    }

    pub(super) fn allocate_range(&self, id: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Result<()> {
        let node = self.node(id)?;
        let mut state = node.state.write();
        let size = state.data()?.size();
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let keeps_size = flags.contains(AllocateFlags::KEEP_SIZE);
        let operation = flags - AllocateFlags::KEEP_SIZE;
        let is_supported = operation.is_empty()
            || operation == AllocateFlags::ZERO_RANGE
            || (operation == AllocateFlags::PUNCH_HOLE && keeps_size);
        if !is_supported {
            return Err(Errno::EOPNOTSUPP);
        }
        let range = offset..range_end(offset, len)?;
        state.refuse(NodeFlags::IMMUTABLE)?;
        if !operation.is_empty() {
            state.refuse(NodeFlags::APPEND)?;
        }
        let data = state.data_mut()?;
        if operation == AllocateFlags::PUNCH_HOLE {
            data.punch(range);
        } else {
            let end = range.end;
            if operation.is_empty() {
                data.allocate(range)?;
            } else {
                data.zero(range)?;
            }
            if !keeps_size && end > size {
                data.set_size(end);
            }
        }
        state.changed(self.now());
        state.drop_capability();
        Ok(())
    }

    pub(super) fn seek_from(&self, id: NodeId, what: Seek, offset: u64) -> Result<u64> {
        let node = self.node(id)?;
        let state = node.state.read();
        let data = state.data()?;
        let found = match what {
            Seek::Data => data.next_data(offset),
            Seek::Hole => data.next_hole(offset),
        };
        found.ok_or(Errno::ENXIO)
    }

    pub(super) fn copy(&self, range: &CopyRange) -> Result<u64> {
        let source = self.node(range.source)?;
        let target = self.node(range.target)?;
        target.state.read().data()?;
        let mut bytes = {
            let state = source.state.read();
            let left = state.data()?.size().saturating_sub(range.source_offset);
            let count = range.len.min(left);
            check_do_not_overlap(range, count)?;
            vec![0; usize::try_from(count.min(COPY_BYTES_MAX)).unwrap_or(0)]
        };
        let count = source.state.read().data()?.read(range.source_offset, &mut bytes);
        let flags = WriteFlags::empty();
        self.write_at(range.target, range.target_offset, &bytes[..count], flags)?;
        Ok(to_u64(count))
    }

    pub(super) fn symlink_target(&self, id: NodeId) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        let target = match &node.state.read().body {
            Body::Symlink(target) => target.clone(),
            _ => return Err(Errno::EINVAL),
        };
        node.touch(self.atime, self.now());
        Ok(target)
    }
}

/// Checks and effects of opening; the node counts as open already.
fn prepare(node: &Node, flags: OpenFlags, now: Time) -> Result<()> {
    let truncates = flags.contains(OpenFlags::TRUNCATE);
    if !flags.contains(OpenFlags::WRITE) && !truncates {
        return Ok(());
    }
    if node.kind == NodeKind::Directory {
        return Err(Errno::EISDIR);
    }
    let mut state = node.state.write();
    state.refuse(NodeFlags::IMMUTABLE)?;
    if truncates || !flags.contains(OpenFlags::APPEND) {
        state.refuse(NodeFlags::APPEND)?;
    }
    if truncates && node.kind == NodeKind::File {
        state.data_mut()?.set_size(0);
        state.changed(now);
        state.drop_capability();
        if flags.contains(OpenFlags::CLEAR_PRIVILEGES) {
            state.clear_privileges(node.kind, BareSetGroup::Cleared);
        }
    }
    Ok(())
}

fn check_do_not_overlap(range: &CopyRange, count: u64) -> Result<()> {
    range_end(range.target_offset, count)?;
    let distance = range.source_offset.abs_diff(range.target_offset);
    if range.source == range.target && distance < count {
        return Err(Errno::EINVAL);
    }
    Ok(())
}
