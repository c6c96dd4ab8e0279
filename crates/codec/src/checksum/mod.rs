//! Computes the checksums of blocks and data.
//!
//! A volume uses one [`ChecksumType`] for everything: superblocks, tree blocks (all bytes after the 32-byte,
//! zero-padded checksum field) and data sectors (packed at [`ChecksumType::len`] bytes each in the checksum tree).
//!
//! Byte order on disk: CRC-32C and XXH64 are little-endian numbers; the other two are byte
//! strings. CRC-32C here is the usual one (initial value and final xor all ones);
//! [`crc32c_raw`] leaves both out, because the hashes of directory names are defined that way.
//!
//! These functions cannot fail. A short output receives the first bytes, a long one is zero-padded, so no length causes
//! a panic.
//!
//! Callers: block verification and writes, data checksums on write, read and scrub. For many sectors [`checksum_many`]
//! is faster: BLAKE2b hashes several at once.

mod blake2b;
mod crc32;
mod crc32c;
mod sha256;
mod xxhash64;

pub use crc32::crc32_raw;
pub use crc32c::crc32c_raw;
use std::fmt;

/// Bytes of the checksum field in superblocks and tree blocks, and of the longest checksum.
pub const CHECKSUM_SIZE_MAX: usize = 32;

/// A checksum type, numbered as in the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChecksumType {
    /// CRC-32C (Castagnoli), 4 bytes.
    #[default]
    Crc32c = 0,
    /// XXH64 with seed 0, 8 bytes.
    Xxhash64 = 1,
    /// SHA-256, 32 bytes.
    Sha256 = 2,
    /// BLAKE2b with 32 bytes of output, no key.
    Blake2b = 3,
}

impl ChecksumType {
    /// Every type, in the order of the numbers.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Xxhash64, Self::Sha256, Self::Blake2b];

    /// The type with this number on disk, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u16) -> Option<Self> {
        match raw {
            0 => Some(Self::Crc32c),
            1 => Some(Self::Xxhash64),
            2 => Some(Self::Sha256),
            3 => Some(Self::Blake2b),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub const fn to_raw(self) -> u16 {
        match self {
            Self::Crc32c => 0,
            Self::Xxhash64 => 1,
            Self::Sha256 => 2,
            Self::Blake2b => 3,
        }
    }

    /// The type with this name, as given on the command line.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Bytes of one checksum.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a checksum is never empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// The name the reference tools use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2b",
        }
    }
}

impl fmt::Display for ChecksumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The checksum of `bytes` as it stands on disk, zero padded.
#[must_use]
pub fn checksum(kind: ChecksumType, bytes: &[u8]) -> [u8; CHECKSUM_SIZE_MAX] {
    let mut padded = [0; CHECKSUM_SIZE_MAX];
    match kind {
        ChecksumType::Crc32c => padded[..4].copy_from_slice(&crc32c::checksum(bytes)),
        ChecksumType::Xxhash64 => padded[..8].copy_from_slice(&xxhash64::checksum(bytes)),
        ChecksumType::Sha256 => padded = sha256::checksum(bytes),
        ChecksumType::Blake2b => padded = blake2b::checksum(bytes),
    }
    padded
}

/// Writes the checksum of `bytes` to the start of `out` and zeros behind it.
pub fn checksum_into(kind: ChecksumType, bytes: &[u8], out: &mut [u8]) {
    let padded = checksum(kind, bytes);
    let sum = padded.iter().take(kind.len()).chain(std::iter::repeat(&0));
    out.iter_mut().zip(sum).for_each(|(to, from)| *to = *from);
}

/// Whether `stored`, at least [`ChecksumType::len`] bytes, begins with the checksum of `bytes`.
#[must_use]
pub fn matches(kind: ChecksumType, bytes: &[u8], stored: &[u8]) -> bool {
    stored.get(..kind.len()).is_some_and(|stored| checksum(kind, bytes).get(..kind.len()) == Some(stored))
}

/// The checksums of all sectors of `data`, packed one after the other into `out`. The last
/// sector may be shorter than `sector` bytes. Stops when `out` has no room for another; bytes of
/// `out` after the last checksum stay as they are.
pub fn checksum_many(kind: ChecksumType, data: &[u8], sector: usize, out: &mut [u8]) {
    let sectors = data.chunks(sector.max(1));
    let slots = out.chunks_exact_mut(kind.len());
    match kind {
        ChecksumType::Blake2b => blake2b::checksum_many(sectors, slots),
        _ => sectors.zip(slots).for_each(|(bytes, slot)| checksum_into(kind, bytes, slot)),
    }
}

#[cfg(test)]
mod tests;
