//! Reads and edits names of directories: slots in blocks, or inline; and finds which blocks of a hashed directory a
//! name can be in. Called by `f2fs` (`dir`, `change/names`, `make`) and `f2fs-check`.
//!
//! ```text
//!    | bitmap of slots | reserved | entries of 11 bytes, one a slot | 8 bytes of a name, for each slot |
//! ```
//!
//! A name takes as many slots as its bytes need, one after the other; the first slot's entry counts. A hashed directory
//! has levels with twice as many buckets each; a name is in the bucket of its hash in any of the levels.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::{clear_bit_le, set_bit_le, test_bit_le};
use crate::convert::{to_u64, u32_len};
use crate::error::{Corrupt, Detail};
use crate::ids::{Block, Nid};
use crate::kind::{Kind, NAME_BYTES_MAX};

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

/// A name with its inode.
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
        Self::with(area, inline_count(area.len()))
    }

    /// Entries and names lie at the end of the bytes, the bitmap at their start.
    fn with(area: &'a [u8], count: usize) -> Self {
        let start = area.len().saturating_sub(size_of_slots(count));
        let parts = area.split_at_checked(start).and_then(|(bitmap, rest)| {
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

    /// True if there are no names but `.` and `..`. A malformed entry counts as a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries_from(0).all(|entry| entry.is_ok_and(|entry| matches!(entry.name, b"." | b"..")))
    }

    /// Slots that are in use for no name, and slots of names that are free: none where all is right. Where a name
    /// cannot be read, nothing behind it is looked at.
    #[must_use]
    pub fn stray(&self) -> Vec<usize> {
        let (mut stray, mut slot) = (Vec::new(), 0_usize);
        while let Some(entry) = self.entries.get(slot) {
            let len = usize::from(entry.name_len.get());
            let is_used = test_bit_le(self.bitmap, slot);
            if !is_used || len == 0 {
                stray.extend(is_used.then_some(slot));
                slot = slot.saturating_add(1);
                continue;
            }
            let behind = slot.saturating_add(slots_of(len));
            if behind > self.count() {
                break;
            }
            stray.extend((slot..behind).filter(|slot| !test_bit_le(self.bitmap, *slot)));
            slot = behind;
        }
        stray
    }

    /// The names from a slot on.
    pub fn entries_from(self, slot: usize) -> impl Iterator<Item = Result<Entry<'a>, Corrupt>> {
        let mut next = slot;
        std::iter::from_fn(move || {
            let found = self.next(next)?;
            // Entries behind a malformed one may be wrong, too.
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
                let behind = slot.saturating_add(slots_of(len));
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
        let kind = Kind::from_file_type(entry.file_type);
        Ok(Entry { slot, hash: entry.hash_code.get(), ino: Nid(entry.ino.get()), kind, name })
    }
}

/// A name to be written.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The name, of 1 to 255 bytes.
    pub name: &'a [u8],
    /// Its hash: [`of_name`](crate::hash::of_name), where the directory does not ignore case.
    pub hash: u32,
    /// Inode that it leads to.
    pub ino: Nid,
    /// Kind of file.
    pub kind: Kind,
}

/// Slots that a name of so many bytes takes.
#[must_use]
pub const fn slots_of(name_len: usize) -> usize {
    name_len.div_ceil(SLOT_SIZE)
}

/// Slots to write names in.
#[derive(Debug)]
pub struct SlotsMut<'a> {
    bitmap: &'a mut [u8],
    entries: &'a mut [DiskEntry],
    names: &'a mut [u8],
}

impl<'a> SlotsMut<'a> {
    /// Those of a block.
    #[must_use]
    pub fn of_block(block: &'a mut Block) -> Self {
        Self::with(block, SLOTS_PER_BLOCK)
    }

    /// Those inline in an inode, laid out as [`Slots::inline`] reads them.
    #[must_use]
    pub fn inline(area: &'a mut [u8]) -> Self {
        let count = inline_count(area.len());
        Self::with(area, count)
    }

    fn with(area: &'a mut [u8], count: usize) -> Self {
        let start = area.len().saturating_sub(size_of_slots(count));
        let parts = area.split_at_mut_checked(start).and_then(|(bitmap, rest)| {
            let (entries, names) = <[DiskEntry]>::mut_from_prefix_with_elems(rest, count).ok()?;
            Some(Self { bitmap, entries, names })
        });
        parts.unwrap_or(Self { bitmap: &mut [], entries: &mut [], names: &mut [] })
    }

    /// The first of the first free slots, one after the other, that a name of so many bytes fits in.
    #[must_use]
    pub fn room(&self, name_len: usize) -> Option<usize> {
        let wanted = slots_of(name_len);
        let mut free = 0_usize;
        for slot in 0..self.entries.len() {
            free = if test_bit_le(self.bitmap, slot) { 0 } else { free.saturating_add(1) };
            if free > 0 && free == wanted {
                return slot.checked_sub(wanted.saturating_sub(1));
            }
        }
        None
    }

    /// Writes a name from a slot on, which [`SlotsMut::room`] found.
    pub fn put(&mut self, slot: usize, new: &New<'_>) {
        let count = slots_of(new.name.len());
        let end = slot.saturating_add(count);
        debug_assert!(count > 0 && end <= self.entries.len(), "the name has no room");
        let name_len = u16::try_from(new.name.len()).unwrap_or(0);
        let first = DiskEntry {
            hash_code: U32::new(new.hash),
            ino: U32::new(new.ino.0),
            name_len: U16::new(name_len),
            file_type: new.kind.file_type(),
        };
        for at in slot..end {
            set_bit_le(self.bitmap, at);
            if let Some(entry) = self.entries.get_mut(at) {
                // Where a reader comes to a slot in the middle of a name, a length of 0 tells it to go on.
                *entry = if at == slot { first } else { DiskEntry { name_len: U16::ZERO, ..*entry } };
            }
        }
        let room = slot.saturating_mul(SLOT_SIZE)..end.saturating_mul(SLOT_SIZE);
        let padded = new.name.iter().copied().chain(std::iter::repeat(0));
        let to = self.names.get_mut(room).unwrap_or_default();
        to.iter_mut().zip(padded).for_each(|(to, byte)| *to = byte);
    }

    /// Takes away the name of so many bytes that begins at a slot.
    pub fn remove(&mut self, slot: usize, name_len: usize) {
        for at in slot..slot.saturating_add(slots_of(name_len)) {
            clear_bit_le(self.bitmap, at);
        }
    }

    /// Lets the name that begins at a slot lead to another inode.
    pub fn set_target(&mut self, slot: usize, ino: Nid, kind: Kind) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.ino = U32::new(ino.0);
            entry.file_type = kind.file_type();
        }
    }
}

/// Slots that fit bytes within an inode: each takes an entry, eight bytes of names and a bit.
fn inline_count(len: usize) -> usize {
    let bits = ENTRY_SIZE.saturating_add(SLOT_SIZE).saturating_mul(8).saturating_add(1);
    len.saturating_mul(8).checked_div(bits).unwrap_or(0)
}

/// Bytes of the entries and names of so many slots, which lie at the end.
const fn size_of_slots(count: usize) -> usize {
    count.saturating_mul(ENTRY_SIZE.saturating_add(SLOT_SIZE))
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
    fn slots_in_use_for_no_name_are_stray() {
        let block = sample(&[(0, b"123456789", 9), (1, b"9", 0), (3, b"x", 1)]);
        assert_eq!(Slots::of_block(&block).stray(), []);
        let block = sample(&[(0, b"123456789", 9), (5, b"", 0), (213, b"last", 60_000)]);
        assert_eq!(Slots::of_block(&block).stray(), [1, 5]);
    }

    fn new(name: &[u8], ino: u32) -> New<'_> {
        New { name, hash: of_name(name), ino: Nid(ino), kind: Kind::File }
    }

    #[test]
    fn a_built_block_parses() {
        let mut block = [0; BLOCK_SIZE];
        let mut slots = SlotsMut::of_block(&mut block);
        for (name, ino) in [(&b"."[..], 3), (b"..", 3), (b"a name of 17 byte", 9), (b"z", 10)] {
            let slot = slots.room(name.len()).unwrap();
            slots.put(slot, &new(name, ino));
        }
        assert_eq!(slots.room(1), Some(6));
        assert_eq!(slots.room(0), None);
        slots.remove(2, 17);
        assert_eq!((slots.room(24), slots.room(25)), (Some(2), Some(6)));
        slots.put(2, &new(b"12345678", 11));
        slots.set_target(5, Nid(12), Kind::Symlink);
        let found: Vec<_> = Slots::of_block(&block).entries_from(0).map(Result::unwrap).collect();
        let names: Vec<_> = found.iter().map(|entry| (entry.slot, entry.name, entry.ino.0)).collect();
        assert_eq!(names, [(0, &b"."[..], 3), (1, b"..", 3), (2, b"12345678", 11), (5, b"z", 12)]);
        assert_eq!((found[2].kind, found[3].kind), (Some(Kind::File), Some(Kind::Symlink)));
        assert_eq!(found[3].hash, of_name(b"z"));
        assert!(!Slots::of_block(&block).is_empty());
        let mut slots = SlotsMut::of_block(&mut block);
        slots.remove(2, 8);
        slots.remove(5, 1);
        assert!(Slots::of_block(&block).is_empty() && Slots::of_block(&[0; BLOCK_SIZE]).is_empty());
    }

    #[test]
    fn a_name_fills_the_last_slots() {
        let mut area = [0xff; 3488];
        area[..30].fill(0);
        let mut slots = SlotsMut::inline(&mut area);
        slots.put(0, &new(&[b'a'; 179 * 8 - 1], 4));
        assert_eq!((slots.room(25), slots.room(24)), (None, Some(179)));
        slots.put(179, &new(&[b'b'; 17], 5));
        assert_eq!(slots.room(1), None);
        let last = Slots::inline(&area).entries_from(179).next().unwrap().unwrap();
        assert_eq!((last.name, last.ino), (&[b'b'; 17][..], Nid(5)));
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
