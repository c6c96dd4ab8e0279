//! Attributes of an inode that `stat` shows, and targets of symlinks.

use std::sync::Arc;

use btrfs_disk::Detail;
use btrfs_disk::convert::to_usize;
use btrfs_store::Need;
use btrfs_store::ablation::{Mutation, mutated};
use vfs::file_system::Time;
use vfs::{AtimeMode, should_update_atime};

use super::Namespace;
use crate::error::{CallerError, Result, corrupt_inode};
use crate::file;
use crate::inode::{EMPTY_SUBVOL_INO, Inode, InodeFlags, MODE_PERMISSION_MASK, SetAttr, Times, Timestamp};

/// Items that a change of attributes changes.
const SET_ITEMS: u32 = 1;

/// Longest target, as Linux has it: a page, of which the last byte ends the path.
const TARGET_BYTES_MAX: u64 = 4095;

impl Namespace {
    /// Changes what `changes` names. Exactly that: no bit of the mode goes because the owner
    /// changes.
    ///
    /// # Errors
    /// `ReadOnly`, `InvalidArgument` (nanoseconds), `NoSpace`; `NotPermitted` for all but the
    /// flags of an immutable inode, and for mode and owner of an append-only one (and for its
    /// times, unless they are set to now: that, the caller knows).
    pub(crate) fn set_attributes(&self, inode: &Inode, changes: &SetAttr) -> Result<()> {
        inode.check_writable()?;
        if inode.ino() == EMPTY_SUBVOL_INO {
            return Err(CallerError::NotPermitted.into());
        }
        let times = &changes.times;
        let all = [times.atime, times.mtime, times.ctime, times.btime];
        if all.iter().flatten().any(|time| time.nsec >= 1_000_000_000) {
            return Err(CallerError::InvalidArgument.into());
        }
        let changes_owner = changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some();
        let flags = inode.state().flags;
        if flags.contains(InodeFlags::IMMUTABLE) && (changes_owner || all.iter().any(Option::is_some))
            || flags.contains(InodeFlags::APPEND) && changes_owner
        {
            return Err(CallerError::NotPermitted.into());
        }
        let reservation = self.reserve(SET_ITEMS)?;
        let now = self.core.now();
        self.apply(reservation, |txn| {
            inode.change(txn, |state| {
                let changes = heeded(changes);
                let times = &changes.times;
                if let Some(mode) = changes.mode {
                    state.mode = state.type_bits() | (mode & MODE_PERMISSION_MASK);
                }
                state.uid = changes.uid.unwrap_or(state.uid);
                state.gid = changes.gid.unwrap_or(state.gid);
                state.flags = changes.flags.unwrap_or(state.flags);
                state.atime = times.atime.unwrap_or(state.atime);
                state.mtime = times.mtime.unwrap_or(state.mtime);
                state.otime = times.btime.unwrap_or(state.otime);
                state.ctime = times.ctime.unwrap_or(now);
            });
            Ok(())
        })
    }

    /// Notes that `inode` was read, as far as `mode` and the inode's flags want that. Never
    /// fails, waits or commits: without room at hand the time stays in memory, and goes to disk
    /// with the next change of the inode.
    pub(crate) fn note_access(&self, inode: &Arc<Inode>, mode: AtimeMode) {
        if mode == AtimeMode::No || inode.ino() == EMPTY_SUBVOL_INO {
            return;
        }
        let now = self.core.now();
        let is_due = {
            let state = inode.state();
            !state.flags.contains(InodeFlags::NOATIME)
                && should_update_atime(mode, time(now), time(state.atime), time(state.mtime), time(state.ctime))
        };
        if !is_due || inode.check_writable().is_err() {
            return;
        }
        let need = Need { items: SET_ITEMS, data: 0 };
        match self.core.store.try_begin(need) {
            Some(txn) => inode.change(&txn, |state| {
                state.atime = now;
                // An access is no change: NFS clients keep what they have.
                state.sequence = state.sequence.wrapping_sub(1);
            }),
            None => {
                inode.change_in_memory(|state| state.atime = now);
                self.core.add_late_access(inode);
            }
        }
    }

    /// Stages the times of accesses for which there was no room at hand when they were made. What finds none now either
    /// is not worth failing for.
    pub(crate) fn stage_late_accesses(&self) {
        for inode in self.core.take_late_accesses() {
            if inode.check_writable().is_err() {
                continue;
            }
            let staged = self.reserve(SET_ITEMS).and_then(|reservation| {
                self.apply(reservation, |txn| {
                    inode.change(txn, |_| ());
                    Ok(())
                })
            });
            if let Err(error) = staged {
                tracing::debug!(%error, "a time of access is lost");
                return;
            }
        }
    }

    /// Where a symlink leads. As the kernel does, reads it like a file, as far as the inode's size
    /// and its first zero byte: other tools store the zero that ends a path, some count it as well.
    ///
    /// # Errors
    /// `InvalidArgument` when the inode is no symlink; `Corrupt` when its target is empty, and what
    /// reading a file can fail with.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if !inode.kind().is_symlink() {
            return Err(CallerError::InvalidArgument.into());
        }
        let mut target = vec![0; to_usize(inode.state().size.min(TARGET_BYTES_MAX))];
        let len = file::read_at(&self.core, inode, 0, &mut target)?;
        let end = target[..len].iter().position(|byte| *byte == 0).unwrap_or(len);
        target.truncate(end);
        if target.is_empty() {
            return Err(no_target(inode));
        }
        Ok(target)
    }
}

/// What is done of what was asked for: all of it, but for deliberate mistakes.
fn heeded(changes: &SetAttr) -> SetAttr {
    let mut changes = *changes;
    if mutated(Mutation::ModeIgnored) {
        changes.mode = None;
    }
    if mutated(Mutation::OwnerIgnored) {
        (changes.uid, changes.gid) = (None, None);
    }
    if mutated(Mutation::TimesIgnored) {
        changes.times = Times::default();
    }
    changes
}

fn time(of: Timestamp) -> Time {
    Time { sec: of.sec, nsec: of.nsec }
}

#[cold]
fn no_target(inode: &Inode) -> crate::Error {
    let (expected, found) = (Detail::Text("a path"), Detail::Text("nothing"));
    corrupt_inode(inode.tree_id(), inode.ino(), "symlink target", expected, found)
}
