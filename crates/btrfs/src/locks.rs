//! Ranks this crate's locks, outermost first. With those of the store ([`btrfs_store::locks`]), whose levels lie
//! between, this is the whole order; debug builds assert it ([`host::locks`]). Every module that has a lock names its
//! rank.
//!
//! An open transaction handle ([`btrfs_store::Txn`]) acts like a lock too: a commit waits for it. It lies between the
//! locks up to `InPlace`, which are taken before a handle begins, and all the others. A thread
//! that holds a handle must not wait for a `Names` lock, whose holder may be waiting for a commit, which waits for the
//! handle: an operation reserves space first, then takes the `Names` locks, and begins its handle last. `State` and the
//! ranks after it are taken inside callbacks of tree scans, where tree blocks are locked.

pub(crate) use btrfs_store::locks::{Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};

host::ranks! {
    /// Position in the lock order, outermost first.
    pub(crate) enum Rank {
        /// The state of the background work; held while it commits.
        Background = 0,
        /// One per server: the running balance, while it takes a step or a command.
        Balancing = 1,
        /// One per volume: held by the thread that makes or deletes a subvolume.
        LastSubvolume = 2,
        /// One per volume: directories that move between directories, so that none becomes its own ancestor.
        Rename = 3,
        /// One per inode: a directory's entries, another inode's names and length. Several at once only in ascending
        /// order of tree and inode number (`inode::lock_all`).
        Names = 4,
        /// One per volume: shared by threads that hold an `Editing` lock, and so may remember where data is; exclusive
        /// for the thread that moves data to another place.
        Moving = 5,
        /// One per inode: held by the thread that changes a file's items. Several at once only in ascending order.
        Editing = 6,
        /// One per volume: shared by threads that overwrite data in place, exclusive for a snapshot.
        InPlace = 7,
        /// One per volume: held by the thread that allocates space for the data it is about to write, so that all of
        /// that is adjacent.
        LayingOut = 8,
        /// One per volume: shared by threads that change names or attributes, exclusive for the thread that copies the
        /// names of several inodes into the log.
        Changing = 19,
        /// One per inode: the layers of a file's contents. Tree blocks are read under it; nothing waits for a handle.
        Layers = 26,
        /// One per inode: the extents that were read of a file.
        ExtentMap = 27,
        /// One per subvolume: the search for the highest inode number.
        NextIno = 28,
        /// The open subvolumes.
        Roots = 31,
        /// A shard of the inode table.
        Inodes = 32,
        /// One per inode: the fields of the inode item, while they are read, changed, or staged.
        State = 33,
        /// A shard of the dentry cache.
        Dentries = 34,
        /// Small tables that are locked briefly: dirty inodes, decompressed extents, odd node numbers, and others.
        Lists = 35,
        /// Waiting of a change of a file for its readers.
        Readers = 48,
        /// Deleted subvolumes that are not in use any more: the last reference to one can be dropped under any lock.
        DeadTrees = 49,
    }
    nests: [Names, Editing, Changing, State]
}

/// Serialises renames of directories between directories.
#[derive(Debug)]
pub(crate) struct RenameLock(Mutex<()>);

impl Default for RenameLock {
    fn default() -> Self {
        Self(Mutex::new(Rank::Rename, ()))
    }
}

impl RenameLock {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock()
    }
}

/// Keeps names consistent for a thread that looks at several inodes at once: an operation changes a name at all its
/// places under one shared lock.
#[derive(Debug)]
pub(crate) struct ChangeLock(RwLock<()>);

impl Default for ChangeLock {
    fn default() -> Self {
        Self(RwLock::new(Rank::Changing, ()))
    }
}

impl ChangeLock {
    /// Shared, also where this thread has it already.
    pub(crate) fn change(&self) -> ReadGuard<'_, ()> {
        self.0.read_recursive()
    }

    pub(crate) fn stop(&self) -> WriteGuard<'_, ()> {
        self.0.write()
    }
}
