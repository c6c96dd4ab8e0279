//! Reads and updates quota files: usage and limits of each user, group or project, in the form of the kernel's VFS
//! ("vfsv1", revision 1 of `quotaio_v2.h`). Called by `f2fs` (`quotas`, `change/quotas`, `make`) and `f2fs-check`.
//!
//! ```text
//!    block 0: header | block 1: root -> 256 -> 256 -> 256 -> leaf with 14 entries; each level takes one byte of an id
//! ```
//!
//! Blocks have 1024 bytes. A leaf may have entries of any ids. The caller provides the blocks ([`QuotaFile`]); a
//! malformed file leads to no more steps than it has blocks.

use std::collections::{HashMap, HashSet};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::OnDisk;
use crate::convert::{to_u64, u32_len, usize_from};
use crate::error::{Corrupt, Detail, equal, within};
use crate::{BLOCK_SIZE, Block};

/// Bytes of a block of a quota file.
pub const QUOTA_BLOCK_SIZE: usize = 1024;
/// A block of a quota file.
pub type QuotaBlock = [u8; QUOTA_BLOCK_SIZE];

/// Where a block of a quota file lies: the block of the file, and which part of that.
#[must_use]
pub fn place_of(number: u32) -> (u64, usize) {
    let per_block = u32_len(BLOCK_SIZE / QUOTA_BLOCK_SIZE);
    let (index, part) = (number.checked_div(per_block), number.checked_rem(per_block));
    (u64::from(index.unwrap_or(0)), usize_from(part.unwrap_or(0)))
}

/// A part of a block of a quota file.
#[must_use]
pub fn part_of(block: &Block, part: usize) -> QuotaBlock {
    let (parts, _) = block.as_chunks::<QUOTA_BLOCK_SIZE>();
    parts.get(part).copied().unwrap_or([0; QUOTA_BLOCK_SIZE])
}

/// The root of the tree.
const ROOT: u32 = 1;
/// Levels above the leaves.
const DEPTH: usize = 4;
const REFS: usize = QUOTA_BLOCK_SIZE / 4;
const REVISION: u32 = 1;
/// Header and root.
const BLOCKS_MIN: u32 = 2;

/// The owners whose usage a quota file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// Of owners.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl QuotaKind {
    /// All, in the order of the superblock's `qf_ino`.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// The first bytes of a quota file, as they lie on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct QuotaHeader {
    /// Magic number of the kind of owners.
    pub dqh_magic: U32,
    /// 1: entries have 72 bytes.
    pub dqh_version: U32,
    /// Seconds for which the soft limit of space may be exceeded.
    pub dqi_bgrace: U32,
    /// The same, of inodes.
    pub dqi_igrace: U32,
    /// Flags.
    pub dqi_flags: U32,
    /// Blocks of the file.
    pub dqi_blocks: U32,
    /// First block that is free; 0 for none.
    pub dqi_free_blk: U32,
    /// First leaf with room; 0 for none.
    pub dqi_free_entry: U32,
}

impl OnDisk for QuotaHeader {
    const NAME: &'static str = "quota file header size";
}

/// The head of a leaf, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct LeafHead {
    /// The next leaf with room, or the next free block.
    dqdh_next_free: U32,
    dqdh_prev_free: U32,
    dqdh_entries: U16,
    dqdh_pad1: U16,
    dqdh_pad2: U32,
}

/// Usage and limits of one user, group or project, as on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct QuotaEntry {
    /// Its number.
    pub dqb_id: U32,
    /// Zero.
    pub dqb_pad: U32,
    /// Inodes that it can never exceed; 0 for no limit.
    pub dqb_ihardlimit: U64,
    /// Inodes that it can exceed for a while.
    pub dqb_isoftlimit: U64,
    /// Inodes.
    pub dqb_curinodes: U64,
    /// Space that it can never exceed, in KiB.
    pub dqb_bhardlimit: U64,
    /// Space that it can exceed for a while, in KiB.
    pub dqb_bsoftlimit: U64,
    /// Bytes.
    pub dqb_curspace: U64,
    /// When too much space becomes an error.
    pub dqb_btime: U64,
    /// When too many inodes become one; 1 makes an empty entry of the number 0 other than an unused one.
    pub dqb_itime: U64,
}

const HEAD_SIZE: usize = size_of::<LeafHead>();
const ENTRIES: usize = (QUOTA_BLOCK_SIZE - HEAD_SIZE) / size_of::<QuotaEntry>();
const PADDING: usize = QUOTA_BLOCK_SIZE - HEAD_SIZE - ENTRIES * size_of::<QuotaEntry>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct Leaf {
    head: LeafHead,
    entries: [QuotaEntry; ENTRIES],
    rest: [u8; PADDING],
}

const _: () = assert!(size_of::<QuotaEntry>() == 72 && ENTRIES == 14);
const _: () = assert!(size_of::<Leaf>() == QUOTA_BLOCK_SIZE);

impl QuotaEntry {
    fn is_unused(&self) -> bool {
        self.as_bytes().iter().all(|byte| *byte == 0)
    }

    /// Adds to the usage, which does not fall below zero.
    pub fn add(&mut self, inodes: i64, bytes: i64) {
        self.dqb_curinodes = self.dqb_curinodes.get().saturating_add_signed(inodes).into();
        self.dqb_curspace = self.dqb_curspace.get().saturating_add_signed(bytes).into();
    }
}

/// The blocks of a quota file.
pub trait QuotaFile {
    /// Error of reading and writing, which includes damage.
    type Error: From<Corrupt>;

    /// A block of the file.
    ///
    /// # Errors
    /// Those of reading.
    fn block(&mut self, number: u32) -> Result<QuotaBlock, Self::Error>;
}

/// A quota file that can be changed.
pub trait QuotaFileMut: QuotaFile {
    /// Changes a block, or adds the one behind the last.
    ///
    /// # Errors
    /// Those of writing.
    fn put(&mut self, number: u32, block: &QuotaBlock) -> Result<(), Self::Error>;
}

/// A quota file whose header was verified.
#[derive(Debug)]
pub struct Quota<F> {
    file: F,
    header: QuotaHeader,
    has_changed: bool,
    /// Which leaf has the entry of an id, once that is needed.
    leaves: Option<HashMap<u32, u32>>,
}

impl<F: QuotaFile> Quota<F> {
    /// Reads the header of a file of `size` bytes.
    ///
    /// # Errors
    /// Those of reading, and [`Corrupt`] for a malformed header.
    pub fn open(mut file: F, kind: QuotaKind, size: u64) -> Result<Self, F::Error> {
        let block = file.block(0)?;
        let header = *QuotaHeader::parse(&block)?;
        verify(&header, kind, size)?;
        Ok(Self { file, header, has_changed: false, leaves: None })
    }

    /// All entries, in the order of the tree's leaves.
    ///
    /// # Errors
    /// Those of reading, and [`Corrupt`].
    pub fn entries(&mut self) -> Result<Vec<QuotaEntry>, F::Error> {
        Ok(self.placed_entries()?.into_iter().map(|(_, entry)| entry).collect())
    }

    /// All entries, and the leaves that they are in.
    fn placed_entries(&mut self) -> Result<Vec<(u32, QuotaEntry)>, F::Error> {
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        let mut level = vec![ROOT];
        for depth in 0..DEPTH {
            let mut below = Vec::new();
            for number in level {
                let block = self.file.block(number)?;
                for next in refs(&block).iter().map(|next| next.get()).filter(|next| *next != 0) {
                    self.check(next)?;
                    // Entries share leaves; nothing else is led to twice.
                    if seen.insert(next) {
                        below.push(next);
                    } else if depth.saturating_add(1) < DEPTH {
                        let expected = Detail::Text("each block once");
                        return Err(Corrupt::new("quota tree", expected, Detail::Number(next.into())).into());
                    }
                }
            }
            level = below;
        }
        for number in level {
            let block = self.file.block(number)?;
            let entries = leaf(&block).entries;
            found.extend(entries.iter().filter(|entry| !entry.is_unused()).map(|entry| (number, *entry)));
        }
        Ok(found)
    }

    fn check(&self, number: u32) -> Result<(), F::Error> {
        let last = u64::from(self.header.dqi_blocks.get()).saturating_sub(1);
        Ok(within("quota file block number", number.into(), BLOCKS_MIN.into(), last)?)
    }
}

impl<F: QuotaFileMut> Quota<F> {
    /// Adds to the usage of a user, group or project, which gets an entry if it has none.
    ///
    /// # Errors
    /// Those of reading and writing, and [`Corrupt`].
    pub fn add(&mut self, id: u32, inodes: i64, bytes: i64) -> Result<(), F::Error> {
        let way = id.to_be_bytes();
        let mut above = (ROOT, self.file.block(ROOT)?);
        for depth in 0..DEPTH {
            let rest = way.get(depth..).unwrap_or_default();
            let next =
                rest.first().and_then(|byte| refs(&above.1).get(usize::from(*byte))).map_or(0, |next| next.get());
            if next != 0 {
                self.check(next)?;
                if rest.len() > 1 {
                    above = (next, self.file.block(next)?);
                    continue;
                }
                if self.add_in(next, id, (inodes, bytes))? {
                    return Ok(());
                }
            }
            return self.insert(above, rest, id, (inodes, bytes));
        }
        Ok(())
    }

    /// Adds to the usage in a leaf; false where it has no such entry.
    fn add_in(&mut self, number: u32, id: u32, (inodes, bytes): (i64, i64)) -> Result<bool, F::Error> {
        let mut block = self.file.block(number)?;
        let mut entries = leaf_mut(&mut block).entries.iter_mut();
        let Some(entry) = entries.find(|entry| entry.dqb_id.get() == id && !entry.is_unused()) else {
            return Ok(false);
        };
        entry.add(inodes, bytes);
        if entry.is_unused() {
            entry.dqb_itime = 1.into();
        }
        self.file.put(number, &block)?;
        Ok(true)
    }

    /// Leads from a block to the entry of an id, of which that is the rest of the way.
    fn insert(
        &mut self,
        (number, mut block): (u32, QuotaBlock),
        way: &[u8],
        id: u32,
        more: (i64, i64),
    ) -> Result<(), F::Error> {
        // `mkfs.f2fs -R` puts the entry of the owner where that of 0 would be.
        if self.leaves.is_none() {
            let placed = self.placed_entries()?;
            self.leaves = Some(placed.into_iter().map(|(leaf, entry)| (entry.dqb_id.get(), leaf)).collect());
        }
        let known = self.leaves.as_ref().and_then(|leaves| leaves.get(&id).copied());
        let mut below = match known {
            Some(leaf) if self.add_in(leaf, id, more)? => leaf,
            _ => self.put_entry(id, more)?,
        };
        // From the leaf up, so that the tree leads to nothing that is not there yet.
        let (first, rest) = way.split_first().unwrap_or((&0, &[]));
        for byte in rest.iter().rev() {
            let mut made = [0; QUOTA_BLOCK_SIZE];
            set_ref(&mut made, *byte, below);
            below = self.new_block()?;
            self.file.put(below, &made)?;
        }
        set_ref(&mut block, *first, below);
        self.file.put(number, &block)
    }

    /// Puts an entry into a leaf with room, and says which.
    fn put_entry(&mut self, id: u32, (inodes, bytes): (i64, i64)) -> Result<u32, F::Error> {
        let mut entry = QuotaEntry::new_zeroed();
        entry.dqb_id = id.into();
        entry.add(inodes, bytes);
        if entry.is_unused() {
            entry.dqb_itime = 1.into();
        }
        let mut number = self.header.dqi_free_entry.get();
        let mut block = [0; QUOTA_BLOCK_SIZE];
        if number == 0 {
            number = self.new_block()?;
            self.header.dqi_free_entry = number.into();
        } else {
            self.check(number)?;
            block = self.file.block(number)?;
        }
        let leaf = leaf_mut(&mut block);
        let Some(place) = leaf.entries.iter_mut().find(|entry| entry.is_unused()) else {
            let (expected, found) = (Detail::Text("room for an entry"), Detail::Text("none"));
            return Err(Corrupt::new("quota leaf", expected, found).into());
        };
        *place = entry;
        let used = leaf.entries.iter().filter(|entry| !entry.is_unused()).count();
        leaf.head.dqdh_entries = u16::try_from(used).unwrap_or(0).into();
        if used == ENTRIES {
            // It leaves the list of leaves with room, of which it is the first.
            let next = leaf.head.dqdh_next_free.get();
            (leaf.head.dqdh_next_free, leaf.head.dqdh_prev_free) = (0.into(), 0.into());
            self.header.dqi_free_entry = next.into();
            if next != 0 {
                self.check(next)?;
                let mut behind = self.file.block(next)?;
                leaf_mut(&mut behind).head.dqdh_prev_free = 0.into();
                self.file.put(next, &behind)?;
            }
        }
        self.has_changed = true;
        self.file.put(number, &block)?;
        if let Some(leaves) = &mut self.leaves {
            leaves.insert(id, number);
        }
        Ok(number)
    }

    /// A block that nothing uses: a free one, or one behind the last.
    fn new_block(&mut self) -> Result<u32, F::Error> {
        self.has_changed = true;
        let free = self.header.dqi_free_blk.get();
        if free != 0 {
            self.check(free)?;
            self.header.dqi_free_blk = leaf(&self.file.block(free)?).head.dqdh_next_free;
            return Ok(free);
        }
        let last = self.header.dqi_blocks.get();
        self.file.put(last, &[0; QUOTA_BLOCK_SIZE])?;
        self.header.dqi_blocks = last.saturating_add(1).into();
        Ok(last)
    }

    /// Writes the header if it changed, and returns the file.
    ///
    /// # Errors
    /// Those of writing.
    pub fn close(mut self) -> Result<F, F::Error> {
        if self.has_changed {
            let mut block = self.file.block(0)?;
            block.iter_mut().zip(self.header.as_bytes()).for_each(|(to, byte)| *to = *byte);
            self.file.put(0, &block)?;
        }
        Ok(self.file)
    }
}

fn verify(header: &QuotaHeader, kind: QuotaKind, size: u64) -> Result<(), Corrupt> {
    let magic = header.dqh_magic.get();
    if magic != kind.magic() {
        return Err(Corrupt::new("quota file magic", Detail::Hex(kind.magic().into()), Detail::Hex(magic.into())));
    }
    equal("quota file version", REVISION.into(), header.dqh_version.get().into())?;
    let blocks = u64::from(header.dqi_blocks.get());
    let blocks_max = size.checked_div(to_u64(QUOTA_BLOCK_SIZE)).unwrap_or(0);
    within("quota file blocks", blocks, BLOCKS_MIN.into(), blocks_max)?;
    for (what, number) in
        [("quota file free block", header.dqi_free_blk), ("quota file leaf with room", header.dqi_free_entry)]
    {
        if number.get() != 0 {
            within(what, number.get().into(), BLOCKS_MIN.into(), blocks.saturating_sub(1))?;
        }
    }
    Ok(())
}

/// The first blocks of a new quota file, with one entry: that of `id`.
#[must_use]
pub fn new_file(kind: QuotaKind, id: u32, inodes: u64, bytes: u64, (space_grace, inode_grace): (u32, u32)) -> Vec<u8> {
    let count = ROOT.saturating_add(u32_len(DEPTH)).saturating_add(1);
    let mut file = vec![0; usize_from(count).saturating_mul(QUOTA_BLOCK_SIZE)];
    let (blocks, _) = file.as_chunks_mut::<QUOTA_BLOCK_SIZE>();
    let header = QuotaHeader {
        dqh_magic: kind.magic().into(),
        dqh_version: REVISION.into(),
        dqi_bgrace: space_grace.into(),
        dqi_igrace: inode_grace.into(),
        dqi_flags: U32::ZERO,
        dqi_blocks: count.into(),
        dqi_free_blk: U32::ZERO,
        dqi_free_entry: count.saturating_sub(1).into(),
    };
    if let Some((first, rest)) = blocks.split_first_mut() {
        first.iter_mut().zip(header.as_bytes()).for_each(|(to, byte)| *to = *byte);
        for ((number, block), byte) in (2_u32..).zip(rest.iter_mut()).zip(id.to_be_bytes()) {
            set_ref(block, byte, number);
        }
        if let Some(last) = rest.last_mut() {
            let leaf = leaf_mut(last);
            leaf.head.dqdh_entries = 1.into();
            if let Some(entry) = leaf.entries.first_mut() {
                (entry.dqb_id, entry.dqb_curinodes, entry.dqb_curspace) = (id.into(), inodes.into(), bytes.into());
            }
        }
    }
    file
}

fn refs(block: &QuotaBlock) -> &[U32; REFS] {
    zerocopy::transmute_ref!(block)
}

fn set_ref(block: &mut QuotaBlock, byte: u8, number: u32) {
    let refs: &mut [U32; REFS] = zerocopy::transmute_mut!(block);
    if let Some(place) = refs.get_mut(usize::from(byte)) {
        *place = number.into();
    }
}

fn leaf(block: &QuotaBlock) -> &Leaf {
    zerocopy::transmute_ref!(block)
}

fn leaf_mut(block: &mut QuotaBlock) -> &mut Leaf {
    zerocopy::transmute_mut!(block)
}

/// A file in memory; bytes behind its end read as zeros.
impl QuotaFile for Vec<u8> {
    type Error = Corrupt;

    fn block(&mut self, number: u32) -> Result<QuotaBlock, Corrupt> {
        let (blocks, _) = self.as_chunks::<QUOTA_BLOCK_SIZE>();
        Ok(blocks.get(usize_from(number)).copied().unwrap_or([0; QUOTA_BLOCK_SIZE]))
    }
}

impl QuotaFileMut for Vec<u8> {
    fn put(&mut self, number: u32, block: &QuotaBlock) -> Result<(), Corrupt> {
        let end = usize_from(number).saturating_add(1).saturating_mul(QUOTA_BLOCK_SIZE);
        self.resize(self.len().max(end), 0);
        if let Some(to) = self.as_chunks_mut::<QUOTA_BLOCK_SIZE>().0.get_mut(usize_from(number)) {
            *to = *block;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(file: Vec<u8>) -> Quota<Vec<u8>> {
        let size = to_u64(file.len());
        Quota::open(file, QuotaKind::User, size).unwrap()
    }

    #[test]
    fn what_is_added_is_counted() {
        let mut quota = opened(new_file(QuotaKind::User, 0, 1, 4096, (604_800, 604_800)));
        // Leaves fill up, and ways part at each of the levels.
        let ids: Vec<u32> = (0..40).chain([256, 65_536, 1 << 24, u32::MAX]).collect();
        for id in &ids {
            quota.add(*id, 2, 8192).unwrap();
            quota.add(*id, -1, -4096).unwrap();
        }
        let file = quota.close().unwrap();
        let mut entries = opened(file.clone()).entries().unwrap();
        entries.sort_by_key(|entry| entry.dqb_id.get());
        let found: Vec<u32> = entries.iter().map(|entry| entry.dqb_id.get()).collect();
        assert_eq!(found, ids);
        for entry in entries {
            let own = u64::from(entry.dqb_id.get() == 0);
            assert_eq!((entry.dqb_curinodes.get(), entry.dqb_curspace.get()), (1 + own, 4096 * (1 + own)));
        }
        // Free entries are used before the file grows.
        let len = file.len();
        let mut quota = opened(file);
        quota.add(41, 1, 0).unwrap();
        assert_eq!(quota.close().unwrap().len(), len);
    }

    #[test]
    fn an_empty_entry_of_the_number_0_stays_one() {
        let mut quota = opened(new_file(QuotaKind::User, 0, 1, 4096, (1, 2)));
        quota.add(0, -1, -4096).unwrap();
        quota.add(0, 1, 0).unwrap();
        assert_eq!(quota.entries().unwrap().len(), 1);
    }

    #[test]
    fn wrong_files_are_refused_by_name() {
        let good = new_file(QuotaKind::Group, 7, 1, 4096, (1, 2));
        let size = to_u64(good.len());
        let wrong: [(usize, u32, &str); 6] = [
            (0, 1, "magic"),
            (4, 2, "version"),
            (20, 7, "blocks"),
            (20, 1, "blocks"),
            (24, 9, "free block"),
            (28, 1, "leaf with room"),
        ];
        for (at, value, what) in wrong {
            let mut file = good.clone();
            file[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let error = Quota::open(file, QuotaKind::Group, size).unwrap_err();
            assert!(error.what.contains(what), "{error}");
        }
        // A tree that leads back into itself, out of the file, or to a leaf without the entry.
        for (at, value, what) in [(2048, 2, "quota tree"), (2048, 6, "block number")] {
            let mut file = good.clone();
            file[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            let error = Quota::open(file, QuotaKind::Group, size).unwrap().entries().unwrap_err();
            assert!(error.what.contains(what), "{error}");
        }
    }

    /// As `mkfs.f2fs -R 1000` leaves it: the way of 0 leads to the entry of 1000.
    #[test]
    fn an_entry_that_its_way_does_not_lead_to_is_found() {
        let mut file = new_file(QuotaKind::User, 0, 1, 4096, (1, 2));
        file[5 * 1024 + 16..][..4].copy_from_slice(&1000_u32.to_le_bytes());
        let mut quota = opened(file);
        quota.add(1000, 1, 0).unwrap();
        quota.add(0, 1, 0).unwrap();
        quota.add(0, 1, 0).unwrap();
        let mut entries = opened(quota.close().unwrap()).entries().unwrap();
        entries.sort_by_key(|entry| entry.dqb_id.get());
        let found: Vec<_> = entries.iter().map(|entry| (entry.dqb_id.get(), entry.dqb_curinodes.get())).collect();
        assert_eq!(found, [(0, 2), (1000, 2)]);
    }
}
