//! Noting what happens in a transaction, and asking about it.

use std::ops::Range;
use std::sync::atomic::Ordering;

use btrfs_disk::TreeId;

use super::handle::Txn;
use super::notes::{Note, OBJECTS_MAX, REMOVED_MAX};

impl Txn {
    /// True when the notes have everything that happened in this transaction.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let since = self.engine.notes.since.load(Ordering::Relaxed);
        since != 0 && since <= self.generation.0
    }

    /// Notes are kept from the next transaction on.
    pub fn watch(&self) {
        let next = self.generation.0 + 1;
        let _ = self.engine.notes.since.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Changes the note of an object, if notes are kept.
    pub fn note(&self, tree: TreeId, object: u64, change: impl FnOnce(&mut Note)) {
        let notes = &self.engine.notes;
        if !notes.is_kept() {
            return;
        }
        let mut shard = notes.shard(object).lock();
        let note = shard.entry((tree, object)).or_insert_with(|| {
            notes.count.fetch_add(1, Ordering::Relaxed);
            Note::default()
        });
        change(note);
        let is_crowded = note.removed.len() > REMOVED_MAX;
        drop(shard);
        if is_crowded || notes.count.load(Ordering::Relaxed) > OBJECTS_MAX {
            self.require_commit();
        }
    }

    /// Notes a change of an object's contents.
    pub fn note_range(&self, tree: TreeId, object: u64, range: Range<u64>) {
        self.note(tree, object, |note| note.add_range(range));
    }

    /// What is noted of an object.
    pub fn noted<R>(&self, tree: TreeId, object: u64, look: impl FnOnce(&Note) -> R) -> Option<R> {
        self.engine.notes.shard(object).lock().get(&(tree, object)).map(look)
    }
}
