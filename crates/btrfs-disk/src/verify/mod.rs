//! Verifies tree blocks and superblocks, before they are used and before they are written.
//!
//! [`block`] runs on every tree block read, and [`content`] on every block before its checksum is computed and it is
//! written; [`superblock`] and [`superblock_fields`] do the same for superblocks. They check a block by itself and
//! against its parent ([`Expect`]): checksum, identity, key order, item placement, and the rules of every item, one
//! file per item type. The rules are those of the kernel's tree checker, and others that the kernel's writers obey
//! (names, the layout of free-space items). They accept everything that the kernel or mkfs writes.
//!
//! Relations between blocks (overlapping chunks, wrong reference counts) are left to the store and the checker.
//!
//! Failure: the first [`Corrupt`] found, with its block, slot and key. No allocation, no panic on any bytes; a full
//! leaf takes a few microseconds besides its checksum. Callers: the store, the pool, checker, repair and rescue.

mod block_group;
mod chunk;
mod csum;
mod device;
mod dir;
mod extent;
mod file_extent;
mod free_space;
mod inode;
mod inode_ref;
mod other_items;
mod root;
mod superblock;
mod tree_block;

use codec::ChecksumType;

pub use chunk::chunk;
pub use file_extent::INLINE_LEN_MAX;
pub use superblock::{superblock, superblock_fields};
pub use tree_block::{BLOCK_GENERATION, block, content, has_right_checksum, item, may_own, owner, seal};

use crate::disk_superblock::DiskSuperblock;
use crate::error::{Corrupt, Detail};
use crate::flags::Incompat;
use crate::{Generation, Key, Logical, TreeId, Uuid};

/// Format parameters that all blocks of a file system share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// UUID in tree blocks: [`DiskSuperblock::tree_fsid`].
    pub fsid: Uuid,
    /// Bytes of a tree block.
    pub nodesize: u32,
    /// Bytes of a sector; a power of two.
    pub sectorsize: u32,
    /// Type of all checksums.
    pub csum_type: ChecksumType,
    /// Features, since some items depend on them.
    pub incompat: Incompat,
    /// False while btrfs-progs converts data checksums: there are items of two types then.
    pub checks_csum_items: bool,
    /// UUIDs in tree blocks that a sprout shares with its seeds; entries without one are nil.
    pub seeds: [Uuid; SEEDS_MAX],
}

/// Most seeds of one file system whose blocks are read.
pub const SEEDS_MAX: usize = 8;

impl Format {
    /// The format that a superblock describes; `None` where its checksum type is unknown.
    #[must_use]
    pub fn of(fields: &DiskSuperblock) -> Option<Self> {
        use crate::flags::SuperFlags;
        let converting = SuperFlags::CHANGING_DATA_CSUM | SuperFlags::CHANGING_META_CSUM;
        Some(Self {
            fsid: fields.tree_fsid(),
            nodesize: fields.nodesize.get(),
            sectorsize: fields.sectorsize.get(),
            csum_type: ChecksumType::from_raw(fields.csum_type.get())?,
            incompat: fields.incompat(),
            checks_csum_items: !fields.super_flags().intersects(converting),
            seeds: [Uuid::NIL; SEEDS_MAX],
        })
    }
}

impl Format {
    /// The same, of a sprout of these seeds: the first [`SEEDS_MAX`] count.
    #[must_use]
    pub fn with_seeds(mut self, seeds: &[Uuid]) -> Self {
        self.seeds.iter_mut().zip(seeds).for_each(|(entry, seed)| *entry = *seed);
        self
    }

    /// Whether a tree block with this UUID is of the file system.
    #[must_use]
    pub fn has_fsid(&self, found: Uuid) -> bool {
        found == self.fsid || (found != Uuid::NIL && self.seeds.contains(&found))
    }
}

/// Properties that a block must have, from its parent, its root item or the superblock.
#[derive(Clone, Copy, Debug)]
pub struct Expect<'a> {
    /// The file system.
    pub format: &'a Format,
    /// Address of the block.
    pub at: Logical,
    /// Level of the block.
    pub level: Option<u8>,
    /// The tree through which it was reached. A subvolume's blocks may belong to any subvolume.
    pub owner: Option<TreeId>,
    /// Generation of the block.
    pub generation: Option<Generation>,
    /// No generation in the block may be above this one: that of the running transaction, which
    /// is the superblock's plus one.
    pub generation_max: Generation,
    /// First key of the block.
    pub first_key: Option<Key>,
}

impl<'a> Expect<'a> {
    /// Only the address is known.
    #[must_use]
    pub fn at(format: &'a Format, at: Logical, generation_max: Generation) -> Self {
        Self { format, at, level: None, owner: None, generation: None, generation_max, first_key: None }
    }
}

/// An item with the data that its rules need.
#[derive(Clone, Copy)]
struct Context<'a> {
    format: &'a Format,
    generation_max: u64,
    /// Transaction that wrote the block the item is in.
    block_generation: u64,
    owner: TreeId,
    key: Key,
    data: &'a [u8],
    /// Key and data of the item before it in the leaf.
    previous: Option<(Key, &'a [u8])>,
}

impl Context<'_> {
    /// `value` is a multiple of the sector size.
    #[inline]
    fn aligned(&self, what: &'static str, value: u64) -> Result<(), Corrupt> {
        let sector = u64::from(self.format.sectorsize);
        if value & sector.wrapping_sub(1) == 0 {
            return Ok(());
        }
        Err(Corrupt::new(what, Detail::MultipleOf(sector), Detail::Number(value)))
    }

    /// `generation` is not from the future.
    #[inline]
    fn generation(&self, what: &'static str, generation: u64) -> Result<(), Corrupt> {
        require(
            generation <= self.generation_max,
            what,
            Detail::AtMost(self.generation_max),
            Detail::Number(generation),
        )
    }

    /// The data has this size.
    #[inline]
    fn size(&self, what: &'static str, size: usize) -> Result<(), Corrupt> {
        require(self.data.len() == size, what, Detail::size(size), Detail::size(self.data.len()))
    }

    /// In a subvolume, the items of an inode follow its inode item.
    #[inline]
    fn follows_its_inode(&self) -> Result<(), Corrupt> {
        match self.previous {
            Some((previous, _)) if previous.objectid != self.key.objectid && self.owner.is_subvolume() => {
                Err(Corrupt::new(
                    "inode of the item before",
                    Detail::Number(self.key.objectid),
                    Detail::Number(previous.objectid),
                ))
            }
            _ => Ok(()),
        }
    }
}

#[inline]
fn require(is_right: bool, what: &'static str, expected: Detail, found: Detail) -> Result<(), Corrupt> {
    if is_right { Ok(()) } else { Err(Corrupt::new(what, expected, found)) }
}

/// `value` is exactly this.
#[inline]
fn equal(what: &'static str, value: u64, expected: u64) -> Result<(), Corrupt> {
    require(value == expected, what, Detail::Number(expected), Detail::Number(value))
}

/// `start + len` does not wrap.
#[inline]
fn end(what: &'static str, start: u64, len: u64) -> Result<u64, Corrupt> {
    start
        .checked_add(len)
        .ok_or_else(|| Corrupt::new(what, Detail::AtMost(u64::MAX.saturating_sub(start)), Detail::Number(len)))
}

/// Levels count from 0 to 7.
#[inline]
fn level(what: &'static str, level: u64) -> Result<(), Corrupt> {
    let max = u64::from(crate::node::LEVELS_MAX).saturating_sub(1);
    require(level <= max, what, Detail::AtMost(max), Detail::Number(level))
}
