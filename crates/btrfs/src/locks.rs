//! Order of the locks of this crate. All of them but `inode.state` and the shards rank below
//! every lock of the store: a thread that sits in a callback of a tree scan takes none of these.
//!
//! ```text
//! last_subvolume    one per volume: who makes or deletes a subvolume
//! rename            one per volume: directory moves between directories (loop check)
//! inode.names       one per inode: its entries (directory) or its names and length (others);
//!                   several at once only in ascending (tree, inode number): `inode::lock_all`
//! inode.data        `editing` of one or several inodes, see `DataState`
//!                   -- down to here the store may be asked to reserve or to commit --
//! transaction       an open handle (`Txn`) is a lock too: commit waits for it
//! changing          one per volume: shared by who changes names or attributes, alone for who copies
//!                   several inodes' names into the log
//! inode.data        `inner`, with reads of tree blocks but without waiting for a handle
//! inode.state       short: the fields of the inode item are read, changed, or staged
//! shards            of the inode table and the dentry cache: short, nothing is taken inside
//! ```
//!
//! Whoever holds a handle must not wait for an `inode.names` lock, whose holder may be waiting
//! for a commit, which waits for the handle. Space is therefore reserved first, then the
//! `names` locks are taken, and the handle begins last.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What a volume needs one lock for: directories that move between directories.
#[derive(Debug, Default)]
pub(crate) struct RenameLock(Mutex<()>);

impl RenameLock {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

/// Keeps names whole for whoever looks at those of several inodes at once: an operation changes a
/// name at all its places under one shared lock.
#[derive(Debug, Default)]
pub(crate) struct ChangeLock(RwLock<()>);

impl ChangeLock {
    pub(crate) fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read_recursive()
    }

    pub(crate) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write()
    }
}
