//! [`Core`]: the store of an open volume, the inodes in memory, and the settings. The other modules of the crate share
//! one for each volume.

use std::sync::Arc;

use btrfs_disk::key::item_type;
use btrfs_disk::{At, Detail, Generation, InodeNo, Key, TreeId};
use btrfs_store::hash::NumberMap;
use btrfs_store::{Reservation, Store, Txn};

use super::root::{DeadTrees, EMPTY_SUBVOL_INO, ROOT_DIR_INO};
use super::{
    Compression, FileType, Inode, InodeFlags, InodeState, InodeTable, Root, Timestamp, VolumeData, orphan_key,
};
use crate::error::{CallerError, Result, corrupt_inode};
use crate::locks::{Mutex, Rank, RwLock};
use crate::notes::{Note, Notes};

/// Permission bits of the stand-in for a nested subvolume.
const STAND_IN_PERMISSIONS: u32 = 0o755;

/// Limit on inodes whose access times wait to be staged; the access times of further inodes may be lost.
const LATE_ACCESSES_MAX: usize = 4096;

/// Subvolumes that stay open without use; more only if they are in use.
const ROOTS_MAX: usize = 1024;

/// The place of the size in a descriptor of fs-verity.
const DATA_SIZE: std::ops::Range<usize> = 8..16;

/// Options for how files are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Files up to this many bytes are stored inside a leaf.
    pub(crate) max_inline: u32,
    /// Dirty file data in memory before writers wait.
    pub(crate) dirty_bytes: usize,
    /// The compression of data whose file has neither a flag nor a property for it.
    pub(crate) compress: Option<Compression>,
    /// Flags that every new regular file gets.
    pub(crate) file_flags: InodeFlags,
    /// The flusher writes all dirty data, not only compressible data.
    pub(crate) writes_ahead: bool,
    /// Data is compared with its checksums when it is read.
    pub(crate) verifies_data: bool,
    /// New files inherit `NODATASUM` from their directory, as those that mkfs makes do.
    pub(crate) inherits_data_flags: bool,
    /// Callers alone write data back, so that their order decides where it lies.
    pub(crate) is_reproducible: bool,
}

/// The store, and the inodes in memory.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) inodes: InodeTable,
    pub(crate) settings: Settings,
    pub(crate) data: VolumeData,
    pub(crate) notes: Arc<Notes>,
    /// Number of the last subvolume made. Held by the thread that makes or deletes one, and taken before
    /// any `names` lock.
    pub(crate) last_subvolume: Mutex<u64>,
    /// Inodes whose access time changed and is not staged yet.
    late_accesses: Mutex<NumberMap<(TreeId, InodeNo), Arc<Inode>>>,
    /// Deleted subvolumes that are not in use any more.
    pub(crate) dead: Arc<DeadTrees>,
    /// Subvolumes in which nobody has looked yet for what an earlier session left, the next one last.
    pub(crate) unchecked: Mutex<Vec<TreeId>>,
    roots: RwLock<OpenRoots>,
}

/// The open subvolumes.
#[derive(Debug)]
struct OpenRoots {
    by_id: NumberMap<TreeId, Arc<Root>>,
    /// Count at which the next sweep runs.
    sweep_at: usize,
}

impl OpenRoots {
    /// Closes the subvolumes that are not in use: a volume may have any number of them.
    fn sweep(&mut self) {
        self.by_id.retain(|_, root| Arc::strong_count(root) > 1 || root.gives_numbers());
        self.sweep_at = ROOTS_MAX.max(self.by_id.len().saturating_mul(2));
    }
}

impl Core {
    /// Runs `write`. If that fails because the host of the image is full, commits, so that the space of deleted data
    /// can be discarded, and runs `write` once more. The caller holds neither locks nor a handle.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn with_room<R>(&self, write: impl Fn() -> Result<R>) -> Result<R> {
        match write() {
            Err(error) if error.is_device_full() && self.store.commit().is_ok() => write(),
            answer => answer,
        }
    }

    pub(crate) fn new(store: Store, settings: Settings) -> Self {
        Self {
            store,
            inodes: InodeTable::default(),
            settings,
            data: VolumeData::new(settings.dirty_bytes),
            notes: Arc::default(),
            last_subvolume: Mutex::new(Rank::LastSubvolume, 0),
            late_accesses: Mutex::new(Rank::Lists, NumberMap::default()),
            dead: Arc::default(),
            unchecked: Mutex::new(Rank::Lists, Vec::new()),
            roots: RwLock::new(Rank::Roots, OpenRoots { by_id: NumberMap::default(), sweep_at: ROOTS_MAX }),
        }
    }

    /// Adds an inode whose access time is newer than the staged one.
    pub(crate) fn add_late_access(&self, inode: &Arc<Inode>) {
        let mut late = self.late_accesses.lock();
        if late.len() < LATE_ACCESSES_MAX {
            late.insert((inode.tree_id(), inode.ino()), Arc::clone(inode));
        }
    }

    /// Takes the inodes whose access times have to be staged.
    pub(crate) fn take_late_accesses(&self) -> Vec<Arc<Inode>> {
        std::mem::take(&mut *self.late_accesses.lock()).into_values().collect()
    }

    /// The subvolume `id`.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, or when it cannot be read.
    pub(crate) fn root(&self, id: TreeId) -> Result<Arc<Root>> {
        if let Some(root) = self.roots.read().by_id.get(&id) {
            return Ok(Arc::clone(root));
        }
        let loaded = Arc::new(Root::load(&self.store, &self.notes, id)?);
        let mut roots = self.roots.write();
        if roots.by_id.len() >= roots.sweep_at {
            roots.sweep();
        }
        Ok(Arc::clone(roots.by_id.entry(id).or_insert(loaded)))
    }

    /// Checks quotas with `ask`, and once more after writing dirty data, which was charged as if it replaced nothing.
    ///
    /// # Errors
    /// Those of `ask` and `flush`.
    pub(crate) fn within_quotas(
        &self,
        ask: impl Fn() -> btrfs_store::Result<()>,
        flush: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        match ask() {
            Err(btrfs_store::Error::QuotaExceeded { .. }) if self.store.has_charged_quotas() => {
                flush()?;
                Ok(ask()?)
            }
            answer => Ok(answer?),
        }
    }

    /// Forgets a subvolume that was deleted: nothing in it can be found from here on. Returns those of its inodes that
    /// are not open. The tree waits for the others, see [`DeadTrees`].
    pub(crate) fn forget_root(&self, id: TreeId) -> Vec<Arc<Inode>> {
        let root = self.roots.write().by_id.remove(&id);
        let unused = self.inodes.remove_tree(id);
        if let Some(root) = root {
            root.set_dead(&self.dead);
        }
        unused
    }

    /// The inode `ino` of the subvolume `tree`.
    ///
    /// # Errors
    /// `NotFound` when there is no such inode; `Corrupt` when its item contradicts itself.
    pub(crate) fn inode(&self, tree: TreeId, ino: InodeNo) -> Result<Arc<Inode>> {
        if let Some(inode) = self.inodes.get(tree, ino) {
            return Ok(inode);
        }
        let root = self.root(tree)?;
        self.inodes.get_or_load(tree, ino, self.store.generation(), || self.load(Arc::clone(&root), ino))
    }

    /// The root directory of a subvolume.
    ///
    /// # Errors
    /// As [`Core::inode`].
    pub(crate) fn root_dir(&self, tree: TreeId) -> Result<Arc<Inode>> {
        self.inode(tree, ROOT_DIR_INO)
    }

    /// Looks at the running transaction's note of an inode.
    pub(crate) fn noted<R>(&self, inode: &Inode, look: impl FnOnce(&Note) -> R) -> Option<R> {
        self.notes.look(self.store.generation(), inode.tree_id(), inode.ino(), look)
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        let (sec, nsec) = self.store.env().now();
        Timestamp { sec, nsec }
    }

    /// A handle on the running transaction.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn begin(&self, reservation: Reservation) -> Result<Txn> {
        Ok(self.store.begin(reservation)?)
    }

    fn load(&self, root: Arc<Root>, ino: InodeNo) -> Result<Inode> {
        if ino == EMPTY_SUBVOL_INO {
            return Ok(stand_in(root, self.now()));
        }
        let key = Key::new(ino.0, item_type::INODE_ITEM, 0);
        let Some(state) = root.tree.get_with(&key, InodeState::from_item)? else {
            return Err(CallerError::NotFound.into());
        };
        let state = state.map_err(|corrupt| corrupt.at(At::Inode(root.id, ino)))?;
        let Some(kind) = FileType::from_mode(state.mode) else {
            let found = Detail::Octal(u64::from(state.mode));
            let expected = Detail::Text("the type bits of a kind of file");
            return Err(corrupt_inode(root.id, ino, "inode mode", expected, found));
        };
        if state.flags.contains(InodeFlags::RO_VERITY) {
            check_protected_size(&root, ino, state.size)?;
        }
        // A link count of 0 without an orphan item is damage: there may still be names of this inode.
        let has_lost_count = state.nlink == 0 && root.tree.get_with(&orphan_key(ino), |_| ())?.is_none();
        let inode = Inode::new(root, ino, kind, state);
        if has_lost_count {
            inode.keep_without_names();
        }
        Ok(inode)
    }
}

/// Compares the size of a file with that in its descriptor of fs-verity. A file that seems to be empty is never read,
/// so that nothing else would notice.
fn check_protected_size(root: &Root, ino: InodeNo, size: u64) -> Result<()> {
    let key = Key::new(ino.0, item_type::VERITY_DESC_ITEM, 1);
    let stored = root.tree.get_with(&key, |bytes| bytes.get(DATA_SIZE).and_then(|bytes| bytes.try_into().ok()))?;
    match stored.flatten().map(u64::from_le_bytes) {
        Some(stored) if stored == size => Ok(()),
        stored => {
            let found = stored.map_or(Detail::Text("no descriptor"), Detail::Number);
            Err(corrupt_inode(root.id, ino, "size of the contents under fs-verity", Detail::Number(size), found))
        }
    }
}

/// The empty directory that stands where the source of a snapshot had a nested subvolume.
fn stand_in(root: Arc<Root>, now: Timestamp) -> Inode {
    let mut state = InodeState::new(Generation(0), FileType::Directory, STAND_IN_PERMISSIONS);
    state.set_all_times(now);
    Inode::new(root, EMPTY_SUBVOL_INO, FileType::Directory, state)
}
