//! Noting what happens in a transaction, and asking about it.

use std::ops::Range;

use btrfs_disk::TreeId;

use super::handle::Txn;
use super::notes::{Kept, Note};

impl Txn {
    /// True when the notes have everything that happened in this transaction. Asking makes later
    /// transactions keep more of them.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.engine.notes.ask(self.generation)
    }

    /// Changes the note of an object.
    pub fn note(&self, tree: TreeId, object: u64, change: impl FnOnce(&mut Note)) {
        if self.engine.notes.change(self.generation, (tree, object), change) == Kept::NoLog {
            self.require_commit();
        }
    }

    /// Notes a change of an object's contents.
    pub fn note_range(&self, tree: TreeId, object: u64, range: Range<u64>) {
        self.note(tree, object, |note| note.add_range(range));
    }

    /// What is noted of an object.
    pub fn noted<R>(&self, tree: TreeId, object: u64, look: impl FnOnce(&Note) -> R) -> Option<R> {
        self.engine.notes.look(tree, object, look)
    }
}
