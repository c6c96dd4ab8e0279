//! Removes a name, and the inode with its last one (through `removal`). Called by `vfs_impl/names`.

use btrfs_disk::items::DirEntry as DiskEntry;
use btrfs_store::{Scan, Txn};

use super::{Found, Namespace, check_can_remove, check_changeable, check_name, entry};
use crate::error::{CallerError, Result};
use crate::inode::{EMPTY_SUBVOL_INO, Inode, Timestamp, lock_all};

/// Items that an unlink changes in the directory: two entries and its inode.
const UNLINK_ITEMS: u32 = 4;

/// The kind of name to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unlink {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

impl Namespace {
    /// Removes `name` from `dir`.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `NotADirectory`, `NotEmpty`, `Busy` (the root of a subvolume,
    /// which [`crate::subvol`] deletes), `ReadOnly`, `NotPermitted`.
    pub(crate) fn unlink(&self, dir: &Inode, name: &[u8], what: Unlink) -> Result<()> {
        check_name(name)?;
        loop {
            let found = self.lookup(dir, name)?.ok_or(CallerError::NotFound)?;
            check_kind(dir, found, what)?;
            dir.check_writable()?;
            if found.ino == EMPTY_SUBVOL_INO {
                return self.unlink_stand_in(dir, name);
            }
            let now = self.find_inode(dir, name)?.ok_or(CallerError::NotFound)?;
            if now.0 == found && self.try_unlink(dir, name, found, &now.1)? {
                return Ok(());
            }
        }
    }

    /// False when the name was changed before the locks were taken.
    fn try_unlink(&self, dir: &Inode, name: &[u8], found: Found, inode: &Inode) -> Result<bool> {
        let items = UNLINK_ITEMS + Self::removal_items(inode);
        let reservation = self.reserve_urgent(items)?;
        let locks = lock_all([Some(dir), Some(inode), None, None]);
        check_can_remove(dir)?;
        if self.lookup_locked(dir, name)? != Some(found) {
            return Ok(false);
        }
        check_changeable(inode)?;
        if inode.kind().is_dir() && inode.state().size > 0 {
            return Err(CallerError::NotEmpty.into());
        }
        let loss = self.begin_last_name(inode, &reservation);
        self.apply(reservation, |txn| {
            let now = self.core.now();
            note_unlink(txn, inode);
            self.take_name(txn, dir, name, inode, now)?;
            self.drop_name(txn, inode, &loss, now)
        })?;
        let last = loss.end();
        drop(locks);
        self.finish_removal(inode, last)?;
        Ok(true)
    }

    /// Removes the name from the directory and the reference from the inode.
    pub(crate) fn take_name(&self, txn: &Txn, dir: &Inode, name: &[u8], inode: &Inode, now: Timestamp) -> Result<()> {
        let index = self.back_refs.remove(txn, inode, dir.ino(), name)?;
        self.remove_name(txn, dir, name, index)?;
        entry::shrink(txn, dir, name, now);
        Ok(())
    }

    /// Removes the empty directory that stands for a nested subvolume in a snapshot: only its name exists.
    fn unlink_stand_in(&self, dir: &Inode, name: &[u8]) -> Result<()> {
        let reservation = self.reserve_urgent(UNLINK_ITEMS)?;
        let _names = dir.lock_names();
        check_can_remove(dir)?;
        let found = self.lookup_locked(dir, name)?.ok_or(CallerError::NotFound)?;
        if found.ino != EMPTY_SUBVOL_INO {
            return Err(CallerError::Busy.into());
        }
        let index = index_of(dir, name)?.ok_or(CallerError::NotFound)?;
        self.apply(reservation, |txn| {
            self.remove_name(txn, dir, name, index)?;
            entry::shrink(txn, dir, name, self.core.now());
            Ok(())
        })
    }
}

/// Notes for the log that `inode` is gone, if its last name is being removed.
pub(super) fn note_unlink(txn: &Txn, inode: &Inode) {
    if inode.state().nlink <= 1 {
        inode.note(txn, |note| note.is_gone = true);
    }
}

fn check_kind(dir: &Inode, found: Found, what: Unlink) -> Result<()> {
    match what {
        Unlink::File if found.kind.is_dir() => Err(CallerError::IsADirectory.into()),
        Unlink::Directory if !found.kind.is_dir() => Err(CallerError::NotADirectory.into()),
        _ if found.tree != dir.tree_id() => Err(CallerError::Busy.into()),
        _ => Ok(()),
    }
}

/// The position of a name without a back reference, by reading the directory.
fn index_of(dir: &Inode, name: &[u8]) -> Result<Option<u64>> {
    let (from, to) = super::list::index_keys(dir.ino(), 0);
    let mut index = None;
    dir.root.tree.scan(&from, &to, |key, bytes| {
        if DiskEntry::find(bytes, name)?.is_none() {
            return Ok(Scan::Continue);
        }
        index = Some(key.offset);
        Ok(Scan::Stop)
    })?;
    Ok(index)
}
