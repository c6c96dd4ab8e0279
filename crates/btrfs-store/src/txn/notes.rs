//! What happened to which object in the running transaction, for those who write logs.
//!
//! The store only keeps the notes and forgets them with the commit; what an object and its names
//! are is the business of who makes them. Nothing is noted before somebody asked for it
//! (`Txn::watch`), since most volumes never see an fsync.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use btrfs_disk::TreeId;

use crate::locks::{Mutex, Rank};

/// Shards of the map of notes; a power of two.
const SHARD_COUNT: usize = 16;
/// Ranges kept for one object; more are joined to one.
const RANGES_MAX: usize = 256;
/// Objects with notes; more, and the log of this transaction is given up.
pub(super) const OBJECTS_MAX: usize = 1 << 17;
/// Removed names kept for one object; more, and the log of this transaction is given up.
pub(super) const REMOVED_MAX: usize = 1 << 14;

/// What happened to one object since the last commit.
#[derive(Clone, Debug, Default)]
pub struct Note {
    /// Ranges of its contents that were changed since it was logged last.
    pub ranges: Vec<Range<u64>>,
    /// Something beside its contents and its inode item changed since it was logged last.
    pub has_new_items: bool,
    /// All of it is in the log.
    pub is_logged: bool,
    /// The log says that it exists, with its names.
    pub is_known: bool,
    /// It got a name.
    pub has_new_name: bool,
    /// It lost a name.
    pub lost_name: bool,
    /// As a directory: hashes of the names that it lost.
    pub removed: HashSet<u64>,
    /// As a directory: it lost a name of something that still exists.
    pub has_moved: bool,
    /// As a directory: position of the first name it got.
    pub first_added: Option<u64>,
}

impl Note {
    pub(super) fn add_range(&mut self, range: Range<u64>) {
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
}

pub(super) type Shard = HashMap<(TreeId, u64), Note>;

/// All notes of the running transaction.
pub(crate) struct Notes {
    shards: Vec<Mutex<Shard>>,
    pub(super) count: AtomicUsize,
    /// The first transaction in which everything is noted; 0 while nobody asked for it.
    pub(super) since: AtomicU64,
}

impl Notes {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARD_COUNT).map(|_| Mutex::new(Rank::Counters, Shard::new())).collect();
        Self { shards, count: AtomicUsize::new(0), since: AtomicU64::new(0) }
    }

    /// Forgets everything, with the transaction.
    pub(crate) fn clear(&self) {
        if self.count.swap(0, Ordering::Relaxed) > 0 {
            self.shards.iter().for_each(|shard| shard.lock().clear());
        }
    }

    pub(super) fn is_kept(&self) -> bool {
        self.since.load(Ordering::Relaxed) != 0
    }

    pub(super) fn shard(&self, object: u64) -> &Mutex<Shard> {
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
}
