//! Carries out requests on the contents of files: opening, reading, writing, syncing, allocation, copies. Called by
//! `file_system`; `control_change`, `list` and `names` use some of them.

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::Generation;
use btrfs_store::LogTicket;
use codec::CompressionType;
use vfs::NodeId;
use vfs::append_only;
use vfs::file_system::{
    AllocateFlags, Caller, CopyRange, EncodedData, Extent, Handle, Layout, OpenFlags, Seek, SyncTicket, SyncWhat,
    WriteFlags, Written,
};
use vfs::privileges::BareSetGroup;

use super::names::is_openable;
use super::{BtrfsFs, Hold, handles, privileges};
use crate::error::{CallerError, Error, Result};
use crate::file::{self, AllocateMode, CloneRange};
use crate::inode::{Compression, FileType, Inode, InodeFlags};
use crate::log;
use crate::writeback;

impl BtrfsFs {
    pub(super) fn open_node(&self, _caller: &Caller, node: NodeId, flags: OpenFlags) -> Result<Handle> {
        let inode = self.inode(node)?;
        if !is_openable(inode.kind()) {
            return Err(CallerError::NotSupported.into());
        }
        let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE);
        if writes {
            check_may_write(&inode, flags)?;
        }
        inode.open()?;
        if inode.root.is_deleted() && !self.core().inodes.has(&inode) {
            // It was closed when its subvolume was deleted, and no request would find it.
            self.close(&inode);
            return Err(CallerError::Stale.into());
        }
        if flags.contains(OpenFlags::TRUNCATE) && !inode.kind().is_dir() {
            let emptied = self.truncate(&inode, flags.contains(OpenFlags::CLEAR_PRIVILEGES));
            if let Err(error) = emptied {
                self.close(&inode);
                return Err(error);
            }
        }
        Ok(self.handle(flags))
    }

    /// The handle of a new opening.
    pub(super) fn handle(&self, flags: OpenFlags) -> Handle {
        self.handles.open(flags, self.core().store.poisoned().is_some())
    }

    fn truncate(&self, inode: &Arc<Inode>, clears_bits: bool) -> Result<()> {
        privileges::drop_for_write(self, inode, clears_bits.then_some(BareSetGroup::Cleared))?;
        file::set_size(self.core(), inode, 0)?;
        self.sync_marked(inode)
    }

    pub(super) fn release_node(&self, node: NodeId) {
        let Some((tree, ino)) = self.nodes.inode(node) else {
            return;
        };
        if let Some(inode) = self.core().inodes.get(tree, ino) {
            if inode.data.take_replaced() {
                self.write_out(&inode);
            }
            self.close(&inode);
        }
    }

    /// Writes the dirty data of a file to disk without making it durable: the next commit does. Programs that replace a
    /// file's contents, or rename a new file over it, without a sync expect one of the two versions; the kernel's btrfs
    /// does the same for them. On failure the data stays dirty, and the next sync reports it.
    pub(super) fn write_out(&self, inode: &Arc<Inode>) {
        if inode.data.is_clean() || inode.is_nameless() {
            return;
        }
        if let Err(error) = writeback::flush_inode(self.core(), inode) {
            self.faults.errno(&error);
        }
    }

    pub(super) fn read_node(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.inode(node)?;
        check_is_file(&inode)?;
        let count = file::read_at(self.core(), &inode, offset, buf)?;
        if !handles::leaves_atime(handle) {
            self.touch(&inode);
        }
        Ok(count)
    }

    /// Updates the access time, if that is due.
    pub(super) fn touch(&self, inode: &Arc<Inode>) {
        self.namespace().note_access(inode, self.options.atime);
    }

    pub(super) fn write_node(
        &self,
        node: NodeId,
        handle: Handle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<Written> {
        let inode = self.live_inode(node)?;
        check_is_file(&inode)?;
        let mut written = Written::default();
        if data.is_empty() {
            return Ok(written);
        }
        let is_cached = flags.contains(WriteFlags::FROM_CACHE);
        // Data in the kernel's cache was accepted before; its writers get the error when they sync.
        if let Some(error) = self.core().store.poisoned().filter(|_| !is_cached) {
            return Err(error.into());
        }
        let clears = flags.contains(WriteFlags::CLEAR_PRIVILEGES);
        let bits = clears.then(|| BareSetGroup::for_write(flags));
        // Cached data may have been written before the privileges were set, so it does not clear them by itself.
        if clears || !is_cached {
            written.cleared_privileges = privileges::drop_for_write(self, &inode, bits)?;
        }
        if flags.contains(WriteFlags::APPEND) {
            // The lock makes appends take turns; other writes go to their offset.
            let _names = inode.lock_names();
            let end = inode.state().size;
            written.missing = data.len() - file::write_some(self.core(), &inode, end, data)?;
        } else if is_cached {
            self.check_appends(&inode, offset, data, flags)?;
            // The file's other flags were checked when the kernel accepted the write.
            file::write_back(self.core(), &inode, offset, data)?;
        } else {
            written.missing = data.len() - file::write_some(self.core(), &inode, offset, data)?;
        }
        if flags.contains(WriteFlags::DATA_SYNC) {
            let synced = log::sync_inode(self.namespace(), &inode, SyncWhat::Data);
            self.report_once(node, handle, synced)?;
        }
        self.report_once(node, handle, self.sync_marked(&inode))?;
        Ok(written)
    }

    pub(super) fn write_encoded_node(&self, node: NodeId, encoded: &EncodedData<'_>) -> Result<bool> {
        let Some(kind) = CompressionType::from_name(encoded.compression) else {
            return Ok(false);
        };
        let inode = self.live_inode(node)?;
        check_is_file(&inode)?;
        privileges::drop_for_write(self, &inode, None)?;
        let EncodedData { offset: at, len, extent_len: ram_bytes, extent_offset: offset, data, .. } = *encoded;
        let written =
            file::write_encoded(self.core(), &inode, &file::Encoded { at, len, ram_bytes, offset, kind, data })?;
        self.sync_marked(&inode)?;
        Ok(written)
    }

    /// Refuses cached writes that would change existing bytes of an append-only file.
    fn check_appends(&self, inode: &Inode, offset: u64, data: &[u8], flags: WriteFlags) -> Result<()> {
        if !inode.state().flags.contains(InodeFlags::APPEND) {
            return Ok(());
        }
        let mut old = vec![0; data.len()];
        let count = file::read_at(self.core(), inode, offset, &mut old)?;
        match append_only::may_overwrite(old.get(..count).unwrap_or_default(), data, flags) {
            true => Ok(()),
            false => Err(CallerError::NotPermitted.into()),
        }
    }

    pub(super) fn sync_node(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Result<()> {
        let inode = self.inode(node)?;
        let synced = log::sync_inode(self.namespace(), &inode, what);
        self.report_once(node, handle, synced)
    }

    pub(super) fn begin_sync_node(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Result<Option<SyncTicket>> {
        let inode = self.inode(node)?;
        let begun = log::begin_sync(self.namespace(), &inode, what);
        let asked = self.report_once(node, handle, begun)?;
        Ok(asked.map(|LogTicket { generation, ticket }| SyncTicket([generation.0, ticket])))
    }

    pub(super) fn end_sync_node(&self, node: NodeId, handle: Handle, begun: SyncTicket) -> Result<()> {
        let SyncTicket([generation, ticket]) = begun;
        let asked = LogTicket { generation: Generation(generation), ticket };
        let inode = self.inode(node)?;
        let synced = log::end_sync(self.core(), &inode, asked);
        self.report_once(node, handle, synced)
    }

    /// Returns the error that stopped writing to the first sync of each handle that was open then; to all other syncs,
    /// that writing has stopped.
    fn report_once<T>(&self, node: NodeId, handle: Handle, synced: Result<T>) -> Result<T> {
        match synced {
            Err(Error::Poisoned { reason }) if self.handles.mark_reported(node, handle) => {
                Err(btrfs_store::Error::clone(&reason).into())
            }
            Err(error) if error.caller_error().is_none() && self.core().store.poisoned().is_some() => {
                self.handles.mark_reported(node, handle);
                Err(error)
            }
            result => result,
        }
    }

    pub(super) fn allocate_node(&self, node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> Result<()> {
        let mode = allocate_mode(flags)?;
        let inode = self.live_inode(node)?;
        check_is_file(&inode)?;
        privileges::drop_for_write(self, &inode, None)?;
        file::allocate(self.core(), &inode, mode, offset, len)?;
        self.note_change(&inode)?;
        self.sync_marked(&inode)
    }

    /// Sets the times of the last change, where the operation did not.
    fn note_change(&self, inode: &Inode) -> Result<()> {
        let reservation = self.namespace().reserve_urgent(1)?;
        let now = self.core().now();
        self.namespace().apply(reservation, |txn| {
            inode.change(txn, |state| (state.mtime, state.ctime) = (now, now));
            Ok(())
        })
    }

    pub(super) fn seek_node(&self, node: NodeId, what: Seek, offset: u64) -> Result<u64> {
        let inode = self.inode(node)?;
        check_is_file(&inode)?;
        match what {
            Seek::Data => file::seek_data(self.core(), &inode, offset),
            Seek::Hole => file::seek_hole(self.core(), &inode, offset),
        }
    }

    pub(super) fn extents_of(&self, node: NodeId, offset: u64) -> Result<Vec<Extent>> {
        let inode = self.inode(node)?;
        check_is_file(&inode)?;
        file::extents(self.core(), &inode, offset)
    }

    /// The two files of a copy, and its range in them.
    fn both_files(&self, range: &CopyRange) -> Result<(Hold<'_>, Hold<'_>, CloneRange)> {
        let source = self.live_inode(range.source)?;
        let target = self.live_inode(range.target)?;
        check_is_file(&source)?;
        check_is_file(&target)?;
        let range = CloneRange { source: range.source_offset, destination: range.target_offset, len: range.len };
        Ok((source, target, range))
    }

    pub(super) fn reflink_nodes(&self, range: &CopyRange) -> Result<()> {
        let (source, target, range) = self.both_files(range)?;
        privileges::drop_for_write(self, &target, None)?;
        file::reflink(self.core(), &source, &target, range)?;
        self.sync_marked(&target)
    }

    pub(super) fn dedupe_nodes(&self, range: &CopyRange) -> Result<bool> {
        let (source, target, range) = self.both_files(range)?;
        let is_same = file::share_same(self.core(), &source, &target, range)?;
        self.sync_marked(&target)?;
        Ok(is_same)
    }

    pub(super) fn defragment_node(&self, node: NodeId, wanted: &Layout<'_>) -> Result<u64> {
        let inode = self.live_inode(node)?;
        let compression = match wanted.compression {
            Some(text) => Some(Compression::parse(text).ok_or(CallerError::InvalidArgument)?),
            None => None,
        };
        let layout = file::Layout { compression, extent_bytes: wanted.extent_bytes };
        self.lay_out(&inode, wanted.range.clone(), layout)
    }

    pub(super) fn lay_out(&self, inode: &Arc<Inode>, range: Range<u64>, layout: file::Layout) -> Result<u64> {
        check_is_file(inode)?;
        let moved = file::defragment(self.core(), inode, range, layout)?;
        self.sync_marked(inode)?;
        Ok(moved)
    }

    pub(super) fn copy_nodes(&self, range: &CopyRange) -> Result<u64> {
        let (source, target, range) = self.both_files(range)?;
        privileges::drop_for_write(self, &target, None)?;
        let copied = file::copy_range(self.core(), &source, &target, range)?;
        self.sync_marked(&target)?;
        Ok(copied)
    }
}

/// Refuses to open files for writing that cannot be written.
fn check_may_write(inode: &Inode, flags: OpenFlags) -> Result<()> {
    if inode.kind().is_dir() {
        return Err(CallerError::IsADirectory.into());
    }
    inode.check_writable()?;
    inode.check_not_read_only()?;
    let forbids = inode.state().flags;
    let only_appends = flags.contains(OpenFlags::APPEND) && !flags.contains(OpenFlags::TRUNCATE);
    let never = InodeFlags::IMMUTABLE | InodeFlags::RO_VERITY;
    if forbids.intersects(never) || (forbids.contains(InodeFlags::APPEND) && !only_appends) {
        return Err(CallerError::NotPermitted.into());
    }
    Ok(())
}

fn check_is_file(inode: &Inode) -> Result<()> {
    match inode.kind() {
        FileType::File => Ok(()),
        FileType::Directory => Err(CallerError::IsADirectory.into()),
        _ => Err(CallerError::InvalidArgument.into()),
    }
}

/// The mode for the flags of `fallocate`.
fn allocate_mode(flags: AllocateFlags) -> Result<AllocateMode> {
    const KEEP: AllocateFlags = AllocateFlags::KEEP_SIZE;
    Ok(match flags {
        flags if flags.is_empty() => AllocateMode::Allocate,
        KEEP => AllocateMode::KeepSize,
        flags if flags == KEEP | AllocateFlags::PUNCH_HOLE => AllocateMode::PunchHole,
        AllocateFlags::ZERO_RANGE => AllocateMode::ZeroRange,
        flags if flags == KEEP | AllocateFlags::ZERO_RANGE => AllocateMode::ZeroKeepSize,
        _ => return Err(CallerError::NotSupported.into()),
    })
}
