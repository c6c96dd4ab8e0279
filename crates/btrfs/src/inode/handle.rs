//! [`Inode`]: one inode in memory, and the locks on it. All operations on files and names take one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use btrfs_disk::items::OnDisk;
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, TreeId};
use btrfs_store::Txn;

use super::absence_cache::AbsentSet;
use super::item::SECTOR_BYTES;
use super::staging::Staging;
use super::usage::Usage;
use super::{DataState, FileType, InodeFlags, InodeState, Metadata, Root};
use crate::error::{CallerError, Result};
use crate::locks::{Rank, ReadGuard, RwLock, WriteGuard};
use crate::notes::Note;

/// One inode of one subvolume. There is at most one of these for each, see the module's text.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) root: Arc<Root>,
    ino: InodeNo,
    kind: FileType,
    pub(super) state: RwLock<InodeState>,
    names: RwLock<DirState>,
    pub(super) usage: Usage,
    staging: Staging,
    /// Attributes that are known to be missing.
    pub(crate) absent: AbsentSet,
    /// Listings of the directory that take several requests end here: they do not wait for names that are added later,
    /// or that move to the end during the listing. 0 for no end.
    listing_end: AtomicU64,
    /// Odd while a rename has removed a name from the directory and not yet added it elsewhere.
    moves: AtomicU64,
    pub(crate) data: DataState,
}

/// The change that an operation is about to make to a file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds bytes, or space, beyond the end.
    Append,
    /// Writes from this offset on.
    WriteAt(u64),
    /// Anything else.
    Other,
}

/// Attempts to read a directory while names move in it, before the read waits for them.
const READS_BETWEEN_MOVES: usize = 3;

/// While it exists, a name of the directory is being moved.
pub(crate) struct Move<'a>(&'a Inode);

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.0.moves.fetch_add(1, Ordering::AcqRel);
    }
}

/// The state of a directory under its `names` lock.
#[derive(Debug, Default)]
pub(crate) struct DirState {
    /// Index for the next entry; unknown until the first insertion.
    pub(crate) next_index: Option<u64>,
}

impl Inode {
    pub(crate) fn new(root: Arc<Root>, ino: InodeNo, kind: FileType, state: InodeState) -> Self {
        Self {
            root,
            ino,
            kind,
            state: RwLock::new(Rank::State, state),
            names: RwLock::new(Rank::Names, DirState::default()),
            usage: Usage::new(),
            staging: Staging::default(),
            absent: AbsentSet::default(),
            listing_end: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            data: DataState::default(),
        }
    }

    /// Inode number within its subvolume.
    #[must_use]
    pub(crate) fn ino(&self) -> InodeNo {
        self.ino
    }

    /// The subvolume.
    #[must_use]
    pub(crate) fn tree_id(&self) -> TreeId {
        self.root.id
    }

    /// Kind of file; it never changes.
    #[must_use]
    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    /// The attributes that `stat` reports, including staged changes and dirty data.
    #[must_use]
    pub(crate) fn metadata(&self) -> Metadata {
        let disk_size = self.state.read().disk_size;
        let unwritten = self.data.unwritten_bytes(&self.root.tree, self.ino, disk_size);
        let state = self.state.read();
        state.metadata((self.root.id, self.ino), self.kind, unwritten)
    }

    /// True for the root directory of a subvolume.
    #[must_use]
    pub(crate) fn is_subvolume_root(&self) -> bool {
        self.ino == super::ROOT_DIR_INO
    }

    /// Key of the inode item.
    #[must_use]
    pub(crate) fn key(&self) -> Key {
        Key::new(self.ino.0, item_type::INODE_ITEM, 0)
    }

    /// The fields, for reading. Short: no tree is read under this lock.
    pub(crate) fn state(&self) -> ReadGuard<'_, InodeState> {
        self.state.read()
    }

    /// Changes fields that are not in the item (`size` ahead of `disk_size`): nothing is staged.
    pub(crate) fn change_in_memory<R>(&self, change: impl FnOnce(&mut InodeState) -> R) -> R {
        change(&mut self.state.write())
    }

    /// Changes the transaction's note of the inode.
    pub(crate) fn note(&self, txn: &Txn, change: impl FnOnce(&mut Note)) {
        self.root.notes.change(txn, self.root.id, self.ino, change);
    }

    /// Changes fields and stages the item. The staging happens under the lock, so that the
    /// item staged last is the newest.
    pub(crate) fn change<R>(&self, txn: &Txn, change: impl FnOnce(&mut InodeState) -> R) -> R {
        let mut state = self.state.write();
        let size_before = state.disk_size;
        let answer = change(&mut state);
        if state.disk_size != size_before && self.kind.is_file() {
            let size = state.disk_size;
            self.note(txn, |note| {
                note.has_new_size = true;
                if size > size_before {
                    // Older data may lie there on disk, from before the file was truncated.
                    note.add_range(size_before - size_before % SECTOR_BYTES..size);
                }
            });
        }
        state.transid = txn.generation();
        state.sequence = state.sequence.wrapping_add(1);
        self.staging.count_change();
        if self.usage.is_gone() {
            // The item has been removed.
            return answer;
        }
        self.staging.stage(txn.generation());
        txn.stage_replace(&self.root.tree, &self.key(), state.to_item().bytes().to_vec());
        answer
    }

    /// True when the table may forget the inode: its state is in the tree as of `running`.
    pub(super) fn is_clean(&self, running: Generation) -> bool {
        !self.staging.is_in(running) && self.data.is_clean()
    }

    /// True when a change of the inode item waits for the commit of this transaction.
    pub(crate) fn is_staged_in(&self, running: Generation) -> bool {
        self.staging.is_in(running)
    }

    /// How often the inode item was changed; to be read before the item.
    pub(crate) fn change_count(&self) -> u64 {
        self.staging.change_count()
    }

    /// Fails for an inode in a read-only subvolume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.root.check_writable()
    }

    /// Fails for an inode with the flag `READONLY`, which the kernel treats as missing write permission: its contents,
    /// names and `user.` attributes stay, its owner, mode and times may change.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn check_not_read_only(&self) -> Result<()> {
        match self.state.read().flags.contains(InodeFlags::READONLY) {
            true => Err(CallerError::AccessDenied.into()),
            false => Ok(()),
        }
    }

    /// Fails for an inode whose flags forbid `change`.
    pub(crate) fn check_permits(&self, change: Change) -> Result<()> {
        self.check_not_read_only()?;
        let state = self.state.read();
        let (flags, size) = (state.flags, state.size);
        let forbids = if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::RO_VERITY) {
            true
        } else if flags.contains(InodeFlags::APPEND) {
            match change {
                Change::Append => false,
                Change::WriteAt(offset) => offset < size,
                Change::Other => true,
            }
        } else {
            false
        };
        if forbids {
            return Err(CallerError::NotPermitted.into());
        }
        Ok(())
    }

    /// Position at which earlier listings end.
    pub(crate) fn listing_end(&self) -> Option<u64> {
        let end = self.listing_end.load(Ordering::Relaxed);
        (end > 0).then_some(end)
    }

    /// Sets the end of listings, when one begins that will take several requests.
    pub(crate) fn set_listing_end(&self, end: u64) {
        self.listing_end.store(end, Ordering::Relaxed);
    }

    /// Announces to [`Self::read_between_moves`] that a name moves, until the guard is dropped. The caller has the sole
    /// access to the names, and does not block any more.
    pub(crate) fn begin_move(&self) -> Move<'_> {
        self.moves.fetch_add(1, Ordering::AcqRel);
        Move(self)
    }

    /// Calls `read` when no name is being moved from one place to another. A thread that creates names has the sole
    /// access to them while it waits for a commit: readers do not wait with it.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn read_between_moves<R>(&self, mut read: impl FnMut() -> Result<R>) -> Result<R> {
        for _ in 0..READS_BETWEEN_MOVES {
            let before = self.moves.load(Ordering::Acquire);
            if before % 2 == 1 {
                break;
            }
            let answer = read()?;
            fence(Ordering::Acquire);
            if self.moves.load(Ordering::Relaxed) == before {
                return Ok(answer);
            }
        }
        let _names = self.read_names();
        read()
    }

    /// Shared access to the names (directory) or to names and length (others).
    pub(crate) fn read_names(&self) -> ReadGuard<'_, DirState> {
        self.names.read()
    }

    /// Sole access to the names (directory) or to names and length (others).
    pub(crate) fn lock_names(&self) -> WriteGuard<'_, DirState> {
        self.names.write()
    }
}
