//! Defines a tree block in memory with its lock, and the trait of its source. Used by the whole tree layer.

use btrfs_disk::{At, Corrupt, Detail, Generation, Key, Logical, TreeId, verify};

use crate::Result;
use crate::locks::{ArcReadGuard, ArcRwLock, ArcWriteGuard, Rank};

use super::layout;

/// The on-disk bytes of one tree block.
#[derive(Debug)]
pub struct Bytes {
    pub(crate) at: Logical,
    pub(crate) data: Box<[u8]>,
    /// Made in memory, not read from a device.
    pub(crate) is_made: bool,
}

/// A tree block in the cache. Clones share it.
#[derive(Clone, Debug)]
pub struct Block {
    lock: ArcRwLock<Bytes>,
    at: Logical,
    level: u8,
    generation: u64,
    owner: u64,
}

pub(crate) type ReadLocked = ArcReadGuard<Bytes>;
pub(crate) type WriteLocked = ArcWriteGuard<Bytes>;

impl Block {
    /// A block that was read.
    pub(crate) fn new(at: Logical, data: Box<[u8]>) -> Self {
        Self::with(Bytes { at, data, is_made: false })
    }

    /// A block that a transaction makes, and that nothing points to yet.
    pub(crate) fn made(at: Logical, data: Box<[u8]>) -> Self {
        Self::with(Bytes { at, data, is_made: true })
    }

    fn with(bytes: Bytes) -> Self {
        let (at, data) = (bytes.at, &bytes.data);
        let (level, generation, owner) = (layout::level(data), layout::generation(data), layout::owner(data));
        Self { lock: ArcRwLock::new(Rank::TreeBlock, bytes), at, level, generation, owner }
    }

    /// Where the block is.
    #[must_use]
    pub fn at(&self) -> Logical {
        self.at
    }

    /// The transaction that wrote it first.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation)
    }

    /// Checks level, generation and owner, which a block keeps as long as it is at this address. To
    /// be called before the block is locked: a pointer may lead to a block that the caller has
    /// locked already, which then differs in one of them.
    pub(crate) fn check_identity(&self, expect: &ReadExpect) -> Result<(), Corrupt> {
        let wrong = |what, expected: u64, found: u64| {
            Err(Corrupt::new(what, Detail::Number(expected), Detail::Number(found)).at(At::Block(self.at)))
        };
        if self.level != expect.level {
            return wrong("level of the tree block", expect.level.into(), self.level.into());
        }
        if self.generation != expect.generation.0 {
            return wrong("generation of the tree block", expect.generation.0, self.generation);
        }
        verify::owner(TreeId(self.owner), expect.owner).map_err(|wrong| wrong.at(At::Block(self.at)))
    }

    /// As [`Self::check_identity`] and [`Self::read`], without waiting: `None` where the lock is not
    /// free, or where something needs a closer look.
    #[inline]
    pub(crate) fn try_read(&self, expect: &ReadExpect) -> Option<ReadLocked> {
        let locked = self.is_as_expected(expect).then(|| self.lock.try_read_arc())??;
        has_first_key(&locked, expect).then_some(locked)
    }

    /// As [`Self::try_read`], for writing.
    #[inline]
    pub(crate) fn try_write(&self, expect: &ReadExpect) -> Option<WriteLocked> {
        let locked = self.is_as_expected(expect).then(|| self.lock.try_write_arc())??;
        has_first_key(&locked, expect).then_some(locked)
    }

    /// True where [`Self::check_identity`] finds nothing wrong.
    #[inline]
    fn is_as_expected(&self, expect: &ReadExpect) -> bool {
        self.level == expect.level
            && self.generation == expect.generation.0
            && expect.owner.is_none_or(|tree| verify::may_own(TreeId(self.owner), tree))
    }

    /// Locks the block for reading, and checks its first key. The caller holds the lock of the
    /// parent that `expect` is from, without which the two may differ for a moment.
    pub(crate) fn read(&self, expect: &ReadExpect) -> Result<ReadLocked, Corrupt> {
        let locked = self.lock.read_arc();
        check_first_key(&locked, expect)?;
        Ok(locked)
    }

    /// As [`Self::read`], for writing.
    pub(crate) fn write(&self, expect: &ReadExpect) -> Result<WriteLocked, Corrupt> {
        let locked = self.lock.write_arc();
        check_first_key(&locked, expect)?;
        Ok(locked)
    }

    /// Locks a block that nothing points to yet.
    pub(crate) fn write_new(&self) -> WriteLocked {
        self.lock.write_arc()
    }

    /// Locks a block of the caller's own for reading, without a parent to compare it with.
    pub(crate) fn read_own(&self) -> ReadLocked {
        self.lock.read_arc()
    }

    /// True when only the cache knows the block. Exact under the cache's lock, because
    /// new references come from there.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock.handle_count() == 1
    }
}

fn check_first_key(locked: &Bytes, expect: &ReadExpect) -> Result<(), Corrupt> {
    match expect.first_key {
        Some(expected) if !has_first_key(locked, expect) => {
            let found = first_key(locked);
            Err(Corrupt::new("first key of the tree block", expected.into(), found.into()).at(At::Block(locked.at)))
        }
        _ => Ok(()),
    }
}

#[inline]
fn has_first_key(locked: &Bytes, expect: &ReadExpect) -> bool {
    expect.first_key.is_none_or(|expected| first_key(locked) == expected)
}

/// The greatest of all keys for a block without items.
#[inline]
fn first_key(locked: &Bytes) -> Key {
    match layout::nritems(&locked.data) {
        0 => Key::MAX,
        _ => layout::get_key(&locked.data, layout::HEADER),
    }
}

/// The properties of a block according to its parent.
#[derive(Clone, Copy, Debug)]
pub struct ReadExpect {
    /// Address.
    pub at: Logical,
    /// Level, 0 for leaves.
    pub level: u8,
    /// Generation in the parent's pointer.
    pub generation: Generation,
    /// First key in the parent's pointer; `None` for a root.
    pub first_key: Option<Key>,
    /// The tree. Blocks of a subvolume may have been made for any other subvolume.
    pub owner: Option<TreeId>,
}

/// Where blocks come from: the pool, or memory in tests.
pub trait BlockSource: Send + Sync {
    /// Reads a block from a copy that satisfies `expect`.
    ///
    /// # Errors
    /// When no copy is good.
    fn read_block(&self, expect: &ReadExpect) -> Result<Box<[u8]>>;
}

/// A block as the [`super::Host`] sees it: header fields, and the raw bytes.
#[derive(Clone, Copy, Debug)]
pub struct BlockView<'a> {
    /// Address.
    pub at: Logical,
    /// Generation that wrote it.
    pub generation: Generation,
    /// Tree that wrote it.
    pub owner: TreeId,
    /// Level, 0 for leaves.
    pub level: u8,
    /// Header flags (`WRITTEN`, `RELOC`, back reference revision).
    pub flags: u64,
    /// The whole block.
    pub bytes: &'a [u8],
}

impl<'a> BlockView<'a> {
    /// Reads the header of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            at: Logical(layout::bytenr(bytes)),
            generation: Generation(layout::generation(bytes)),
            owner: TreeId(layout::owner(bytes)),
            level: layout::level(bytes),
            flags: layout::flags(bytes),
            bytes,
        }
    }

    /// The key of the first item or pointer; none in an empty leaf.
    #[must_use]
    pub fn first_key(&self) -> Option<Key> {
        (layout::nritems(self.bytes) > 0).then(|| layout::key_at(self.bytes, 0))
    }
}
