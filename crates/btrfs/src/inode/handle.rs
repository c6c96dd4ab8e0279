//! One inode in memory, and the locks on it.

use std::cmp::Ordering as CmpOrdering;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use btrfs_disk::items::OnDisk;
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, TreeId};
use btrfs_store::Txn;
use btrfs_store::ablation::{Mutation, mutated};

use super::item::SECTOR_BYTES;
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
    state: RwLock<InodeState>,
    names: RwLock<DirState>,
    /// Handles on the inode. Changed under the write lock of `state`, where `nlink` lives too.
    open_count: AtomicU64,
    /// Somebody removes the inode. Changed under the write lock of `state`.
    is_going: AtomicBool,
    /// Its items are about to leave the tree, or have. Changed under the write lock of `state`.
    is_gone: AtomicBool,
    /// Made without a name and still waiting for one: it may be linked though it has none.
    is_linkable: AtomicBool,
    /// References that servers gave out: while there are any the inode is not removed, with or
    /// without names. Grows under the `state` lock, shared or not.
    known_count: AtomicU64,
    /// Attributes that are known to be missing, see [`Absent`].
    absent: AtomicU8,
    /// Listings of the directory that went on over several requests end here: names that come
    /// later, and names that move to the end under their lister's hands, are not waited for. 0 for
    /// no end.
    listing_end: AtomicU64,
    /// Transaction in which the item was staged last; 0 for never.
    staged_in: AtomicU64,
    /// Counts the stagings.
    change_count: AtomicU64,
    /// Set by every look-up, cleared by the table's sweep.
    pub(super) recently_used: AtomicBool,
    pub(crate) data: DataState,
}

/// What somebody is about to do to the contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Adds bytes, or space, behind the end.
    Append,
    /// Writes from this offset on.
    WriteAt(u64),
    /// Anything else.
    Other,
}

/// Attributes whose absence is remembered, so that nobody looks for them in the tree again. Noted
/// under the shared `names` lock, and forgotten under the sole one, when any attribute changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// `security.capability`.
    Capability,
    /// `system.posix_acl_access`.
    AccessAcl,
    /// `system.posix_acl_default`.
    DefaultAcl,
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
            state: RwLock::new(Rank::State, state),
            names: RwLock::new(Rank::Names, DirState::default()),
            open_count: AtomicU64::new(0),
            is_going: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            is_linkable: AtomicBool::new(false),
            known_count: AtomicU64::new(0),
            absent: AtomicU8::new(0),
            listing_end: AtomicU64::new(0),
            staged_in: AtomicU64::new(0),
            change_count: AtomicU64::new(0),
            recently_used: AtomicBool::new(true),
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

    /// What `stat` reports, staged changes and dirty data included.
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

    /// Changes fields that are of this crate's making only (`size` ahead of `disk_size`):
    /// nothing is staged.
    pub(crate) fn change_in_memory<R>(&self, change: impl FnOnce(&mut InodeState) -> R) -> R {
        change(&mut self.state.write())
    }

    /// Changes what the transaction of `txn` noted of the inode.
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
                    // Older data may lie there on disk, from before the file was cut.
                    note.add_range(size_before - size_before % SECTOR_BYTES..size);
                }
            });
        }
        state.transid = txn.generation();
        state.sequence = state.sequence.wrapping_add(1);
        self.change_count.fetch_add(1, Ordering::Release);
        if self.is_gone.load(Ordering::Relaxed) {
            // There is no item left to replace.
            return answer;
        }
        self.staged_in.store(txn.generation().0, Ordering::Relaxed);
        let mut item = state.to_item();
        if mutated(Mutation::CommittedTimesZero) {
            (item.atime, item.mtime, item.ctime) = Default::default();
        }
        if mutated(Mutation::CommittedFlagsZero) {
            item.flags = 0.into();
        }
        txn.defer(&self.root.tree, &self.key(), item.bytes().to_vec());
        answer
    }

    /// True when the table may forget the inode: what it knows is in the tree as of `running`.
    pub(super) fn is_clean(&self, running: Generation) -> bool {
        self.staged_in.load(Ordering::Relaxed) < running.0 && self.data.is_clean()
    }

    /// True when a change of the inode item waits for the commit of this transaction.
    pub(crate) fn is_staged_in(&self, running: Generation) -> bool {
        self.staged_in.load(Ordering::Relaxed) >= running.0
    }

    /// How often the inode item was changed; asked for before the item is looked at.
    pub(crate) fn change_count(&self) -> u64 {
        self.change_count.load(Ordering::Acquire)
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

    /// True while somebody has a handle, or a server refers to the inode: what a look-up found
    /// stays usable even when its name leads elsewhere by then.
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_open() || self.is_known()
    }

    /// True from the moment on from which nobody can open the inode any more.
    #[cfg(test)]
    pub(crate) fn is_going(&self) -> bool {
        self.is_going.load(Ordering::Relaxed)
    }

    /// True when the inode has one name left and is not in use: from then on it cannot be
    /// opened, and the caller removes it. The link count stays until the transaction that takes the
    /// name: others may stage the item before, and a commit must not have a name without its link.
    pub(crate) fn begin_removal(&self) -> bool {
        let state = self.state.write();
        let is_last = state.nlink <= 1 && !self.is_in_use() && !self.is_going.load(Ordering::Relaxed);
        if is_last {
            self.is_going.store(true, Ordering::Relaxed);
        }
        is_last
    }

    /// True for one caller, when the inode has no names and is not in use: that caller removes it.
    pub(crate) fn claim_removal(&self) -> bool {
        if self.state.read().nlink > 0 {
            return false;
        }
        let state = self.state.write();
        state.nlink == 0 && !self.is_in_use() && !self.is_going.swap(true, Ordering::Relaxed)
    }

    /// Fails for an inode whose subvolume cannot be changed.
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

    /// Fails for an inode whose flags forbid what `change` does to its contents.
    pub(crate) fn check_permits(&self, change: Change) -> Result<()> {
        self.check_not_read_only()?;
        let state = self.state.read();
        let (flags, size) = (state.flags, state.size);
        let forbids = if flags.contains(InodeFlags::IMMUTABLE) {
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

    /// Notes that the items are about to leave the tree: nothing is staged from here on.
    pub(crate) fn set_gone(&self) {
        let mut state = self.state.write();
        state.nlink = 0;
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// True for an inode that was made without a name and never had one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.is_linkable.load(Ordering::Relaxed)
    }

    /// Notes that the inode was made without a name, or has got its first.
    pub(crate) fn set_linkable(&self, is_linkable: bool) {
        self.is_linkable.store(is_linkable, Ordering::Relaxed);
    }

    /// True when no name leads to the inode any more.
    pub(crate) fn is_nameless(&self) -> bool {
        self.state.read().nlink == 0
    }

    /// Counts one more reference of a server. Fails when the inode's removal has begun.
    pub(crate) fn add_known(&self) -> Result<()> {
        // Removal begins under the sole lock.
        let _state = self.state.read();
        if self.is_going.load(Ordering::Relaxed) {
            return Err(CallerError::Stale.into());
        }
        self.known_count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Counts `count` references less, whatever the server says; returns how many there were of
    /// those.
    pub(crate) fn drop_known(&self, count: u64) -> u64 {
        let before = self
            .known_count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| Some(known.saturating_sub(count)));
        before.map_or(0, |known| known.min(count))
    }

    /// True while a server refers to the inode.
    pub(crate) fn is_known(&self) -> bool {
        self.known_count.load(Ordering::Relaxed) > 0
    }

    /// True for what the table must keep because a server refers to it: a directory (a process may
    /// be in it), and an inode without names, which goes with the last reference.
    pub(super) fn is_kept_for_server(&self) -> bool {
        let is_nameless = || self.state.try_read().is_none_or(|state| state.nlink == 0);
        self.is_known() && (self.kind.is_dir() || is_nameless())
    }

    /// Position at which listings end that began earlier.
    pub(crate) fn listing_end(&self) -> Option<u64> {
        let end = self.listing_end.load(Ordering::Relaxed);
        (end > 0).then_some(end)
    }

    /// A listing began that will take several requests.
    pub(crate) fn set_listing_end(&self, end: u64) {
        self.listing_end.store(end, Ordering::Relaxed);
    }

    /// True when the attribute is known to be missing.
    pub(crate) fn is_absent(&self, what: Absent) -> bool {
        self.absent.load(Ordering::Relaxed) & absent_bit(what) != 0
    }

    /// Notes that the attribute is missing. The caller holds the `names` lock.
    pub(crate) fn set_absent(&self, what: Absent) {
        self.absent.fetch_or(absent_bit(what), Ordering::Relaxed);
    }

    /// An attribute may have come. The caller holds the sole `names` lock.
    pub(crate) fn forget_absent(&self) {
        self.absent.store(0, Ordering::Relaxed);
    }

    fn order(&self, other: &Self) -> CmpOrdering {
        (self.root.id, self.ino).cmp(&(other.root.id, other.ino))
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

const fn absent_bit(what: Absent) -> u8 {
    match what {
        Absent::Capability => 1,
        Absent::AccessAcl => 2,
        Absent::DefaultAcl => 4,
    }
}

/// Inodes that one operation locks at most: two directories and two children.
const LOCKED_MAX: usize = 4;

/// Write locks on the names of several inodes.
pub(crate) struct NameLocks<'a> {
    held: [Option<(&'a Inode, WriteGuard<'a, DirState>)>; LOCKED_MAX],
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
    let mut locks = NameLocks { held: [const { None }; LOCKED_MAX] };
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
