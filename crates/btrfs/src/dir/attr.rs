//! Attributes of an inode that `stat` shows, and targets of symlinks.

use btrfs_disk::items::FileExtent as DiskExtent;
use btrfs_disk::key::item_type;
use btrfs_disk::{Corrupt, Detail, Key};
use btrfs_store::Need;
use btrfs_store::ablation::{Mutation, mutated};
use vfs::file_system::Time;
use vfs::{AtimeMode, should_update_atime};

use super::Namespace;
use crate::error::{CallerError, Result, corrupt_inode};
use crate::inode::{
    EMPTY_SUBVOL_INO, Inode, InodeFlags, MODE_PERMISSION_MASK, SetAttr, Times, Timestamp,
};

/// Items that a change of attributes changes.
const SET_ITEMS: u32 = 1;

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
        let changes_owner =
            changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some();
        let flags = inode.state().flags;
        if flags.contains(InodeFlags::IMMUTABLE)
            && (changes_owner || all.iter().any(Option::is_some))
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
    pub(crate) fn note_access(&self, inode: &Inode, mode: AtimeMode) {
        if mode == AtimeMode::No || inode.ino() == EMPTY_SUBVOL_INO {
            return;
        }
        let now = self.core.now();
        let is_due = {
            let state = inode.state();
            !state.flags.contains(InodeFlags::NOATIME)
                && should_update_atime(
                    mode,
                    time(now),
                    time(state.atime),
                    time(state.mtime),
                    time(state.ctime),
                )
        };
        if !is_due || inode.check_writable().is_err() {
            return;
        }
        let need = Need {
            items: SET_ITEMS,
            data: 0,
        };
        match self.core.store.try_begin(need) {
            Some(txn) => inode.change(&txn, |state| {
                state.atime = now;
                // An access is no change: NFS clients keep what they have.
                state.sequence = state.sequence.wrapping_sub(1);
            }),
            None => inode.change_in_memory(|state| state.atime = now),
        }
    }

    /// Where a symlink leads.
    ///
    /// # Errors
    /// `InvalidArgument` when the inode is no symlink; `Corrupt` when its target is not stored
    /// as one inline extent.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if !inode.kind().is_symlink() {
            return Err(CallerError::InvalidArgument.into());
        }
        let key = Key::new(inode.ino().0, item_type::EXTENT_DATA, 0);
        let target = inode.root.tree.get_with(&key, |bytes| {
            Ok::<_, Corrupt>(match DiskExtent::parse(bytes)? {
                DiskExtent::Inline { head, data } if head.compression == 0 => Some(data.to_vec()),
                _ => None,
            })
        })?;
        match target {
            Some(target) => match target? {
                Some(target) => Ok(target),
                None => Err(bad_target(inode, "another extent")),
            },
            None => Err(bad_target(inode, "none")),
        }
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
    Time {
        sec: of.sec,
        nsec: of.nsec,
    }
}

#[cold]
fn bad_target(inode: &Inode, found: &'static str) -> crate::Error {
    let expected = Detail::Text("an inline extent without compression");
    corrupt_inode(
        inode.tree_id(),
        inode.ino(),
        "symlink target",
        expected,
        Detail::Text(found),
    )
}
