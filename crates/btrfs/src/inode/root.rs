//! [`Root`]: one subvolume in memory: its tree, its flags, and the next inode number. Every inode refers to the one of
//! its subvolume.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use btrfs_disk::flags::RootFlags;
use btrfs_disk::{InodeNo, Key, TreeId};
use btrfs_store::{Store, Tree};

use crate::error::{CallerError, Result};
use crate::locks::{Mutex, Rank};
use crate::notes::Notes;

/// Inode number of a subvolume's root directory.
pub(crate) const ROOT_DIR_INO: InodeNo = InodeNo(256);
/// Inode number that the kernel gives the empty directory which stands where a snapshot's source
/// had a nested subvolume (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`).
pub(crate) const EMPTY_SUBVOL_INO: InodeNo = InodeNo(2);

/// Deleted subvolumes whose trees can be taken apart: none of their inodes is in memory any more.
///
/// Every inode refers to its [`Root`], and so does every operation that is about to use one. A file that is
/// open keeps its inode, and with it the tree that its contents are found by.
#[derive(Debug)]
pub(crate) struct DeadTrees {
    waiting: Mutex<Vec<TreeId>>,
    count: AtomicUsize,
}

impl Default for DeadTrees {
    fn default() -> Self {
        Self { waiting: Mutex::new(Rank::DeadTrees, Vec::new()), count: AtomicUsize::new(0) }
    }
}

impl DeadTrees {
    /// Takes one of them, for the caller to take apart.
    pub(crate) fn take(&self) -> Option<TreeId> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let taken = self.waiting.lock().pop()?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Adds one, or the rest of one.
    pub(crate) fn add(&self, id: TreeId) {
        self.waiting.lock().push(id);
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// One subvolume.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) id: TreeId,
    pub(crate) tree: Arc<Tree>,
    /// The notes of the volume.
    pub(crate) notes: Arc<Notes>,
    read_only: AtomicBool,
    deleted: AtomicBool,
    /// The list to join when the deleted subvolume is not in use any more.
    dead: OnceLock<Arc<DeadTrees>>,
    /// Number for the next inode; 0 while unknown.
    next_ino: AtomicU64,
    next_ino_search: Mutex<()>,
}

impl Root {
    /// Opens the subvolume `id`.
    ///
    /// # Errors
    /// `NoSuchSubvolume` when there is none, or when it is being deleted.
    pub(crate) fn load(store: &Store, notes: &Arc<Notes>, id: TreeId) -> Result<Self> {
        let item = match store.root_item(id) {
            Ok(item) if item.refs.get() > 0 && id.is_subvolume() => item,
            Ok(_) | Err(btrfs_store::Error::NoSuchTree(_)) => {
                return Err(CallerError::NoSuchSubvolume.into());
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            id,
            tree: store.tree(id)?,
            notes: Arc::clone(notes),
            read_only: AtomicBool::new(store.is_read_only() || item.root_flags().contains(RootFlags::SUBVOL_RDONLY)),
            deleted: AtomicBool::new(false),
            dead: OnceLock::new(),
            next_ino: AtomicU64::new(0),
            next_ino_search: Mutex::new(Rank::NextIno, ()),
        })
    }

    /// Fails for a read-only subvolume. A deleted one can be changed by programs that have files in it open.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only.load(Ordering::Relaxed) {
            return Err(CallerError::ReadOnly.into());
        }
        Ok(())
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::SeqCst)
    }

    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::SeqCst);
    }

    /// Marks the subvolume deleted, when the deletion is in the transaction: the tree is removed after the last user.
    pub(crate) fn set_dead(&self, dead: &Arc<DeadTrees>) {
        self.set_deleted();
        let _ = self.dead.set(Arc::clone(dead));
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// True if numbers of inodes were given, or may not be given again: known only while the subvolume is open.
    pub(crate) fn gives_numbers(&self) -> bool {
        self.next_ino.load(Ordering::Relaxed) > 0
    }

    /// A number that no inode of the subvolume has had since the volume was opened.
    ///
    /// # Errors
    /// `NoSpace` when the last number is taken.
    pub(crate) fn new_ino(&self) -> Result<InodeNo> {
        self.find_next_ino()?;
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        if ino > TreeId::LAST_FREE.0 {
            self.next_ino.store(TreeId::LAST_FREE.0 + 1, Ordering::Relaxed);
            return Err(crate::Error::NoSpace(None));
        }
        Ok(InodeNo(ino))
    }

    /// Makes sure that the number of an inode that is going to be removed is not given to another. A log is replayed
    /// into the committed tree, which still has the removed inode.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub(crate) fn find_next_ino(&self) -> Result<()> {
        if self.next_ino.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let _searching = self.next_ino_search.lock();
        if self.next_ino.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let largest = Key::new(TreeId::LAST_FREE.0, u8::MAX, u64::MAX);
        let last = self.tree.at_or_before(&largest)?.map_or(0, |(key, _)| key.objectid);
        self.next_ino.store(last.max(ROOT_DIR_INO.0) + 1, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Some(dead) = self.dead.get() {
            dead.add(self.id);
        }
    }
}
