//! Opens, reads, writes and syncs files. Called by `file_system`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use f2fs_disk::Nid;
use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::InodeFlags;
use f2fs_disk::inode::Kind;
use vfs::append_only;
use vfs::atime::should_update_atime;
use vfs::file_system::{
    AllocateFlags, Answer, CopyRange, Handle, NodeId, OpenFlags, SyncTicket, SyncWhat, WriteFlags, Written,
};
use vfs::privileges::{self, BareSetGroup, CAPABILITY_NAME};

use super::attr::{kind, time};
use super::names::drop_if_free;
use super::references::leaves_atime;
use super::xattr::has_xattr;
use super::{Due, F2fs, View, Writable, check_is_file, ino_of, node_of};
use crate::change::preparation::Prepared;
use crate::change::room::{self, Urgency};
use crate::change::{background, commit, data, fsync, inodes, size_and_holes, xattrs};
use crate::error::{CallerError, Error, Result};
use crate::file;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;
/// A volume without changes for this time counts as idle: as in the kernel.
const IDLE_MIN: Duration = Duration::from_secs(5);
/// Interval of parts of cleaning.
const CLEANING_STEP: Duration = Duration::from_millis(20);
/// Shortest interval of background steps.
const STEP_MIN: Duration = Duration::from_millis(500);

impl F2fs {
    pub(super) fn open_node(&self, node: NodeId, flags: OpenFlags) -> Answer<Handle> {
        if !flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNCATE) {
            return self.look(|volume| {
                let found = node_of(volume, node)?;
                match found.inode.kind() {
                    Kind::File => found.check_is_plain()?,
                    Kind::Directory => {}
                    _ => return Err(CallerError::NotSupported.into()),
                }
                let Some(volume) = volume.writable() else { return Ok(Handle(0)) };
                Ok(self.opened(&found, flags, volume.progress.is_poisoned()))
            });
        }
        self.change(|volume| {
            let found = node_of(volume, node)?;
            check_may_write(volume, &found, flags)?;
            if flags.contains(OpenFlags::TRUNCATE) {
                let bits = flags.contains(OpenFlags::CLEAR_PRIVILEGES).then_some(BareSetGroup::Cleared);
                drop_privileges(volume, found.ino(), bits)?;
                size_and_holes::set_size(volume, found.ino(), 0)?;
                volume.touch_contents(found.ino())?;
                sync_marked(volume, found.ino())?;
            }
            Ok(self.opened(&found, flags, volume.progress.is_poisoned()))
        })
    }

    /// The handle of an opening in a volume open for writing; `is_late` if writing had ended before.
    pub(super) fn opened(&self, node: &Node, flags: OpenFlags, is_late: bool) -> Handle {
        self.held.refer(node.ino());
        self.held.open(flags, is_late)
    }

    /// Releases references; removes an orphan that only they kept.
    pub(super) fn give_back(&self, node: NodeId, count: u64) {
        let found = {
            let Some(writable) = self.writers() else { return };
            let volume = writable.volume.read();
            ino_of(&volume, node).ok().filter(|ino| self.held.give_back(*ino, count) && volume.is_orphan(*ino))
        };
        if let Some(ino) = found {
            // An inode that cannot be removed now is removed at the next opening for writing.
            let _ = self.change(|volume| drop_if_free(volume, &self.held, Some(ino)));
        }
    }

    pub(super) fn read_node(&self, node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let (count, is_due) = self.look(|volume| {
            let found = node_of(volume, node)?;
            check_is_file(&found)?;
            let count = file::read(volume, &self.clusters, &found, offset, buf)?;
            Ok((count, !leaves_atime(handle) && self.is_access_due(volume, &found)))
        })?;
        if is_due {
            self.note_access(node);
        }
        Ok(count)
    }

    /// Whether an access updates the access time of a node.
    pub(super) fn is_access_due(&self, volume: &View<'_>, node: &Node) -> bool {
        let Some(volume) = volume.writable() else { return false };
        if volume.progress.is_poisoned() || node.inode.flags().contains(InodeFlags::NOATIME) {
            return false;
        }
        let (atime, mtime, ctime) = (node.inode.atime(), node.inode.mtime(), node.inode.ctime());
        should_update_atime(self.serving.atime, volume.clock.now(), time(atime), time(mtime), time(ctime))
    }

    /// Updates the access time; a failure is ignored.
    pub(super) fn note_access(&self, node: NodeId) {
        let _ = self.change(|volume| {
            room::make(volume, 0, 1, Urgency::Normal)?;
            let (ino, now) = (ino_of(volume, node)?, volume.clock.now());
            volume.edit_fields(ino)?.set_atime(now.sec, now.nsec);
            Ok(())
        });
    }

    pub(super) fn write_node(
        &self,
        node: NodeId,
        handle: Handle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Answer<Written> {
        let mut prepared = self.prepare(node, offset, data, flags);
        let written = self.change(|volume| {
            let found = node_of(volume, node)?;
            check_is_file(&found)?;
            let mut written = Written::default();
            if data.is_empty() {
                return Ok(written);
            }
            let ino = found.ino();
            let is_cached = flags.contains(WriteFlags::FROM_CACHE);
            let clears = flags.contains(WriteFlags::CLEAR_PRIVILEGES);
            if clears || !is_cached {
                let bits = clears.then(|| BareSetGroup::for_write(flags));
                written.cleared_privileges = drop_privileges(volume, ino, bits)?;
            }
            let at = if flags.contains(WriteFlags::APPEND) { found.inode.size() } else { offset };
            if !is_cached {
                check_may_write_at(&found, at)?;
            }
            if is_cached {
                self.check_appends(volume, &found, offset, data, flags)?;
            }
            let count = data::write(volume, ino, at, data, &mut prepared)?;
            if is_cached && count < data.len() {
                let (needed, available) = (to_u64(data.len()), to_u64(count));
                return Err(Error::NoSpace { needed, available });
            }
            written.missing = data.len().saturating_sub(count);
            volume.touch_contents(ino)?;
            sync_marked(volume, ino)?;
            Ok(written)
        })?;
        if flags.contains(WriteFlags::DATA_SYNC) && !data.is_empty() {
            self.sync_node(node, handle, SyncWhat::Data)?;
        }
        Ok(written)
    }

    /// Prepares a write while others may change the volume; a failure is left to the write.
    fn prepare(&self, node: NodeId, offset: u64, data: &[u8], flags: WriteFlags) -> Prepared {
        let prepared = self.writers().filter(|_| !data.is_empty()).map(|writable| {
            let at = match flags.contains(WriteFlags::APPEND) {
                true => node_of(&writable.volume.read(), node)?.inode.size(),
                false => offset,
            };
            let ino = u32::try_from(node.0).map_err(|_| CallerError::Stale)?;
            Prepared::new(&writable.volume, &writable.blocks, Nid(ino), at, data)
        });
        prepared.and_then(Result::ok).unwrap_or_default()
    }

    /// Refuses changes of an append-only file by the kernel's cache.
    fn check_appends(
        &self,
        volume: &ReadVolume,
        node: &Node,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<()> {
        if !node.inode.flags().contains(InodeFlags::APPEND) {
            return Ok(());
        }
        let mut old = vec![0; data.len()];
        let count = file::read(volume, &self.clusters, node, offset, &mut old)?;
        match append_only::may_overwrite(old.get(..count).unwrap_or_default(), data, flags) {
            true => Ok(()),
            false => Err(CallerError::NotPermitted.into()),
        }
    }

    /// Makes a node durable.
    pub(super) fn sync_node(&self, node: NodeId, handle: Handle, what: SyncWhat) -> Answer<()> {
        match self.begin_sync_node(node, what)? {
            Some(begun) => self.end_sync_node(node, handle, begun),
            None => Ok(()),
        }
    }

    /// Requests that a node be made durable; `None` in a read-only volume.
    pub(super) fn begin_sync_node(&self, node: NodeId, what: SyncWhat) -> Answer<Option<SyncTicket>> {
        let Some(writable) = self.writers() else { return Ok(None) };
        writable.asked.fetch_add(1, Ordering::Relaxed);
        let ino = self.look(|volume| Ok(node_of(volume, node)?.ino()))?;
        Ok(Some(writable.syncs.begin(ino, what)))
    }

    /// Waits until it is durable.
    pub(super) fn end_sync_node(&self, node: NodeId, handle: Handle, begun: SyncTicket) -> Answer<()> {
        let Some(writable) = self.writers() else { return Ok(()) };
        let told = match writable.syncs.end(&writable.volume, begun) {
            // An opening from before the failure is told once why writing ended.
            Err(Error::Poisoned { reason }) if self.held.tell(node, handle) => Err(*reason),
            Err(error) => {
                self.held.tell(node, handle);
                Err(error)
            }
            Ok(()) => Ok(()),
        };
        told.map_err(|error| self.faults.report(error))
    }

    pub(super) fn sync_volume(&self, is_last: bool) -> Answer<()> {
        let Some(writable) = self.writers() else { return Ok(()) };
        let synced = commit::commit(&mut writable.volume.write(), is_last);
        synced.map_err(|error| self.faults.report(error))
    }

    /// Drops all references, and removes the orphans that only they kept.
    pub(super) fn let_go(&self) {
        self.held.let_go();
        let Some(writable) = self.writers() else { return };
        let orphans = writable.volume.read().orphans.all();
        for ino in orphans {
            // An inode that cannot be removed now is removed at the next opening for writing.
            if self.change(|volume| inodes::free(volume, ino)).is_err() {
                break;
            }
        }
    }

    pub(super) fn run_step(&self) -> Duration {
        let interval = self.serving.commit_interval;
        let Some(writable) = self.writers() else { return interval };
        if writable.volume.read().progress.is_poisoned() {
            return interval;
        }
        let mut due = writable.due.lock();
        let now = writable.volume.read().clock.now().sec;
        if passed(due.committed, now) >= interval {
            due.committed = now;
            // It was logged; the next sync reports it.
            let _ = self.sync_volume(false);
        }
        if self.clean_when_idle(writable, &mut due, now) {
            return CLEANING_STEP;
        }
        interval.min(Duration::from_secs(1)).max(STEP_MIN)
    }

    /// Cleans some blocks if the volume is idle; true if there is more to do.
    fn clean_when_idle(&self, writable: &Writable, due: &mut Due, now: i64) -> bool {
        let asked = writable.asked.load(Ordering::Relaxed);
        if asked != due.asked {
            (due.asked, due.idle_since, due.is_clean) = (asked, now, false);
        }
        if due.is_clean || passed(due.idle_since, now) < IDLE_MIN {
            return false;
        }
        // It was logged; the next sync reports it.
        let cleaned = background::step(&mut writable.volume.write());
        due.is_clean = !cleaned.map_err(|error| self.faults.report(error)).unwrap_or(false);
        !due.is_clean
    }

    pub(super) fn copy_nodes(&self, range: &CopyRange) -> Answer<u64> {
        let mut done = 0_u64;
        while done < range.len {
            let len = range.len.saturating_sub(done).min(COPY_BYTES);
            match self.copy_piece(range, done, len) {
                Ok(0) => break,
                Ok(count) => done = done.saturating_add(count),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies up to `len` bytes behind the first `done`; returns the number.
    fn copy_piece(&self, range: &CopyRange, done: u64, len: u64) -> Answer<u64> {
        let (from, to) = (range.source_offset.saturating_add(done), range.target_offset.saturating_add(done));
        let mut bytes = vec![0; f2fs_disk::convert::to_usize(len)];
        self.writable()?;
        let count = self.look(|volume| {
            let source = node_of(volume, range.source)?;
            check_is_file(&source)?;
            check_is_file(&node_of(volume, range.target)?)?;
            let overlaps = range.source_offset < range.target_offset.saturating_add(range.len)
                && range.target_offset < range.source_offset.saturating_add(range.len);
            if range.source == range.target && overlaps {
                return Err(CallerError::InvalidArgument.into());
            }
            file::read(volume, &self.clusters, &source, from, &mut bytes)
        })?;
        if count == 0 {
            return Ok(0);
        }
        let bytes = bytes.get(..count).unwrap_or_default();
        let mut prepared = self.prepare(range.target, to, bytes, WriteFlags::empty());
        self.change(|volume| {
            let target = node_of(volume, range.target)?;
            check_may_write_at(&target, to)?;
            drop_privileges(volume, target.ino(), None)?;
            let written = data::write(volume, target.ino(), to, bytes, &mut prepared)?;
            volume.touch_contents(target.ino())?;
            sync_marked(volume, target.ino())?;
            Ok(to_u64(written))
        })
    }
}

/// Refuses writes that the flags of a file forbid.
fn check_may_write_at(node: &Node, offset: u64) -> Result<()> {
    let flags = node.inode.flags();
    let is_past = flags.contains(InodeFlags::APPEND) && offset < node.inode.size();
    match flags.contains(InodeFlags::IMMUTABLE) || is_past {
        true => Err(CallerError::NotPermitted.into()),
        false => Ok(()),
    }
}

/// Refuses to open read-only kinds of files for writing.
fn check_may_write(volume: &WriteVolume, node: &Node, flags: OpenFlags) -> Result<()> {
    if node.inode.kind() == Kind::Directory {
        return Err(CallerError::IsADirectory.into());
    }
    if node.inode.kind() != Kind::File {
        return Err(CallerError::NotSupported.into());
    }
    volume.check_is_writable(node)?;
    let forbids = node.inode.flags();
    let only_appends = flags.contains(OpenFlags::APPEND) && !flags.contains(OpenFlags::TRUNCATE);
    if forbids.contains(InodeFlags::IMMUTABLE) || (forbids.contains(InodeFlags::APPEND) && !only_appends) {
        return Err(CallerError::NotPermitted.into());
    }
    Ok(())
}

fn passed(since: i64, now: i64) -> Duration {
    Duration::from_secs(u64::try_from(now.saturating_sub(since)).unwrap_or(u64::MAX))
}

/// Makes a node durable that is marked to be written synchronously.
pub(super) fn sync_marked(volume: &mut WriteVolume, ino: Nid) -> Result<()> {
    let node = volume.inode(ino)?;
    let mut marks = InodeFlags::SYNC;
    if node.inode.kind() == Kind::Directory {
        marks |= InodeFlags::DIRSYNC;
    }
    match node.inode.flags().intersects(marks) {
        true => fsync::sync(volume, ino, SyncWhat::All),
        false => Ok(()),
    }
}

/// Removes capabilities, and unless `bits` is `None` set-user and set-group bits, before a write. True if there were
/// any.
pub(super) fn drop_privileges(volume: &mut WriteVolume, ino: Nid, bits: Option<BareSetGroup>) -> Result<bool> {
    let node = volume.inode(ino)?;
    let permissions = node.inode.fields().permissions();
    let left = bits.map_or(permissions, |bare| privileges::cleared(kind(node.inode.kind()), permissions, bare));
    let has_capability = has_xattr(volume, ino, CAPABILITY_NAME)?;
    if left == permissions && !has_capability {
        return Ok(false);
    }
    room::make(volume, 0, 4, Urgency::Removal)?;
    if has_capability {
        xattrs::put(volume, ino, CAPABILITY_NAME, None)?;
    }
    volume.edit_fields(ino)?.set_permissions(left);
    volume.touch_inode(ino)?;
    // A checkpoint without the following write is consistent.
    volume.settle();
    Ok(true)
}

/// Allocates space, or gives it back.
pub(super) fn allocate(volume: &mut WriteVolume, node: NodeId, flags: AllocateFlags, range: (u64, u64)) -> Result<()> {
    const KEEP: AllocateFlags = AllocateFlags::KEEP_SIZE;
    let found = node_of(volume, node)?;
    check_is_file(&found)?;
    let (offset, len) = range;
    let ino = found.ino();
    if len == 0 {
        return Err(CallerError::InvalidArgument.into());
    }
    if found.inode.flags().contains(InodeFlags::IMMUTABLE) {
        return Err(CallerError::NotPermitted.into());
    }
    let punches = flags.intersects(AllocateFlags::PUNCH_HOLE | AllocateFlags::ZERO_RANGE);
    if found.inode.flags().contains(InodeFlags::APPEND) && punches {
        return Err(CallerError::NotPermitted.into());
    }
    drop_privileges(volume, ino, None)?;
    match flags {
        flags if flags.is_empty() => size_and_holes::reserve(volume, ino, offset, len, true)?,
        KEEP => size_and_holes::reserve(volume, ino, offset, len, false)?,
        flags if flags == KEEP | AllocateFlags::PUNCH_HOLE => size_and_holes::punch(volume, ino, offset, len)?,
        flags if flags == AllocateFlags::ZERO_RANGE || flags == KEEP | AllocateFlags::ZERO_RANGE => {
            size_and_holes::zero_range(volume, ino, offset, len, !flags.contains(KEEP))?;
        }
        _ => return Err(CallerError::NotSupported.into()),
    }
    volume.touch_contents(ino)?;
    sync_marked(volume, ino)
}
