//! Computes CRC-32 with the polynomial of Ethernet, raw. Called for the hashes of the disk formats that use it; no
//! [`ChecksumType`](super::ChecksumType) is it.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32 (reflected, polynomial 0x04c11db7) without its initial and final inversion: continues from `seed`. The
/// kernel's `crc32_le` does the same.
#[must_use]
#[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "the state of a 32-bit CRC has 32 bits")]
pub fn crc32_raw(seed: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(seed));
    digest.update(bytes);
    digest.get_state() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverted_it_is_the_usual_checksum_and_goes_on_in_parts() {
        assert_eq!(!crc32_raw(!0, b"123456789"), 0xcbf4_3926);
        let whole = crc32_raw(0xf2f5_2010, b"123456789");
        assert_eq!(crc32_raw(crc32_raw(0xf2f5_2010, b"1234"), b"56789"), whole);
        assert_eq!(crc32_raw(7, b""), 7);
    }
}
