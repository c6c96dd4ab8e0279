//! Summaries: who owns each block of a segment; and journals, changes of NAT and SIT that a checkpoint keeps beside
//! them instead of writing whole blocks.
//!
//! ```text
//!    | 512 entries of 7 bytes | journal, 507 bytes | footer, 5 bytes |
//! ```
//!
//! Packed summaries begin with the journals of NAT and SIT; entries follow as they fit, also in further blocks.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::to_u64;
use crate::error::{Corrupt, Detail, within};
use crate::ids::{Block, Nid};
use crate::nat::NatEntry;
use crate::sit::SitEntry;
use crate::{BLOCK_SIZE, OnDisk};

/// Entries of a block: one for each block of the segment.
const ENTRIES: usize = 512;
/// Bytes of a journal.
pub const JOURNAL_SIZE: usize = 507;

/// Who owns a block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Summary {
    /// Of data: the node that points at it. Of a node: its number.
    pub nid: U32,
    /// Version of that number.
    pub version: u8,
    /// Index of the pointer within the node.
    pub ofs_in_node: U16,
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
    /// What it holds depends on the log.
    pub journal: [u8; JOURNAL_SIZE],
    /// What the block is.
    pub footer: SummaryFooter,
}

const _: () = assert!(size_of::<Summary>() == 7);
const _: () = assert!(size_of::<SummaryBlock>() == BLOCK_SIZE);

impl OnDisk for SummaryBlock {
    const NAME: &'static str = "summary block size";
}

impl SummaryBlock {
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
    let max = JOURNAL_SIZE.saturating_sub(2).checked_div(size_of::<T>()).unwrap_or(0);
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
    fn a_block_is_of_nodes_or_of_data() {
        let mut block = [0; 4096];
        block[7] = 5;
        block[4091] = 1;
        assert_eq!(SummaryBlock::verify(&block).unwrap().entries[1].nid.get(), 5);
        block[4091] = 2;
        assert!(SummaryBlock::verify(&block).is_err());
    }
}
