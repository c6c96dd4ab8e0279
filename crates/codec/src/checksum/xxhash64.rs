//! Computes XXH64 with seed 0. Called by `checksum`.

/// As stored.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 8] {
    twox_hash::XxHash64::oneshot(0, bytes).to_le_bytes()
}
