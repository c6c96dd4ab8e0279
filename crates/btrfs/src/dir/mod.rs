//! Keeps names (directories, links to inodes, attributes), and removes inodes without names.
//!
//! A name is stored three times: in a `DIR_ITEM` found by its hash, in a `DIR_INDEX` found by its
//! position, and in the inode's `INODE_REF` or `INODE_EXTREF` (for a subvolume in `ROOT_REF` and
//! `ROOT_BACKREF`). `entry` and `refs` keep the copies; every operation here changes all of
//! them through one handle on the running transaction, so a commit has all or none.
//!
//! Invariants
//! * A thread that changes a directory holds its `names` lock; one that changes the names of an inode holds that
//!   inode's. Several are locked in ascending order (`inode::lock_all`); names that were looked up before are looked up
//!   again under the locks.
//! * Each entry of the dentry cache is in the tree: the cache is filled under the directory's shared lock and changed
//!   under its sole lock.
//! * A look-up sees one state of the directory. A cached name may be replaced at any moment; if its inode was removed
//!   by then, the look-up repeats under the directory's shared lock, under which no name and no inode can be removed.
//! * A directory's size is twice the length of its names, its link count is 1, and its positions
//!   grow for ever.
//! * All mistakes of a caller are found before the first change. An error after it leaves
//!   half an operation in the transaction, which is then aborted and the volume poisoned.
//!
//! Failure: callers' mistakes as `Error::Caller`, before anything changes; the rest as the store
//! reports it.
//!
//! Callers: `vfs_impl` for requests on names, `open_volume`, which walks paths, `subvol`, and log replay.

mod attr;
mod create;
mod dentries;
mod entry;
mod link;
mod list;
mod lookup;
mod orphan;
mod refs;
mod removal;
mod rename;
mod root_refs;
#[cfg(test)]
mod tests;
mod unlink;
mod verity;
mod xattr;

use std::sync::Arc;

use btrfs_disk::TreeId;
use btrfs_store::{Need, Reservation, Store, Txn};

use crate::error::{CallerError, Error, Result};
use crate::inode::{Core, Inode, InodeFlags};
use crate::locks::WriteGuard;
use crate::locks::{ChangeLock, RenameLock};
use crate::writeback;

pub(crate) use create::{NewInode, XattrItems};
pub(crate) use dentries::DentryCache;
pub(crate) use entry::{NewName, grow, shrink};
pub(crate) use lookup::{Found, Stored, has_gone};
pub(crate) use orphan::Hold;
use refs::BackRefs;
pub(crate) use rename::Place;
pub(crate) use root_refs::RootLink;
use root_refs::RootLinks;
pub(crate) use unlink::Unlink;
pub(crate) use vfs::file_system::{RenameFlags, XattrMode};

/// Longest name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// All names of a volume.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) core: Arc<Core>,
    pub(crate) dentries: DentryCache,
    pub(crate) back_refs: BackRefs,
    pub(crate) root_links: RootLinks,
    rename: RenameLock,
    changing: ChangeLock,
}

impl Namespace {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self {
            dentries: DentryCache::default(),
            back_refs: BackRefs::new(Arc::clone(&core)),
            root_links: RootLinks::new(Arc::clone(&core)),
            rename: RenameLock::default(),
            changing: ChangeLock::default(),
            core,
        }
    }

    /// Waits until no change of names is running, and admits none until the guard is dropped. The caller has a handle.
    pub(crate) fn stop_changes(&self) -> WriteGuard<'_, ()> {
        self.changing.stop()
    }

    /// A reservation for `items` changes of items. To be made before any `names` lock is taken.
    ///
    /// # Errors
    /// `NoSpace`, `ReadOnly`, `Poisoned`; those of writing dirty data.
    pub(crate) fn reserve(&self, items: u32) -> Result<Reservation> {
        let need = Need { items, data: 0 };
        self.reserve_with(|store| store.reserve_patiently(need), |store| store.reserve(need))
    }

    /// As [`Namespace::reserve`], for operations that add names or attributes to a subvolume, within its quotas.
    ///
    /// # Errors
    /// As [`Namespace::reserve`]; `QuotaExceeded`.
    pub(crate) fn reserve_in(&self, subvolume: TreeId, items: u32) -> Result<Reservation> {
        let check = || self.core.store.check_quota(subvolume);
        self.core.within_quotas(check, || writeback::flush_all(&self.core))?;
        self.reserve(items)
    }

    /// As [`Namespace::reserve`], for changes that free more than they take.
    pub(crate) fn reserve_urgent(&self, items: u32) -> Result<Reservation> {
        let reserve = |store: &Store| store.reserve_urgent(Need { items, data: 0 });
        self.reserve_with(reserve, reserve)
    }

    /// Dirty data has reserved more room than it will use: where there is none left, writing it out returns some.
    fn reserve_with(
        &self,
        first: impl FnOnce(&Store) -> btrfs_store::Result<Reservation>,
        then: impl FnOnce(&Store) -> btrfs_store::Result<Reservation>,
    ) -> Result<Reservation> {
        let store = &self.core.store;
        match first(store) {
            Err(btrfs_store::Error::NoSpace { .. }) => {
                writeback::flush_all(&self.core)?;
                Ok(then(store)?)
            }
            result => Ok(result?),
        }
    }

    /// Runs `change` on a handle on the running transaction.
    pub(crate) fn apply<R>(&self, reservation: Reservation, change: impl FnOnce(&Txn) -> Result<R>) -> Result<R> {
        self.finish(&self.core.begin(reservation)?, change)
    }

    /// Runs `change` on `txn`. An error other than a caller's mistake may come after a part of the change was made:
    /// then the store stops writing.
    pub(crate) fn finish<R>(&self, txn: &Txn, change: impl FnOnce(&Txn) -> Result<R>) -> Result<R> {
        let _change = self.changing.change();
        let answer = change(txn);
        if let Err(error) = &answer
            && error.caller_error().is_none()
        {
            txn.abort(&error.to_store_error());
        }
        answer
    }
}

/// Refuses names that no directory can hold.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name == b"." || name == b".." {
        return Err(CallerError::InvalidArgument.into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(CallerError::InvalidArgument.into());
    }
    Ok(())
}

/// Refuses a directory that cannot get new names.
pub(crate) fn check_can_add(dir: &Inode) -> Result<()> {
    check_is_dir(dir)?;
    dir.check_writable()?;
    dir.check_not_read_only()?;
    let state = dir.state();
    if dir.ino() == crate::inode::EMPTY_SUBVOL_INO {
        return Err(CallerError::NotPermitted.into());
    }
    if state.nlink == 0 || dir.root.is_deleted() {
        return Err(CallerError::NotFound.into());
    }
    if state.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(CallerError::NotPermitted.into());
    }
    Ok(())
}

/// Refuses a directory that cannot lose names.
pub(crate) fn check_can_remove(dir: &Inode) -> Result<()> {
    check_can_add(dir)?;
    check_changeable(dir)
}

/// Refuses an inode whose flags forbid a change of its names.
fn check_changeable(inode: &Inode) -> Result<()> {
    if inode.state().flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
        return Err(CallerError::NotPermitted.into());
    }
    Ok(())
}

fn check_is_dir(inode: &Inode) -> Result<()> {
    if inode.kind().is_dir() { Ok(()) } else { Err(Error::caller(CallerError::NotADirectory)) }
}
