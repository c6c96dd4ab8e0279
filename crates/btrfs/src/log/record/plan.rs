//! Collects the edits of an fsync to the log, before the log is locked, and applies them. `recorder` fills a plan and
//! carries it out.

use btrfs_disk::{Key, Logical};
use btrfs_store::LogEdit;

use crate::error::Result;

/// Items with ascending keys.
pub(super) type Items = Vec<(Key, Vec<u8>)>;

/// Edits of one log tree, in their order.
#[derive(Default)]
pub(super) struct Plan {
    edits: Vec<Edit>,
    item_count: usize,
}

enum Edit {
    Put(Key, Vec<u8>),
    /// Items replace all from the first key to the last.
    Replace {
        first: Key,
        last: Key,
        items: Items,
    },
    Csums(Logical, Vec<u8>),
}

impl Plan {
    /// Number of items to write.
    pub(super) fn item_count(&self) -> usize {
        self.item_count
    }

    /// Puts one item, in place of one with the same key.
    pub(super) fn put(&mut self, key: Key, bytes: Vec<u8>) {
        self.add(1, Edit::Put(key, bytes));
    }

    /// Puts items in place of all from `first` to `last`.
    pub(super) fn replace(&mut self, first: Key, last: Key, items: Items) {
        self.add(items.len(), Edit::Replace { first, last, items });
    }

    /// Removes the items from `first` to `last`.
    pub(super) fn remove(&mut self, first: Key, last: Key) {
        self.replace(first, last, Items::new());
    }

    /// Puts checksums of consecutive sectors.
    pub(super) fn put_csums(&mut self, at: Logical, csums: Vec<u8>) {
        self.add(1, Edit::Csums(at, csums));
    }

    fn add(&mut self, count: usize, edit: Edit) {
        self.item_count += count;
        self.edits.push(edit);
    }

    /// Carries the plan out. After a failure a part of it is in the log.
    pub(super) fn apply(&self, log: &LogEdit<'_>) -> Result<()> {
        for edit in &self.edits {
            match edit {
                Edit::Put(key, bytes) => log.put(key, bytes)?,
                Edit::Replace { first, last, items } => {
                    let items: Vec<(Key, &[u8])> = items.iter().map(|(key, bytes)| (*key, &**bytes)).collect();
                    log.replace(first, last, &items)?;
                }
                Edit::Csums(at, csums) => log.put_csums(*at, csums)?,
            }
        }
        Ok(())
    }
}
