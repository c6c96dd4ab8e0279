//! One subvolume in memory: its tree, and what new inodes need.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::flags::RootFlags;
use btrfs_disk::{InodeNo, Key, TreeId};
use btrfs_store::{Store, Tree};
use parking_lot::Mutex;

use crate::error::{CallerError, Result};

/// Inode number of a subvolume's root directory.
pub(crate) const ROOT_DIR_INO: InodeNo = InodeNo(256);
/// Inode number that the kernel gives the empty directory which stands where a snapshot's source
/// had a nested subvolume (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`).
pub(crate) const EMPTY_SUBVOL_INO: InodeNo = InodeNo(2);

/// One subvolume.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) id: TreeId,
    pub(crate) tree: Arc<Tree>,
    read_only: AtomicBool,
    deleted: AtomicBool,
    /// Number for the next inode; 0 while unknown.
    next_ino: AtomicU64,
    next_ino_search: Mutex<()>,
}

impl Root {
    /// Opens the subvolume `id`.
    ///
    /// # Errors
    /// `NoSuchSubvolume` when there is none, or when it is being deleted.
    pub(crate) fn load(store: &Store, id: TreeId) -> Result<Self> {
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
            read_only: AtomicBool::new(
                store.is_read_only() || item.root_flags().contains(RootFlags::SUBVOL_RDONLY),
            ),
            deleted: AtomicBool::new(false),
            next_ino: AtomicU64::new(0),
            next_ino_search: Mutex::default(),
        })
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.deleted.load(Ordering::Relaxed) {
            return Err(CallerError::Stale.into());
        }
        if self.read_only.load(Ordering::Relaxed) {
            return Err(CallerError::ReadOnly.into());
        }
        Ok(())
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// A number that no inode of the subvolume has had since the volume was opened.
    ///
    /// # Errors
    /// `NoSpace` when the last number is taken.
    pub(crate) fn new_ino(&self) -> Result<InodeNo> {
        self.find_next_ino()?;
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        if ino > TreeId::LAST_FREE.0 {
            self.next_ino
                .store(TreeId::LAST_FREE.0 + 1, Ordering::Relaxed);
            return Err(crate::Error::NoSpace);
        }
        Ok(InodeNo(ino))
    }

    /// Makes sure that the number of an inode that is going to be removed is not given to another.
    /// A log is replayed into the committed tree, which still has the one that was removed.
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
        let last = self
            .tree
            .at_or_before(&largest)?
            .map_or(0, |(key, _)| key.objectid);
        self.next_ino
            .store(last.max(ROOT_DIR_INO.0) + 1, Ordering::Relaxed);
        Ok(())
    }
}
