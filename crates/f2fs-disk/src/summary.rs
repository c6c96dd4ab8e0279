//! Reads and writes summaries, the owner of each block of a segment; and journals, changes of NAT and SIT that a
//! checkpoint keeps beside them instead of writing whole blocks. Called by `f2fs` (`start`, `space`, the commit) and
//! `f2fs-check`.
//!
//! ```text
//!    | 512 entries of 7 bytes | journal, 507 bytes | footer, 5 bytes |
//! ```
//!
//! Packed summaries begin with the journals of NAT and SIT; entries follow as they fit, also in further blocks.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::to_u64;
use crate::error::{Corrupt, Detail, within};
use crate::ids::{Block, Nid};
use crate::nat::NatEntry;
use crate::sit::SitEntry;
use crate::{BLOCK_SIZE, OnDisk};

/// Entries of a block: one for each block of the segment.
pub const ENTRIES: usize = 512;
/// Bytes of a journal.
pub const JOURNAL_SIZE: usize = 507;
/// Changes of the NAT that a journal has room for.
pub const NAT_JOURNAL_MAX: usize = (JOURNAL_SIZE - COUNT_SIZE) / size_of::<NatJournalEntry>();
/// Changes of the SIT that a journal has room for.
pub const SIT_JOURNAL_MAX: usize = (JOURNAL_SIZE - COUNT_SIZE) / size_of::<SitJournalEntry>();
/// Bytes of the count that a journal begins with.
const COUNT_SIZE: usize = 2;
/// Bytes of a block's footer, which stay free in packed summaries too.
const FOOTER_SIZE: usize = 5;

/// The owner of a block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Summary {
    /// Of data: the node that points at it. Of a node: its number.
    pub nid: U32,
    /// Version of that number.
    pub version: u8,
    /// Index of the pointer within the node.
    pub ofs_in_node: U16,
}

impl Summary {
    /// The entry in these bytes; `None` for too few.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Self::read_from_prefix(bytes).ok().map(|(entry, _)| entry)
    }

    /// The owner of a block.
    #[must_use]
    pub fn new(nid: Nid, version: u8, ofs_in_node: u16) -> Self {
        Self { nid: U32::new(nid.0), version, ofs_in_node: U16::new(ofs_in_node) }
    }
}

/// The end of a summary block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SummaryFooter {
    /// 1 for nodes, 0 for data.
    pub entry_type: u8,
    /// Not used.
    pub check_sum: U32,
}

/// A summary block, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SummaryBlock {
    /// One for each block of the segment.
    pub entries: [Summary; ENTRIES],
    /// Its form depends on the log.
    pub journal: [u8; JOURNAL_SIZE],
    /// The kind of the block.
    pub footer: SummaryFooter,
}

const _: () = assert!(size_of::<Summary>() == 7);
const _: () = assert!(size_of::<SummaryBlock>() == BLOCK_SIZE);

impl OnDisk for SummaryBlock {
    const NAME: &'static str = "summary block size";
}

impl SummaryBlock {
    /// The block of a segment with these owners; those that are missing are zeros.
    #[must_use]
    #[expect(clippy::new_ret_no_self, reason = "a new one is only ever written, as a block")]
    pub fn new(entries: &[Summary], is_node: bool, journal: &[u8; JOURNAL_SIZE]) -> Block {
        let mut summary = Self::new_zeroed();
        summary.entries.iter_mut().zip(entries).for_each(|(to, entry)| *to = *entry);
        summary.journal = *journal;
        summary.footer.entry_type = u8::from(is_node);
        zerocopy::transmute!(summary)
    }

    /// The summary in a block.
    ///
    /// # Errors
    /// [`Corrupt`] for a type that there is not.
    pub fn verify(block: &Block) -> Result<&Self, Corrupt> {
        let summary = Self::parse(block)?;
        within("summary entry_type", u64::from(summary.footer.entry_type), 0, 1)?;
        Ok(summary)
    }
}

/// Changes of the NAT: entries that count instead of those of its blocks.
///
/// # Errors
/// [`Corrupt`] for more than fit.
pub fn nat_journal(journal: &[u8; JOURNAL_SIZE]) -> Result<Vec<(Nid, NatEntry)>, Corrupt> {
    let entries = entries::<NatJournalEntry>("NAT journal n_nats", journal)?;
    Ok(entries.iter().map(|entry| (Nid(entry.nid.get()), entry.ne)).collect())
}

/// Changes of the SIT: numbers of segments, and entries that count instead of those of its blocks.
///
/// # Errors
/// [`Corrupt`] for more than fit, and for an entry that is wrong.
pub fn sit_journal(journal: &[u8; JOURNAL_SIZE]) -> Result<Vec<(u32, SitEntry)>, Corrupt> {
    let entries = entries::<SitJournalEntry>("SIT journal n_sits", journal)?;
    entries.iter().map(|entry| entry.se.verify().map(|()| (entry.segno.get(), entry.se))).collect()
}

/// The owners in a summary block.
#[must_use]
pub fn summaries(block: &Block) -> &[Summary] {
    let summary: &SummaryBlock = zerocopy::transmute_ref!(block);
    &summary.entries
}

/// The journal with these changes of the NAT, at most [`NAT_JOURNAL_MAX`].
#[must_use]
pub fn nat_journal_of(entries: &[(Nid, NatEntry)]) -> [u8; JOURNAL_SIZE] {
    journal_of(entries.iter().map(|(nid, ne)| NatJournalEntry { nid: U32::new(nid.0), ne: *ne }))
}

/// The journal with these changes of the SIT, at most [`SIT_JOURNAL_MAX`].
#[must_use]
pub fn sit_journal_of(entries: &[(u32, SitEntry)]) -> [u8; JOURNAL_SIZE] {
    journal_of(entries.iter().map(|(segno, se)| SitJournalEntry { segno: U32::new(*segno), se: *se }))
}

fn journal_of<T: IntoBytes + Immutable>(entries: impl ExactSizeIterator<Item = T>) -> [u8; JOURNAL_SIZE] {
    let mut journal = [0; JOURNAL_SIZE];
    let (count, room) = journal.split_at_mut(COUNT_SIZE);
    debug_assert!(entries.len().saturating_mul(size_of::<T>()) <= room.len(), "too many for a journal");
    count.copy_from_slice(&u16::try_from(entries.len()).unwrap_or(0).to_le_bytes());
    for (to, entry) in room.chunks_exact_mut(size_of::<T>()).zip(entries) {
        to.copy_from_slice(entry.as_bytes());
    }
    journal
}

/// Packed summaries: both journals, and the owners of the logs of data, those of a log behind those of the one before
/// it. There is at least one block.
#[must_use]
pub fn compact(nat: &[u8; JOURNAL_SIZE], sit: &[u8; JOURNAL_SIZE], entries: &[Summary]) -> Vec<Block> {
    let mut bytes = [nat.as_slice(), sit].concat();
    let mut blocks = Vec::new();
    for entry in entries {
        if bytes.len().saturating_add(size_of::<Summary>()) > BLOCK_SIZE.saturating_sub(FOOTER_SIZE) {
            blocks.push(filled_up(&bytes));
            bytes.clear();
        }
        bytes.extend_from_slice(entry.as_bytes());
    }
    if !bytes.is_empty() {
        blocks.push(filled_up(&bytes));
    }
    blocks
}

/// A block that begins with these bytes.
fn filled_up(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK_SIZE];
    block.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
    block
}

/// Both journals, of the first block of packed summaries.
#[must_use]
pub fn compact_journals(block: &Block) -> Option<(&[u8; JOURNAL_SIZE], &[u8; JOURNAL_SIZE])> {
    let (nat, rest) = block.split_first_chunk()?;
    Some((nat, rest.first_chunk()?))
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct NatJournalEntry {
    nid: U32,
    ne: NatEntry,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct SitJournalEntry {
    segno: U32,
    se: SitEntry,
}

/// As many entries as the first two bytes say.
fn entries<'a, T>(what: &'static str, journal: &'a [u8; JOURNAL_SIZE]) -> Result<&'a [T], Corrupt>
where
    T: FromBytes + Immutable + KnownLayout + Unaligned,
{
    let (count, rest) = U16::ref_from_prefix(journal).map_err(|_| too_many::<T>(what, 0))?;
    let count = usize::from(count.get());
    <[T]>::ref_from_prefix_with_elems(rest, count).map(|(entries, _)| entries).map_err(|_| too_many::<T>(what, count))
}

fn too_many<T>(what: &'static str, count: usize) -> Corrupt {
    let max = JOURNAL_SIZE.saturating_sub(COUNT_SIZE).checked_div(size_of::<T>()).unwrap_or(0);
    Corrupt::new(what, Detail::AtMost(to_u64(max)), Detail::size(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::BlockAddr;

    #[test]
    fn journals_hold_what_they_count() {
        let mut journal = [0; JOURNAL_SIZE];
        journal[0] = 2;
        journal[2 + 13..2 + 26].copy_from_slice(&[9, 0, 0, 0, 1, 9, 0, 0, 0, 0, 1, 0, 0]);
        let found = nat_journal(&journal).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].0, found[1].1.at()), (Nid(9), BlockAddr(256)));
        journal[0] = 38;
        assert_eq!(nat_journal(&journal).unwrap().len(), 38);
        journal[0] = 39;
        let error = nat_journal(&journal).unwrap_err();
        assert_eq!(error.to_string(), "corrupt NAT journal n_nats at an unknown place: expected at most 38, found 39");
        let mut journal = [0; JOURNAL_SIZE];
        journal[0] = 6;
        assert_eq!(sit_journal(&journal).unwrap().len(), 6);
        journal[0] = 7;
        assert!(sit_journal(&journal).is_err());
        journal[0] = 1;
        journal[6] = 1;
        assert_eq!(sit_journal(&journal).unwrap_err().what, "SIT vblocks", "the map is empty");
    }

    #[test]
    fn journals_are_read_as_they_were_written() {
        let nat = |nid, version, at| (Nid(nid), NatEntry::new(version, Nid(3), BlockAddr(at)));
        let nats = [nat(3, 0, 77), nat(9, 1, 78)];
        assert_eq!(nat_journal(&nat_journal_of(&nats)).unwrap(), nats);
        let sits = [(5, SitEntry::new(3, [1; 64], 9)); SIT_JOURNAL_MAX];
        let found = sit_journal(&sit_journal_of(&sits)).unwrap();
        assert_eq!((found.len(), found[5].0, found[5].1.valid_blocks()), (6, 5, 64));
        assert_eq!((NAT_JOURNAL_MAX, SIT_JOURNAL_MAX), (38, 6));
        assert_eq!(nat_journal(&nat_journal_of(&[nats[1]; NAT_JOURNAL_MAX])).unwrap().len(), 38);
    }

    #[test]
    fn packed_summaries_fill_blocks_up_to_their_footers() {
        let (nat, sit) = ([1; JOURNAL_SIZE], [2; JOURNAL_SIZE]);
        let entry = Summary::new(Nid(0x0404_0404), 4, 0x0404);
        for (count, blocks) in [(0, 1), (439, 1), (440, 2), (439 + 584, 2), (439 + 585, 3)] {
            let packed = compact(&nat, &sit, &vec![entry; count]);
            assert_eq!(packed.len(), blocks, "{count}");
            assert_eq!(compact_journals(&packed[0]), Some((&nat, &sit)));
            let used = packed.iter().flatten().filter(|byte| **byte == 4).count();
            assert_eq!(used, count * 7);
            assert!(packed.iter().all(|block| block[4091..] == [0; 5]));
        }
    }

    #[test]
    fn a_block_has_the_owners_it_was_made_with() {
        let owners = [Summary::new(Nid(5), 1, 2), Summary::new(Nid(6), 0, 1017)];
        let block = SummaryBlock::new(&owners, true, &nat_journal_of(&[]));
        assert_eq!(summaries(&block).len(), ENTRIES);
        assert_eq!(summaries(&block)[..3], [owners[0], owners[1], Summary::default()]);
        assert_eq!(SummaryBlock::verify(&block).unwrap().footer.entry_type, 1);
    }

    #[test]
    fn a_block_is_of_nodes_or_of_data() {
        let mut block = [0; 4096];
        block[7] = 5;
        block[4091] = 1;
        assert_eq!(SummaryBlock::verify(&block).unwrap().entries[1].nid.get(), 5);
        block[4091] = 2;
        assert!(SummaryBlock::verify(&block).is_err());
    }
}
