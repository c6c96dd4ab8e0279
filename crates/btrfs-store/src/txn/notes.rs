//! What happened to which object in the running transaction, for those who write logs.
//!
//! The store only keeps the notes and forgets them with the commit; what an object and its names
//! are is the business of who makes them. Most volumes never see an fsync: until somebody asks
//! for a note, few are kept, and a transaction with more of them goes on without.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use btrfs_disk::{Generation, TreeId};

use crate::hash::NumberMap;
use crate::locks::{Mutex, Rank};

/// Shards of the map of notes; a power of two.
const SHARD_COUNT: usize = 16;
/// Ranges kept for one object; more are joined to one.
const RANGES_MAX: usize = 256;
/// Objects with notes while nobody asked for any.
const OBJECTS_UNASKED_MAX: usize = 1 << 12;
/// Objects with notes; more, and the log of this transaction is given up.
const OBJECTS_MAX: usize = 1 << 17;
/// Names that one object lost; more, and the log of this transaction is given up.
const NAMES_MAX: usize = 1 << 14;

/// A name that a directory lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its position.
    pub index: u64,
    /// The object it led to; `None` for one that no log can name.
    pub target: Option<u64>,
}

/// What happened to one object since the last commit. What the log has of it is what was noted
/// when it was put there: an object that changed since keeps its older state in the log, as if
/// nothing had happened, until it is logged again.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// Ranges of its contents that were changed since it was logged last.
    pub ranges: Vec<Range<u64>>,
    /// Its size was changed since it was logged last.
    pub has_new_size: bool,
    /// Attributes changed since it was logged last.
    pub has_new_items: bool,
    /// Names of it came or went since the log was told of them.
    pub has_new_names: bool,
    /// All of it is in the log.
    pub is_logged: bool,
    /// The log says that it exists, with its names.
    pub is_known: bool,
    /// Counts the changes of the object; the count when it was logged last.
    pub logged_count: u64,
    /// It got a name in this transaction.
    pub got_name: bool,
    /// Names that it lost and that the log was not told of: directory and position.
    pub lost: Vec<(u64, u64)>,
    /// It lost its last name.
    pub is_gone: bool,
    /// It was synced while it had no name, which the log does not say.
    pub is_synced_unnamed: bool,
    /// As a directory: the names that it lost, by their hashes.
    pub removed: HashMap<u64, Vec<Removed>>,
    /// As a directory: hashes of the names that it lost since it was logged last.
    pub unlogged_removed: HashSet<u64>,
    /// As a directory: position of the first name it got.
    pub first_added: Option<u64>,
    /// As a directory: position of the first name it got since it was logged last.
    pub first_unlogged: Option<u64>,
}

impl Note {
    /// True when the log has something of the object.
    #[must_use]
    pub fn is_in_log(&self) -> bool {
        self.is_logged || self.is_known
    }

    /// As a directory: it lost a name.
    pub fn remove_name(&mut self, hash: u64, removed: Removed) {
        self.removed.entry(hash).or_default().push(removed);
        self.unlogged_removed.insert(hash);
    }

    /// As a directory: the last position of a name that it lost.
    #[must_use]
    pub fn removed_max(&self) -> Option<u64> {
        self.removed.values().flatten().map(|removed| removed.index).max()
    }

    /// As a directory: it got a name.
    pub fn add_name(&mut self, index: u64) {
        for first in [&mut self.first_added, &mut self.first_unlogged] {
            *first = Some(first.map_or(index, |first| first.min(index)));
        }
    }

    /// All of the object was put into the log.
    pub fn set_logged(&mut self, count: u64) {
        (self.is_logged, self.logged_count) = (true, count);
        self.is_synced_unnamed = false;
        (self.has_new_items, self.has_new_size) = (false, false);
        self.ranges.clear();
        self.unlogged_removed.clear();
        self.first_unlogged = None;
        self.set_named();
    }

    /// The names of the object were put into the log.
    pub fn set_named(&mut self) {
        self.is_known = true;
        self.has_new_names = false;
        self.lost.clear();
    }

    /// A range of its contents was changed.
    pub fn add_range(&mut self, range: Range<u64>) {
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
        self.removed.len() > NAMES_MAX || self.lost.len() > NAMES_MAX
    }
}

type Shard = NumberMap<(TreeId, u64), Note>;

/// All notes of the running transaction.
pub(crate) struct Notes {
    shards: Vec<Mutex<Shard>>,
    count: AtomicUsize,
    /// The newest transaction of which notes are missing.
    missing: AtomicU64,
    /// Somebody asked for notes.
    is_asked: AtomicBool,
}

/// What a transaction with too many notes has to do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    /// This note, and its log with it.
    NoLog,
}

impl Notes {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Mutex::new(Rank::Counters, Shard::default())).collect();
        let (count, missing, is_asked) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self { shards, count, missing, is_asked }
    }

    /// Forgets everything, with the transaction.
    pub(crate) fn clear(&self) {
        if self.count.swap(0, Ordering::Relaxed) > 0 {
            self.shards.iter().for_each(|shard| shard.lock().clear());
        }
    }

    /// True when the notes have all that happened in this transaction. From now on more are kept.
    pub(super) fn ask(&self, generation: Generation) -> bool {
        if !self.is_asked.load(Ordering::Relaxed) {
            self.is_asked.store(true, Ordering::Relaxed);
        }
        self.missing.load(Ordering::Relaxed) < generation.0
    }

    pub(super) fn change(
        &self,
        generation: Generation,
        (tree, object): (TreeId, u64),
        change: impl FnOnce(&mut Note),
    ) -> Kept {
        if self.missing.load(Ordering::Relaxed) >= generation.0 {
            return Kept::Yes;
        }
        let mut shard = self.shard(object).lock();
        let note = shard.entry((tree, object)).or_insert_with(|| {
            self.count.fetch_add(1, Ordering::Relaxed);
            Note::default()
        });
        change(note);
        let is_crowded = note.is_crowded();
        drop(shard);
        let count = self.count.load(Ordering::Relaxed);
        let count_max = if self.is_asked.load(Ordering::Relaxed) { OBJECTS_MAX } else { OBJECTS_UNASKED_MAX };
        if is_crowded || count > count_max {
            self.missing.fetch_max(generation.0, Ordering::Relaxed);
            self.clear();
            return Kept::NoLog;
        }
        Kept::Yes
    }

    pub(crate) fn look<R>(&self, tree: TreeId, object: u64, look: impl FnOnce(&Note) -> R) -> Option<R> {
        self.shard(object).lock().get(&(tree, object)).map(look)
    }

    fn shard(&self, object: u64) -> &Mutex<Shard> {
        let hash = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
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

    #[test]
    fn a_transaction_with_too_many_notes_goes_on_without() {
        let notes = Notes::new();
        let change = |generation, object| notes.change(Generation(generation), (TreeId::FS, object), |_| ());
        let crowded = (0..100_000).find(|object| change(7, *object) == Kept::NoLog);
        assert_eq!(crowded, Some(4096));
        assert!(!notes.ask(Generation(7)), "notes of this transaction are missing");
        notes.clear();
        // Somebody asked: from the next transaction on more are kept.
        assert!((0..100_000).all(|object| change(8, object) == Kept::Yes));
        assert!(notes.ask(Generation(8)));
    }
}
