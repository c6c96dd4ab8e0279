//! Reads and writes entries of the segment information table (SIT): which blocks of a segment are in use. Called by
//! `f2fs` (opening for writing, the commit) and `f2fs-check`.

use std::fmt;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::test_bit;
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail, equal, within};
use crate::ids::Block;
use crate::{OnDisk, SEGMENT_BLOCKS};

/// Entries of a block.
pub const ENTRIES_PER_BLOCK: u32 = 55;
/// Bits of the count of blocks in use.
const COUNT_BITS: u32 = 10;
/// The highest type of a log.
const LOG_TYPE_MAX: u64 = 7;

/// An entry, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SitEntry {
    /// Blocks in use, and above them the type of the log that wrote the segment.
    pub vblocks: U16,
    /// A bit for each block in use, the highest of a byte first.
    pub valid_map: [u8; 64],
    /// Mean time of the last changes, in seconds that the volume was mounted.
    pub mtime: U64,
}

const _: () = assert!(size_of::<SitEntry>() == 74);

impl OnDisk for SitEntry {
    const NAME: &'static str = "SIT entry size";
}

impl SitEntry {
    /// An entry for a segment of a log, with a bit for each block in use, the highest of a byte first.
    #[must_use]
    pub fn new(log_type: u16, valid_map: [u8; 64], mtime: u64) -> Self {
        let counted = valid_map.iter().fold(0_u16, |sum, byte| sum.saturating_add(u16_of(byte.count_ones())));
        Self { vblocks: U16::new((log_type << COUNT_BITS) | counted), valid_map, mtime: U64::new(mtime) }
    }

    /// Blocks in use.
    #[must_use]
    pub fn valid_blocks(&self) -> u16 {
        self.vblocks.get() & ((1 << COUNT_BITS) - 1)
    }

    /// Type of the log: data hot, warm and cold from 0 on, nodes from 3 on.
    #[must_use]
    pub fn log_type(&self) -> u16 {
        self.vblocks.get() >> COUNT_BITS
    }

    /// True where a block of the segment is in use.
    #[must_use]
    pub fn is_valid(&self, index: usize) -> bool {
        test_bit(&self.valid_map, index)
    }

    /// Checks that count, map and type agree.
    ///
    /// # Errors
    /// [`Corrupt`], without its place.
    pub fn verify(&self) -> Result<(), Corrupt> {
        within("SIT vblocks", u64::from(self.valid_blocks()), 0, u64::from(SEGMENT_BLOCKS))?;
        within("SIT type", u64::from(self.log_type()), 0, LOG_TYPE_MAX)?;
        let counted: u64 = self.valid_map.iter().map(|byte| u64::from(byte.count_ones())).sum();
        equal("SIT vblocks", counted, u64::from(self.valid_blocks()))
    }
}

impl fmt::Display for SitEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks in use, log {}, time {}", self.valid_blocks(), self.log_type(), self.mtime)
    }
}

/// A count of bits of a byte.
fn u16_of(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(0)
}

/// An entry of a SIT block, checked.
///
/// # Errors
/// [`Corrupt`] for an index out of range, and for entries that [`SitEntry::verify`] refuses.
pub fn entry(block: &Block, index: usize) -> Result<SitEntry, Corrupt> {
    let start = index.saturating_mul(size_of::<SitEntry>());
    let bytes = block.get(start..);
    let out = || Corrupt::new("index of a SIT entry", Detail::AtMost(54), Detail::Number(to_u64(index)));
    let entry = *bytes.and_then(|bytes| SitEntry::parse(bytes).ok()).ok_or_else(out)?;
    entry.verify()?;
    Ok(entry)
}

/// Writes an entry of a SIT block.
pub fn put(block: &mut Block, index: usize, entry: &SitEntry) {
    let start = index.saturating_mul(size_of::<SitEntry>());
    let to = block.get_mut(start..).and_then(|bytes| SitEntry::mut_from_prefix(bytes).ok());
    debug_assert!(to.is_some(), "no block has SIT entry {index}");
    if let Some((to, _)) = to {
        *to = *entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_and_map_have_to_agree() {
        let mut block = [0; 4096];
        block[74] = 2;
        block[75] = 4 << 2;
        block[76] = 0x81;
        let found = entry(&block, 1).unwrap();
        assert_eq!((found.valid_blocks(), found.log_type()), (2, 4));
        assert!(found.is_valid(0) && !found.is_valid(1) && found.is_valid(7) && !found.is_valid(512));
        block[74] = 3;
        assert_eq!(
            entry(&block, 1).unwrap_err().to_string(),
            "corrupt SIT vblocks at an unknown place: expected 2, found 3"
        );
        assert!(entry(&block, 55).is_err());
        put(&mut block, 54, &SitEntry::new(7, [0xff; 64], 77));
        let found = entry(&block, 54).unwrap();
        assert_eq!((found.valid_blocks(), found.log_type(), found.mtime.get()), (512, 7, 77));
    }
}
