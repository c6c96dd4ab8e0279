//! Describes pointers to tree blocks, with the properties that they claim. Used by `walk` and `collect`.

use btrfs_disk::Key;

use crate::sort::Record;

/// The class of the trees in a walk, which decides what is lost with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Trees that describe the file system itself.
    System,
    /// Trees of files.
    Files,
    /// The log.
    Log,
}

/// A pointer to a block, and the properties that it claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    pub(crate) at: u64,
    pub(crate) level: u8,
    /// Tree that is walked.
    pub(crate) tree: u64,
    pub(crate) generation: u64,
    /// The parent block; 0 for a root.
    pub(crate) parent: u64,
    pub(crate) first: Option<Key>,
    /// First key behind the block.
    pub(crate) next: Option<Key>,
    /// The set of subvolumes that reach it, by its number.
    pub(crate) set: u32,
}

pub(crate) type PointerRecord = Record<9>;

impl Pointer {
    /// A pointer to a root.
    pub(crate) fn root(tree: u64, at: u64, level: u8, generation: u64) -> Self {
        Self { at, level, tree, generation, parent: 0, first: None, next: None, set: 0 }
    }

    /// As a record.
    pub(crate) fn encode(&self) -> PointerRecord {
        let (first, next) = (self.first.unwrap_or_default(), self.next.unwrap_or_default());
        let bits = u64::from(first.item_type)
            | u64::from(next.item_type) << 8
            | u64::from(self.first.is_some()) << 16
            | u64::from(self.next.is_some()) << 17
            | u64::from(self.level) << 24
            | u64::from(self.set) << 32;
        let Self { at, tree, generation, parent, .. } = *self;
        [at, tree, generation, parent, first.objectid, first.offset, next.objectid, next.offset, bits]
    }

    /// From a record.
    pub(crate) fn decode(record: &PointerRecord) -> Self {
        let [at, tree, generation, parent, first_id, first_offset, next_id, next_offset, bits] = *record;
        let [first_type, next_type, has, level, a, b, c, d] = bits.to_le_bytes();
        Self {
            at,
            level,
            tree,
            generation,
            parent,
            first: (has & 1 != 0).then_some(Key::new(first_id, first_type, first_offset)),
            next: (has & 2 != 0).then_some(Key::new(next_id, next_type, next_offset)),
            set: u32::from_le_bytes([a, b, c, d]),
        }
    }
}
