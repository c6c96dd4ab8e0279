//! Computes CRC-32C. Called by `checksum`; the raw form by the hashes of directory names and by send streams.

use crc_fast::{CrcAlgorithm, Digest};

/// The usual CRC-32C, as stored.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 4] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

/// CRC-32C without its initial and final inversion: continues from `seed`. Hashes of directory
/// names start from `!1`, those of long inode references from the parent's number.
#[must_use]
#[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "the state of a 32-bit CRC has 32 bits")]
pub fn crc32c_raw(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    digest.get_state() as u32
}
