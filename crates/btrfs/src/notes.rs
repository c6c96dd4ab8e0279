//! Notes the running transaction's changes to each inode, from which an fsync builds the log.
//!
//! A note belongs to one transaction. No commit clears it: the first note of a later transaction empties every
//! shard that still has older ones, and until then a lookup does not find them, because it names its transaction.
//!
//! Most volumes never see an fsync: before the first one few notes are kept. A transaction with more notes than its
//! limit drops all of them, and its fsyncs commit instead of writing a log.
//!
//! Callers: all changes of an inode, its names or its extents write notes; `log::record` reads them.

#![expect(clippy::indexing_slicing, reason = "shards are numbered here, below the number of shards")]

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use btrfs_disk::{Generation, InodeNo, TreeId};
use btrfs_store::Txn;
use btrfs_store::hash::NumberMap;
use btrfs_store::locks::{Mutex, Rank};

/// Shards of the map of notes; a power of two.
const SHARD_COUNT: usize = 16;
/// Ranges kept for one inode; more are joined to one.
const RANGES_MAX: usize = 256;
/// Inodes with notes in one shard before the first fsync of the volume.
const UNASKED_PER_SHARD_MAX: usize = (1 << 12) / SHARD_COUNT;
/// Inodes with notes in one shard. With more, the transaction is left without a log.
const PER_SHARD_MAX: usize = (1 << 17) / SHARD_COUNT;
/// Names that one inode lost. With more, the transaction is left without a log.
const NAMES_MAX: usize = 1 << 14;

/// A name that a directory lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Its position.
    pub(crate) index: u64,
    /// The inode it led to; `None` for one that a log cannot name.
    pub(crate) target: Option<u64>,
}

/// The changes of one inode since the last commit. The log has the state of the last time that the inode was logged, as
/// if later changes had not happened, until it is logged again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    /// Ranges of its contents that were changed since it was logged last.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Its size was changed since it was logged last.
    pub(crate) has_new_size: bool,
    /// Attributes changed since it was logged last.
    pub(crate) has_new_items: bool,
    /// All of it is in the log.
    pub(crate) is_logged: bool,
    /// The log has its existence and names.
    pub(crate) is_known: bool,
    /// Counts the changes of the inode; the count when it was logged last.
    pub(crate) logged_count: u64,
    /// The names that lead to it.
    pub(crate) names: NamesNote,
    /// It lost its last name.
    pub(crate) is_gone: bool,
    /// It was synced while it had no name, which the log does not record.
    pub(crate) is_synced_unnamed: bool,
    /// As a directory: the names in it.
    pub(crate) entries: EntriesNote,
}

/// The changes of the names of one inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamesNote {
    /// It got or lost names since they were logged last.
    pub(crate) has_new: bool,
    /// It got a name in this transaction.
    pub(crate) has_got: bool,
    /// Names that it lost and that are not logged: directory and position.
    pub(crate) lost: Vec<(u64, u64)>,
}

/// The changes of the entries of one directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntriesNote {
    /// The names that it lost. Shared with the copies of the note that an fsync looks at for each of them: a directory
    /// may lose thousands of names in one transaction.
    pub(crate) removed: Arc<RemovedNames>,
    /// Hashes of the names that it lost since it was logged last.
    pub(crate) unlogged_removed: Arc<HashSet<u64>>,
    /// Position of the first name it got.
    pub(crate) first_added: Option<u64>,
    /// Position of the first name it got since it was logged last.
    pub(crate) first_unlogged: Option<u64>,
}

/// The names that a directory lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemovedNames {
    /// By their hashes. Keyed at random, since callers choose the names and could make them collide; the order never
    /// reaches the disk.
    by_hash: HashMap<u64, Vec<Removed>>,
    /// The hashes of the names that led to an inode, by its number.
    hashes_of: HashMap<u64, Vec<u64>>,
    /// The last position of any of them.
    last_index: Option<u64>,
}

impl RemovedNames {
    fn add(&mut self, hash: u64, removed: Removed) {
        self.by_hash.entry(hash).or_default().push(removed);
        if let Some(target) = removed.target {
            self.hashes_of.entry(target).or_default().push(hash);
        }
        self.last_index = self.last_index.max(Some(removed.index));
    }

    /// The names of one hash.
    pub(crate) fn of_hash(&self, hash: u64) -> &[Removed] {
        self.by_hash.get(&hash).map_or(&[], Vec::as_slice)
    }

    /// The hashes of names that led to the inode with this number; one may occur twice.
    pub(crate) fn hashes_of(&self, target: u64) -> &[u64] {
        self.hashes_of.get(&target).map_or(&[], Vec::as_slice)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Removed> {
        self.by_hash.values().flatten()
    }
}

impl Note {
    /// True when the log has any state of the inode.
    pub(crate) fn is_in_log(&self) -> bool {
        self.is_logged || self.is_known
    }

    /// Notes that the directory lost a name.
    pub(crate) fn remove_name(&mut self, hash: u64, removed: Removed) {
        Arc::make_mut(&mut self.entries.removed).add(hash, removed);
        Arc::make_mut(&mut self.entries.unlogged_removed).insert(hash);
    }

    /// The last position of a name that the directory lost.
    pub(crate) fn removed_max(&self) -> Option<u64> {
        self.entries.removed.last_index
    }

    /// Notes that the directory got a name.
    pub(crate) fn add_name(&mut self, index: u64) {
        for first in [&mut self.entries.first_added, &mut self.entries.first_unlogged] {
            *first = Some(first.map_or(index, |first| first.min(index)));
        }
    }

    /// Notes that all of the inode was put into the log.
    pub(crate) fn set_logged(&mut self, count: u64) {
        (self.is_logged, self.logged_count) = (true, count);
        self.is_synced_unnamed = false;
        (self.has_new_items, self.has_new_size) = (false, false);
        self.ranges.clear();
        self.entries.unlogged_removed = Arc::default();
        self.entries.first_unlogged = None;
        self.set_named();
    }

    /// Notes that the names of the inode were put into the log.
    pub(crate) fn set_named(&mut self) {
        self.is_known = true;
        self.names.has_new = false;
        self.names.lost.clear();
    }

    /// Notes that a range of its contents was changed.
    pub(crate) fn add_range(&mut self, range: Range<u64>) {
        if let Some(last) = self.ranges.last_mut()
            && range.start <= last.end
            && range.end >= last.start
        {
            *last = last.start.min(range.start)..last.end.max(range.end);
            return;
        }
        if self.ranges.len() >= RANGES_MAX {
            let all = self.ranges.drain(..).fold(range.clone(), |a, b| a.start.min(b.start)..a.end.max(b.end));
            self.ranges.push(all);
            return;
        }
        self.ranges.push(range);
    }

    fn is_crowded(&self) -> bool {
        self.entries.removed.by_hash.len() > NAMES_MAX || self.names.lost.len() > NAMES_MAX
    }
}

/// A part of the notes.
struct Shard {
    /// The transaction of the notes.
    generation: Generation,
    notes: NumberMap<(TreeId, u64), Note>,
}

impl Shard {
    /// Drops the notes of transactions before `generation`.
    fn enter(&mut self, generation: Generation) {
        if self.generation < generation {
            self.generation = generation;
            self.notes.clear();
        }
    }
}

/// The notes of a volume.
pub(crate) struct Notes {
    shards: Vec<Mutex<Shard>>,
    /// The newest transaction with a note.
    newest: AtomicU64,
    /// The newest transaction of which notes are missing.
    missing: AtomicU64,
    /// An fsync has asked for notes.
    is_asked: AtomicBool,
}

/// Whether a note could be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Yes,
    /// The limit was reached: the transaction has no notes any more, and must not be logged.
    NoLog,
}

impl Default for Notes {
    fn default() -> Self {
        let shard = || Shard { generation: Generation(0), notes: NumberMap::default() };
        let shards = (0..SHARD_COUNT).map(|_| Mutex::new(Rank::Counters, shard())).collect();
        let (newest, missing, is_asked) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { shards, newest, missing, is_asked }
    }
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}

impl Notes {
    /// True when the notes have all changes of the transaction of `txn`. Later transactions keep more notes after the
    /// first call.
    pub(crate) fn ask(&self, txn: &Txn) -> bool {
        self.ask_of(txn.generation())
    }

    /// Changes the note of an inode.
    pub(crate) fn change(&self, txn: &Txn, tree: TreeId, ino: InodeNo, change: impl FnOnce(&mut Note)) {
        if self.change_in(txn.generation(), (tree, ino.0), change) == Kept::NoLog {
            txn.require_commit();
        }
    }

    /// Looks at the note of an inode in the transaction `generation`.
    pub(crate) fn look<R>(
        &self,
        generation: Generation,
        tree: TreeId,
        ino: InodeNo,
        look: impl FnOnce(&Note) -> R,
    ) -> Option<R> {
        let shard = self.shard(ino.0).lock();
        if shard.generation != generation {
            return None;
        }
        shard.notes.get(&(tree, ino.0)).map(look)
    }

    fn ask_of(&self, generation: Generation) -> bool {
        if !self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(true, Ordering::Relaxed);
        }
        self.missing.load(Ordering::Relaxed) < generation.0
    }

    fn change_in(&self, generation: Generation, inode: (TreeId, u64), change: impl FnOnce(&mut Note)) -> Kept {
        if self.missing.load(Ordering::Relaxed) >= generation.0 {
            return Kept::Yes;
        }
        if self.newest.load(Ordering::Relaxed) < generation.0 {
            self.drop_older(generation);
        }
        let mut shard = self.shard(inode.1).lock();
        shard.enter(generation);
        let note = shard.notes.entry(inode).or_default();
        change(note);
        let is_crowded = note.is_crowded();
        let is_asked = self.is_asked.load(Ordering::Relaxed);
        let count_max = if is_asked { PER_SHARD_MAX } else { UNASKED_PER_SHARD_MAX };
        if !is_crowded && shard.notes.len() <= count_max {
            return Kept::Yes;
        }
        drop(shard);
        self.missing.fetch_max(generation.0, Ordering::Relaxed);
        self.shards.iter().for_each(|shard| shard.lock().notes.clear());
        Kept::NoLog
    }

    /// Frees the notes of earlier transactions, once for each transaction. Shards with notes of this one, which another
    /// thread may have added, stay.
    fn drop_older(&self, generation: Generation) {
        if self.newest.fetch_max(generation.0, Ordering::Relaxed) < generation.0 {
            self.shards.iter().for_each(|shard| shard.lock().enter(generation));
        }
    }

    fn shard(&self, ino: u64) -> &Mutex<Shard> {
        let hash = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        &self.shards[usize::try_from(hash).unwrap_or(0) % SHARD_COUNT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_bounded() {
        let mut note = Note::default();
        note.add_range(0..4096);
        note.add_range(4096..8192);
        note.add_range(2048..4096);
        assert_eq!((note.ranges.len(), note.ranges.first()), (1, Some(&(0..8192))));
        for index in 1..2000 {
            note.add_range(index << 20..(index << 20) + 4096);
        }
        assert!(note.ranges.len() <= RANGES_MAX);
        let is_covered = |at: u64| note.ranges.iter().any(|range| range.contains(&at));
        assert!((0..2000_u64).all(|index| is_covered(index << 20)));
    }

    fn add(notes: &Notes, generation: u64, ino: u64) -> Kept {
        notes.change_in(Generation(generation), (TreeId::FS, ino), |note| note.add_name(ino))
    }

    fn has(notes: &Notes, generation: u64, ino: u64) -> bool {
        notes.look(Generation(generation), TreeId::FS, InodeNo(ino), |_| ()).is_some()
    }

    #[test]
    fn a_transaction_with_too_many_notes_goes_on_without() {
        let notes = Notes::default();
        let crowded = (0..100_000).find(|ino| add(&notes, 7, *ino) == Kept::NoLog).unwrap();
        assert!((3500..=4096).contains(&crowded), "{crowded}");
        assert!(!notes.ask_of(Generation(7)), "notes of this transaction are missing");
        assert!(!has(&notes, 7, 1), "none of them is kept");
        // An fsync asked: from the next transaction on more are kept.
        assert!((0..100_000).all(|ino| add(&notes, 8, ino) == Kept::Yes));
        assert!(notes.ask_of(Generation(8)));
    }

    #[test]
    fn notes_end_with_their_transaction() {
        let notes = Notes::default();
        (0..100).for_each(|ino| assert_eq!(add(&notes, 7, ino), Kept::Yes));
        assert!(has(&notes, 7, 50));
        assert!(!has(&notes, 8, 50), "before the next transaction has a note");
        add(&notes, 8, 1);
        assert!(has(&notes, 8, 1) && !has(&notes, 8, 50) && !has(&notes, 7, 50));
        let kept: usize = notes.shards.iter().map(|shard| shard.lock().notes.len()).sum();
        assert_eq!(kept, 1, "the first note of a transaction frees the older ones");
    }

    #[test]
    fn threads_that_begin_a_transaction_together_lose_no_note() {
        let notes = Notes::default();
        for generation in 1..200 {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let notes = &notes;
                    scope.spawn(move || (0..20).for_each(|i| _ = add(notes, generation, thread * 20 + i)));
                }
            });
            assert!((0..80).all(|ino| has(&notes, generation, ino)), "{generation}");
        }
    }
}
