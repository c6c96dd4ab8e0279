//! The header of a table as bytes: made, and believed only after every field was looked at. Called by `read` and
//! `write`.

use crc_fast::{CrcAlgorithm, checksum};
use uuid::Uuid;

use super::SectorSize;
use crate::{Error, Result};

/// Bytes of the fields.
pub(super) const HEADER_BYTES: usize = 92;
/// The first bytes of a header.
pub(super) const SIGNATURE: [u8; 8] = *b"EFI PART";
/// Version 1.0, the only one.
const REVISION: u32 = 0x0001_0000;
/// Bytes of an entry of a table that is made here, and the fewest that one may have.
pub(super) const ENTRY_BYTES: u32 = 128;
/// Most bytes of an entry that is read. No tool makes others than 128.
const ENTRY_BYTES_MAX: u32 = 4096;
/// Most entries that are read. Systems take 128, few as many as 1024.
const ENTRY_COUNT_MAX: u32 = 1024;

/// Which of the two copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    First,
    Last,
}

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) own_sector: u64,
    pub(super) other_sector: u64,
    pub(super) first_usable: u64,
    pub(super) last_usable: u64,
    pub(super) id: Uuid,
    pub(super) array_sector: u64,
    pub(super) entry_count: u32,
    pub(super) entry_bytes: u32,
    pub(super) array_crc: u32,
}

/// The checksum of headers and arrays.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    u32::try_from(checksum(CrcAlgorithm::Crc32IsoHdlc, bytes)).expect("a CRC-32 has 32 bits")
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.fields(0);
        let crc = crc32(&bytes);
        bytes = self.fields(crc);
        bytes
    }

    fn fields(&self, crc: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(SIGNATURE);
        bytes.extend(REVISION.to_le_bytes());
        bytes.extend(92_u32.to_le_bytes());
        bytes.extend(crc.to_le_bytes());
        bytes.extend([0; 4]);
        for sector in [self.own_sector, self.other_sector, self.first_usable, self.last_usable] {
            bytes.extend(sector.to_le_bytes());
        }
        bytes.extend(self.id.to_bytes_le());
        bytes.extend(self.array_sector.to_le_bytes());
        for word in [self.entry_count, self.entry_bytes, self.array_crc] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// The fields of a sector, each of which is possible on a disk of so many sectors.
    pub(super) fn decode(
        sector: &[u8],
        copy: Copy,
        size: SectorSize,
        own_sector: u64,
        sector_count: u64,
    ) -> Result<Self> {
        let at = own_sector.saturating_mul(size.bytes());
        let wrong = |what, expected: String, found: String| Error::Table { what, at, expected, found };
        let signature = sector.first_chunk::<8>().copied().unwrap_or_default();
        if signature != SIGNATURE {
            return Err(wrong("signature", "`EFI PART`".to_owned(), format!("`{}`", signature.escape_ascii())));
        }
        let (revision, len, crc) = (word(sector, 8), word(sector, 12), word(sector, 16));
        if revision != REVISION {
            return Err(wrong("revision", format!("{REVISION:#x}"), format!("{revision:#x}")));
        }
        let fields = usize::try_from(len).ok().filter(|len| *len >= HEADER_BYTES).and_then(|len| sector.get(..len));
        let Some(fields) = fields else {
            return Err(wrong("size of the header", format!("92 to {}", size.bytes()), len.to_string()));
        };
        let mut summed = fields.to_vec();
        summed.iter_mut().skip(16).take(4).for_each(|byte| *byte = 0);
        let found = crc32(&summed);
        if found != crc {
            return Err(wrong("checksum of the header", format!("{crc:#010x}"), format!("{found:#010x}")));
        }
        let header = Self {
            own_sector: long(fields, 24),
            other_sector: long(fields, 32),
            first_usable: long(fields, 40),
            last_usable: long(fields, 48),
            id: Uuid::from_bytes_le(part(fields, 56)),
            array_sector: long(fields, 72),
            entry_count: word(fields, 80),
            entry_bytes: word(fields, 84),
            array_crc: word(fields, 88),
        };
        header.check(copy, size, own_sector, sector_count).map(|()| header)
    }

    fn check(&self, copy: Copy, size: SectorSize, own_sector: u64, sector_count: u64) -> Result<()> {
        let at = own_sector.saturating_mul(size.bytes());
        let wrong = |what, expected: String, found: String| Err(Error::Table { what, at, expected, found });
        if self.own_sector != own_sector {
            return wrong("own sector", own_sector.to_string(), self.own_sector.to_string());
        }
        if !self.entry_bytes.is_power_of_two() || !(ENTRY_BYTES..=ENTRY_BYTES_MAX).contains(&self.entry_bytes) {
            return wrong("size of an entry", "a power of two of 128 to 4096".to_owned(), self.entry_bytes.to_string());
        }
        if !(1..=ENTRY_COUNT_MAX).contains(&self.entry_count) {
            return wrong("number of entries", format!("1 to {ENTRY_COUNT_MAX}"), self.entry_count.to_string());
        }
        // The limits above keep the product small.
        let array_sectors = self.array_bytes().div_ceil(size.bytes());
        let room = match copy {
            Copy::First => own_sector.saturating_add(1)..self.first_usable,
            Copy::Last => self.last_usable.saturating_add(1)..own_sector,
        };
        let array_end = self.array_sector.saturating_add(array_sectors);
        if self.array_sector < room.start || array_end > room.end {
            let found = format!("{} to {}", self.array_sector, array_end.saturating_sub(1));
            return wrong("sectors of the entries", format!("some of {} to {}", room.start, room.end), found);
        }
        if self.first_usable > self.last_usable || self.last_usable >= sector_count {
            let found = format!("{} to {}", self.first_usable, self.last_usable);
            return wrong("usable sectors", format!("some below {sector_count}"), found);
        }
        Ok(())
    }

    /// Bytes of all entries.
    pub(super) fn array_bytes(&self) -> u64 {
        u64::from(self.entry_count) * u64::from(self.entry_bytes)
    }
}

/// Bytes at a place; zeros beyond the end.
pub(super) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}
