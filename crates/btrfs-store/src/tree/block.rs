//! A tree block in memory, and where blocks are read from.

use btrfs_disk::{Generation, Key, Logical, TreeId};

use crate::Result;
use crate::locks::{ArcReadGuard, ArcRwLock, ArcWriteGuard, Rank};

use super::raw;

/// The on-disk bytes of one tree block.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) at: Logical,
    pub(crate) data: Box<[u8]>,
}

/// A tree block in the cache. Clones share it.
#[derive(Clone, Debug)]
pub struct Block {
    lock: ArcRwLock<Bytes>,
    at: Logical,
    level: u8,
}

pub(crate) type ReadLocked = ArcReadGuard<Bytes>;
pub(crate) type WriteLocked = ArcWriteGuard<Bytes>;

impl Block {
    pub(crate) fn new(at: Logical, data: Box<[u8]>) -> Self {
        let level = raw::level(&data);
        Self { lock: ArcRwLock::new(Rank::TreeBlock, Bytes { at, data }), at, level }
    }

    /// Where the block is.
    #[must_use]
    pub fn at(&self) -> Logical {
        self.at
    }

    /// Its level, which a block keeps as long as it is at this address.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn read(&self) -> ReadLocked {
        self.lock.read_arc()
    }

    pub(crate) fn write(&self) -> WriteLocked {
        self.lock.write_arc()
    }

    /// True when only the cache knows the block. Exact under the cache's lock, because
    /// new references come from there.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock.handle_count() == 1
    }
}

/// What the parent says of a block that is to be read.
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
    /// The tree, where blocks cannot be shared with another one; `None` in subvolumes.
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
            at: Logical(raw::bytenr(bytes)),
            generation: Generation(raw::generation(bytes)),
            owner: TreeId(raw::owner(bytes)),
            level: raw::level(bytes),
            flags: raw::flags(bytes),
            bytes,
        }
    }
}
