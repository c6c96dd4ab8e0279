//! Computes the CRC-32 of an image whose zeros nobody reads. Called by `android`.

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};

use super::zeros::ZEROS;
use crate::number::bytes;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc32IsoHdlc;

/// The checksum of all bytes so far.
pub(super) struct RunningCrc {
    value: u64,
}

impl RunningCrc {
    /// Of no bytes.
    pub(super) fn new() -> Self {
        Self { value: checksum(ALGORITHM, &[]) }
    }

    pub(super) fn add(&mut self, part: &[u8]) {
        self.value = checksum_combine(ALGORITHM, self.value, checksum(ALGORITHM, part), bytes(part.len()));
    }

    /// Adds as many zeros, in steps of which each has twice the length of the one before.
    pub(super) fn add_zeros(&mut self, len_bytes: u64) {
        let mut left = len_bytes;
        let mut step_bytes = 1;
        let mut step = checksum(ALGORITHM, ZEROS.get(..1).unwrap_or_default());
        while left > 0 {
            if left % 2 == 1 {
                self.value = checksum_combine(ALGORITHM, self.value, step, step_bytes);
            }
            step = checksum_combine(ALGORITHM, step, step, step_bytes);
            step_bytes = step_bytes.saturating_mul(2);
            left /= 2;
        }
    }

    pub(super) fn value(&self) -> u32 {
        u32::try_from(self.value).expect("a CRC-32 has 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_count_as_if_they_were_read() {
        for len in [0, 1, 4096, 12_345, 1 << 20] {
            let mut crc = RunningCrc::new();
            crc.add(b"begin");
            crc.add_zeros(u64::try_from(len).unwrap());
            crc.add(b"end");
            let mut whole = b"begin".to_vec();
            whole.resize(5 + len, 0);
            whole.extend(b"end");
            assert_eq!(u64::from(crc.value()), checksum(ALGORITHM, &whole), "{len}");
        }
    }
}
