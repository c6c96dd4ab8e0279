//! One inode in memory, and the locks on it.

use std::cmp::Ordering as CmpOrdering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::items::OnDisk;
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, TreeId};
use btrfs_store::Txn;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{DataState, FileType, InodeState, Metadata, Root};
use crate::error::{CallerError, Result};

/// One inode of one subvolume. There is at most one of these for each, see the module's text.
#[derive(Debug)]
pub struct Inode {
    pub(crate) root: Arc<Root>,
    ino: InodeNo,
    kind: FileType,
    state: RwLock<InodeState>,
    names: RwLock<DirState>,
    /// Handles on the inode. Changed under the write lock of `state`, where `nlink` lives too.
    open_count: AtomicU64,
    /// Somebody removes the inode. Changed under the write lock of `state`.
    is_going: AtomicBool,
    /// Transaction in which the item was staged last; 0 for never.
    staged_in: AtomicU64,
    /// Set by every look-up, cleared by the table's sweep.
    pub(super) recently_used: AtomicBool,
    pub(crate) data: DataState,
}

/// What a directory remembers under its `names` lock.
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
            state: RwLock::new(state),
            names: RwLock::default(),
            open_count: AtomicU64::new(0),
            is_going: AtomicBool::new(false),
            staged_in: AtomicU64::new(0),
            recently_used: AtomicBool::new(true),
            data: DataState::default(),
        }
    }

    /// Inode number within its subvolume.
    #[must_use]
    pub fn ino(&self) -> InodeNo {
        self.ino
    }

    /// The subvolume.
    #[must_use]
    pub fn tree_id(&self) -> TreeId {
        self.root.id
    }

    /// Kind of file; it never changes.
    #[must_use]
    pub fn kind(&self) -> FileType {
        self.kind
    }

    /// What `stat` reports, staged changes included.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.state
            .read()
            .metadata(self.root.id, self.ino, self.kind)
    }

    /// True for the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume_root(&self) -> bool {
        self.ino == super::ROOT_DIR_INO
    }

    /// Key of the inode item.
    #[must_use]
    pub(crate) fn key(&self) -> Key {
        Key::new(self.ino.0, item_type::INODE_ITEM, 0)
    }

    /// The fields, for reading. Short: no tree is read under this lock.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, InodeState> {
        self.state.read()
    }

    /// Changes fields that are of this crate's making only (`size` ahead of `disk_size`):
    /// nothing is staged.
    pub(crate) fn change_in_memory<R>(&self, change: impl FnOnce(&mut InodeState) -> R) -> R {
        change(&mut self.state.write())
    }

    /// Changes fields and stages the item. The staging happens under the lock, so that the
    /// item staged last is the newest.
    pub(crate) fn change<R>(&self, txn: &Txn, change: impl FnOnce(&mut InodeState) -> R) -> R {
        let mut state = self.state.write();
        let answer = change(&mut state);
        state.transid = txn.generation();
        state.sequence = state.sequence.wrapping_add(1);
        self.staged_in.store(txn.generation().0, Ordering::Relaxed);
        txn.defer(
            &self.root.tree,
            &self.key(),
            state.to_item().bytes().to_vec(),
        );
        answer
    }

    /// True when the table may forget the inode: what it knows is in the tree as of `running`.
    pub(super) fn is_clean(&self, running: Generation) -> bool {
        self.staged_in.load(Ordering::Relaxed) < running.0 && self.data.is_clean()
    }

    /// Counts one more handle. Fails when the inode's removal has begun.
    pub(crate) fn open(&self) -> Result<()> {
        let _state = self.state.write();
        if self.is_going.load(Ordering::Relaxed) {
            return Err(CallerError::Stale.into());
        }
        self.open_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Counts one more handle on an inode that is open, or that nobody else knows yet.
    pub(crate) fn open_again(&self) {
        let _state = self.state.write();
        self.open_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one handle less.
    pub(crate) fn close(&self) {
        let _state = self.state.write();
        self.open_count.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while somebody has a handle.
    pub(crate) fn is_open(&self) -> bool {
        self.open_count.load(Ordering::Relaxed) > 0
    }

    /// Takes the last name's count away when nobody has the inode open: from then on it cannot
    /// be opened, and the caller removes it. False leaves everything as it is.
    pub(crate) fn begin_removal(&self) -> bool {
        let mut state = self.state.write();
        let is_last = state.nlink <= 1 && !self.is_open() && !self.is_going.load(Ordering::Relaxed);
        if is_last {
            state.nlink = 0;
            self.is_going.store(true, Ordering::Relaxed);
        }
        is_last
    }

    /// True for one caller, when the inode has neither names nor handles: that caller removes it.
    pub(crate) fn claim_removal(&self) -> bool {
        let state = self.state.write();
        state.nlink == 0 && !self.is_open() && !self.is_going.swap(true, Ordering::Relaxed)
    }

    /// Fails for an inode whose subvolume cannot be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.root.check_writable()
    }

    fn order(&self, other: &Self) -> CmpOrdering {
        (self.root.id, self.ino).cmp(&(other.root.id, other.ino))
    }

    /// Shared access to the names (directory) or to names and length (others).
    pub(crate) fn read_names(&self) -> RwLockReadGuard<'_, DirState> {
        self.names.read()
    }

    /// Sole access to the names (directory) or to names and length (others).
    pub(crate) fn lock_names(&self) -> RwLockWriteGuard<'_, DirState> {
        self.names.write()
    }
}

/// Inodes that one operation locks at most: two directories and two children.
const LOCKED_MAX: usize = 4;

/// Write locks on the names of several inodes.
pub(crate) struct NameLocks<'a> {
    held: [Option<(&'a Inode, RwLockWriteGuard<'a, DirState>)>; LOCKED_MAX],
}

/// Locks the names of several inodes in the one order that everybody keeps: ascending by tree
/// and number. An inode that occurs twice is locked once.
///
/// What led to these inodes may have changed before the locks were had: look again.
pub(crate) fn lock_all<'a>(inodes: [Option<&'a Inode>; LOCKED_MAX]) -> NameLocks<'a> {
    let mut order = inodes;
    order.sort_unstable_by(|a, b| match (a, b) {
        (Some(a), Some(b)) => a.order(b),
        (None, None) => CmpOrdering::Equal,
        (None, Some(_)) => CmpOrdering::Greater,
        (Some(_), None) => CmpOrdering::Less,
    });
    let mut locks = NameLocks {
        held: [const { None }; LOCKED_MAX],
    };
    let mut last: Option<&Inode> = None;
    for (slot, inode) in locks.held.iter_mut().zip(order) {
        let Some(inode) = inode else { break };
        if last.is_none_or(|last| !std::ptr::eq(last, inode)) {
            *slot = Some((inode, inode.lock_names()));
        }
        last = Some(inode);
    }
    locks
}

impl NameLocks<'_> {
    /// What `inode` remembers, which must be one of those locked.
    pub(crate) fn of(&mut self, inode: &Inode) -> &mut DirState {
        self.held
            .iter_mut()
            .flatten()
            .find_map(|(held, guard)| std::ptr::eq(*held, inode).then_some(&mut **guard))
            .expect("callers ask for inodes they locked")
    }
}
