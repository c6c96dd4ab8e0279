//! Names of directories: slots in blocks, or inline; and which blocks of a hashed directory a name can be in.
//!
//! ```text
//!    | bitmap of slots | reserved | entries of 11 bytes, one a slot | 8 bytes of a name, for each slot |
//! ```
//!
//! A name takes as many slots as its bytes need, one after the other; the first slot's entry counts. A hashed directory
//! has levels with twice as many buckets each; a name is in the bucket of its hash in any of the levels.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::{to_u64, u32_len};
use crate::error::{Corrupt, Detail};
use crate::ids::{Block, Nid};
use crate::kind::{Kind, NAME_BYTES_MAX};
use crate::on_disk::test_bit_le;

/// Slots of a block.
pub const SLOTS_PER_BLOCK: usize = 214;
/// Levels of a hashed directory.
pub const DEPTH_MAX: u32 = 63;
/// Bytes of a name in a slot.
const SLOT_SIZE: usize = 8;
/// From this level on buckets have four blocks, and their number stays.
const LEVEL_OF_LAST_GROWTH: u32 = DEPTH_MAX / 2;
const BUCKETS_MAX_LOG: u32 = LEVEL_OF_LAST_GROWTH - 1;

/// An entry, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct DiskEntry {
    hash_code: U32,
    ino: U32,
    name_len: U16,
    file_type: u8,
}

const ENTRY_SIZE: usize = 11;
const _: () = assert!(size_of::<DiskEntry>() == ENTRY_SIZE);

/// A name and what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// First slot.
    pub slot: usize,
    /// Hash of the name.
    pub hash: u32,
    /// Inode.
    pub ino: Nid,
    /// Kind of file; `None` for a number that no kind has.
    pub kind: Option<Kind>,
    /// The name: neither empty nor with a slash or zero byte in it.
    pub name: &'a [u8],
}

/// Slots with names.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    bitmap: &'a [u8],
    entries: &'a [DiskEntry],
    names: &'a [u8],
}

impl<'a> Slots<'a> {
    /// Those of a block.
    #[must_use]
    pub fn of_block(block: &'a Block) -> Self {
        Self::with(block, SLOTS_PER_BLOCK)
    }

    /// Those inline in an inode: as many as fit the bytes.
    #[must_use]
    pub fn inline(area: &'a [u8]) -> Self {
        // Each slot takes an entry, eight bytes of names and a bit.
        let bits = ENTRY_SIZE.saturating_add(SLOT_SIZE).saturating_mul(8).saturating_add(1);
        Self::with(area, area.len().saturating_mul(8).checked_div(bits).unwrap_or(0))
    }

    /// Entries and names lie at the end of the bytes, the bitmap at their start.
    fn with(area: &'a [u8], count: usize) -> Self {
        let behind = count.saturating_mul(ENTRY_SIZE.saturating_add(SLOT_SIZE));
        let parts = area.split_at_checked(area.len().saturating_sub(behind)).and_then(|(bitmap, rest)| {
            let (entries, names) = <[DiskEntry]>::ref_from_prefix_with_elems(rest, count).ok()?;
            Some(Self { bitmap, entries, names })
        });
        parts.unwrap_or(Self { bitmap: &[], entries: &[], names: &[] })
    }

    /// How many slots there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.entries.len()
    }

    /// The names from a slot on.
    pub fn entries_from(self, slot: usize) -> impl Iterator<Item = Result<Entry<'a>, Corrupt>> {
        let mut next = slot;
        std::iter::from_fn(move || {
            let found = self.next(next)?;
            // Where one is wrong, so may be what follows.
            next = found.as_ref().map_or(usize::MAX, |(_, behind)| *behind);
            Some(found.map(|(entry, _)| entry))
        })
    }

    /// The first name from a slot on, and the slot behind it.
    fn next(&self, from: usize) -> Option<Result<(Entry<'a>, usize), Corrupt>> {
        let mut slot = from;
        loop {
            let entry = self.entries.get(slot)?;
            // The kernel skips names without bytes, which an interrupted repair may leave.
            if test_bit_le(self.bitmap, slot) && entry.name_len.get() != 0 {
                let len = usize::from(entry.name_len.get());
                let behind = slot.saturating_add(len.div_ceil(SLOT_SIZE));
                return Some(self.entry(slot, entry, len).map(|entry| (entry, behind)));
            }
            slot = slot.saturating_add(1);
        }
    }

    fn entry(&self, slot: usize, entry: &DiskEntry, len: usize) -> Result<Entry<'a>, Corrupt> {
        let start = slot.saturating_mul(SLOT_SIZE);
        let room = self.names.len().saturating_sub(start).min(NAME_BYTES_MAX);
        let too_long = Corrupt::new("dentry name_len", Detail::Range(1, to_u64(room)), Detail::size(len));
        let name = self.names.get(start..start.saturating_add(len)).filter(|_| len <= room).ok_or(too_long)?;
        if let Some(byte) = name.iter().find(|byte| matches!(byte, 0 | b'/')) {
            return Err(Corrupt::new(
                "dentry name",
                Detail::Text("neither a slash nor a zero byte"),
                Detail::Hex(u64::from(*byte)),
            ));
        }
        let kind = kind_of(entry.file_type);
        Ok(Entry { slot, hash: entry.hash_code.get(), ino: Nid(entry.ino.get()), kind, name })
    }
}

/// `F2FS_FT_*`.
const fn kind_of(file_type: u8) -> Option<Kind> {
    Some(match file_type {
        1 => Kind::File,
        2 => Kind::Directory,
        3 => Kind::CharDevice,
        4 => Kind::BlockDevice,
        5 => Kind::Fifo,
        6 => Kind::Socket,
        7 => Kind::Symlink,
        _ => return None,
    })
}

/// The blocks of one level of a directory that a hash can be in: first one and count.
///
/// `dir_level` is the logarithm of the buckets of the first level.
#[must_use]
pub fn bucket(level: u32, dir_level: u8, hash: u32) -> (u64, u64) {
    let before = (0..level).fold(0_u64, |sum, level| {
        sum.saturating_add(buckets(level, dir_level).saturating_mul(blocks_of_bucket(level)))
    });
    let blocks = blocks_of_bucket(level);
    let index = u64::from(hash).checked_rem(buckets(level, dir_level)).unwrap_or(0);
    (before.saturating_add(index.saturating_mul(blocks)), blocks)
}

fn buckets(level: u32, dir_level: u8) -> u64 {
    let log = level.saturating_add(u32::from(dir_level)).min(BUCKETS_MAX_LOG);
    1_u64.checked_shl(log).unwrap_or(1)
}

const fn blocks_of_bucket(level: u32) -> u64 {
    if level < LEVEL_OF_LAST_GROWTH { 2 } else { 4 }
}

/// Index of a slot within a directory: its blocks' slots follow each other.
#[must_use]
pub fn position(block: u64, slot: usize) -> u64 {
    block.saturating_mul(u64::from(u32_len(SLOTS_PER_BLOCK))).saturating_add(to_u64(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_SIZE;
    use crate::hash::of_name;

    /// A block with names in these slots.
    fn sample(names: &[(usize, &[u8], u16)]) -> Block {
        let mut block = [0; BLOCK_SIZE];
        for (slot, name, len) in names {
            block[slot / 8] |= 1 << (slot % 8);
            let at = 30 + slot * 11;
            block[at..at + 4].copy_from_slice(&of_name(name).to_le_bytes());
            block[at + 4] = 9;
            block[at + 8..at + 10].copy_from_slice(&len.to_le_bytes());
            block[at + 10] = 2;
            let at = 30 + 214 * 11 + slot * 8;
            block[at..at + name.len()].copy_from_slice(name);
        }
        block
    }

    fn names(block: &Block) -> Vec<Result<(usize, Vec<u8>), Corrupt>> {
        let entries = Slots::of_block(block).entries_from(0);
        entries.map(|entry| entry.map(|entry| (entry.slot, entry.name.to_vec()))).collect()
    }

    #[test]
    fn names_take_as_many_slots_as_they_need() {
        let block = sample(&[(0, b".", 1), (2, b"a long name", 11), (213, b"last", 4)]);
        let found: Vec<_> = names(&block).into_iter().map(Result::unwrap).collect();
        assert_eq!(found, [(0, b".".to_vec()), (2, b"a long name".to_vec()), (213, b"last".to_vec())]);
        assert_eq!(Slots::of_block(&block).entries_from(3).count(), 1);
        assert_eq!(Slots::of_block(&block).entries_from(0).next().unwrap().unwrap().kind, Some(Kind::Directory));
        // A slot in the middle of a name has a bit but no entry of its own.
        let block = sample(&[(0, b"123456789", 9), (1, b"9", 0), (2, b"x", 1)]);
        assert_eq!(names(&block).len(), 2);
    }

    #[test]
    fn wrong_names_end_the_list_with_an_error() {
        for (slot, name, len, what) in [
            (213, &b"too long"[..], 9, "name_len"),
            (0, b"x", 256, "name_len"),
            (0, b"a/b", 3, "name at"),
            (0, b"a\0b", 3, "name at"),
        ] {
            let found = names(&sample(&[(slot, name, len)]));
            assert_eq!(found.len(), 1);
            let error = found.into_iter().next().unwrap().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn inline_slots_fit_what_is_there() {
        assert_eq!(Slots::inline(&[0; 3488]).count(), 182);
        assert_eq!(Slots::inline(&[0; 40]).count(), 2);
        assert_eq!(Slots::inline(&[0; 3]).count(), 0);
        assert_eq!(Slots::inline(&[]).entries_from(0).count(), 0);
    }

    #[test]
    fn buckets_grow_with_the_level() {
        assert_eq!(bucket(0, 0, 5), (0, 2));
        assert_eq!(bucket(1, 0, 5), (2 + 2, 2));
        assert_eq!(bucket(2, 0, 7), (2 + 4 + 6, 2));
        assert_eq!(bucket(0, 3, 9), (2, 2));
        let (first, count) = bucket(62, 255, u32::MAX);
        assert_eq!(count, 4);
        assert!(first > 1 << 32, "no overflow");
        assert_eq!(position(2, 3), 431);
    }
}
